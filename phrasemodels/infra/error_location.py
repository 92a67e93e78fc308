"""The source line of an error in a module's forward pass, which Ray would lose together with the traceback."""

import contextlib
import traceback
from collections.abc import Iterator

FORWARD = "torch/nn/modules/module.py"


@contextlib.contextmanager
def noting_error_line() -> Iterator[None]:
    """Add the file and line to an error that a module's forward raises, as a note, which is kept without a traceback."""
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
