"""Where a mistake in somebody's layer is: a line that ends a run says so, also if Ray gave the error back without a
traceback."""

import contextlib
import traceback
from collections.abc import Iterator

FORWARD = "torch/nn/modules/module.py"


@contextlib.contextmanager
def located() -> Iterator[None]:
    """An error out of a module's forward gets a note of the line it came from; notes outlive a traceback."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        calls = [at for at, frame in enumerate(frames) if frame.filename.endswith(FORWARD)]
        if calls:
            torch = frames[calls[0]].filename.removesuffix("nn/modules/module.py")
            last = [frame for frame in frames if not frame.filename.startswith(torch)][-1]
            error.add_note(f"{last.filename}:{last.lineno}, in {last.name}")
        raise
