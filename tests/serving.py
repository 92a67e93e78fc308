"""A server in a thread of this process, for a test."""

import contextlib
import threading
from collections.abc import Iterator
from socketserver import BaseServer


@contextlib.contextmanager
def serving(server: BaseServer) -> Iterator[str]:
    """Answer requests in a thread and return the address. The thread ends before the socket closes: on a closed socket it
    would take a processor until the process ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05], daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
