"""Serve a trained model with MLflow: this file is the model's code, its weights are an exported folder.

Bounds of the server: a request has at most BYTES bytes and WORDS words, and each of REQUESTS at a time takes turns of TURN words in
the order in which they ask, so a turn waits for at most REQUESTS - 1 others. A request whose client has left takes no further turn.
"""

import asyncio
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import mlflow
import pandas as pd

from phrasemodels.flows.run.page_server import Turns

BYTES = 1_000_000  # of a request
SECONDS = 30  # in which a request has to arrive
WORDS = 5_000  # of a request that are answered
TURN = 200  # words, or one text
REQUESTS = 128  # at a time
GONE: ContextVar[threading.Event | None] = ContextVar("gone", default=None)  # set once nobody waits for the answer


class Served(mlflow.pyfunc.PythonModel):  # type: ignore[name-defined]
    """Answers the texts in the column `source`, in the column `answer`; `error` says why a text is not answered."""

    def load_context(self, context: Any) -> None:
        from pathlib import Path

        from phrasemodels.flows.results.models import load

        self.model, self.turns = load(Path(context.artifacts["exported"])), Turns()
        if "mlflow.pyfunc.scoring_server.app" in sys.modules:  # this process is `mlflow models serve`
            _bound_requests()

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        texts, gone = [str(text) for text in model_input["source"]], GONE.get()
        answered = len(texts) if gone is None else within(texts, WORDS)
        found: list[tuple[str, str]] = []
        while len(found) < answered:
            some = texts[len(found) : answered]
            with self.turns():
                if gone is not None and gone.is_set():
                    break
                found += self.model.answers(some[: max(1, within(some, TURN))])
        problem = (
            f"only the first {answered} texts are answered, with {WORDS} words together: send the others by themselves"
        )
        found += [("", problem)] * (len(texts) - len(found))
        return pd.DataFrame(found, columns=["answer", "error"], dtype=str)


def within(texts: Sequence[str], words: int) -> int:
    """Return how many of the first texts have at most so many words together; ten characters count as one at least."""
    for count, text in enumerate(texts):
        words -= 1 + max(len(text) // 10, len(text.split()))
        if words < 0:
            return count
    return len(texts)


class Bounded:
    """ASGI middleware: refuses requests that are too large, too slow or too many, and sets GONE when a client leaves."""

    def __init__(self, app: Any) -> None:
        self.app, self.running = app, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":  # the server starts
            # a thread for each request, so that all can ask for turns
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(REQUESTS))
            await self.app(scope, receive, send)
            return
        try:
            # read as a whole before the model is asked, so that a slow client holds no turn
            body = await asyncio.wait_for(_body(receive), SECONDS)
        except ConnectionError:
            return
        except TimeoutError:
            await refuse(408, f"the request has not arrived within {SECONDS} s", scope, receive, send)
            return
        except ValueError:
            await refuse(413, f"send at most {BYTES} bytes", scope, receive, send)
            return
        if self.running >= REQUESTS:
            await refuse(503, f"{REQUESTS} requests are being answered: ask again later", scope, receive, send)
            return
        self.running += 1
        try:
            await self._answer(body, scope, receive, send)
        finally:
            self.running -= 1

    async def _answer(self, body: bytes, scope: Any, receive: Any, send: Any) -> None:
        gone, left = threading.Event(), asyncio.Event()
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def read() -> Any:
            if not given:
                await left.wait()
            return given.pop() if given else {"type": "http.disconnect"}

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            left.set()

        GONE.set(gone)
        watching = asyncio.create_task(watch())
        try:
            await self.app(scope, read, send)
        finally:  # also after MLflow's own time limit, when its thread still runs
            gone.set()
            watching.cancel()


async def refuse(status: int, why: str, scope: Any, receive: Any, send: Any) -> None:
    from starlette.responses import PlainTextResponse

    await PlainTextResponse(f"{why}\n", status)(scope, receive, send)


async def _body(receive: Any) -> bytes:
    """Return the body of a request. ValueError: it has more than BYTES. ConnectionError: the client left."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BYTES:
            raise ValueError("too large")
    return bytes(body)


def _bound_requests() -> None:
    """Give Bounded to the app that MLflow makes after it has loaded the model; it has no option for this."""
    import fastapi
    from starlette.middleware import Middleware

    class App(fastapi.FastAPI):
        def __init__(self) -> None:
            super().__init__(middleware=[Middleware(Bounded)])

    fastapi.FastAPI = App  # type: ignore[misc, assignment]


mlflow.models.set_model(Served())
