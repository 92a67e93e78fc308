"""A model that MLflow serves: the bounds of requests, their turns, and clients that leave."""

import asyncio
import json
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from outside import GIVEN, OUTSIDE, exporting

from phrasemodels.flows.results.models import load
from phrasemodels.flows.run.page_server import Turns

with warnings.catch_warnings():  # of MLflow about its own types
    warnings.simplefilter("ignore")
    from phrasemodels.flows.run import served
    from phrasemodels.flows.run.served import GONE, Bounded, Served, within

Send = Callable[[Any], Awaitable[None]]


@pytest.fixture
def model(tmp_path: Path) -> Served:
    (tmp_path / GIVEN).write_bytes(OUTSIDE["exported model"].seeds[0])
    exporting("model", lambda folder: None)(tmp_path)
    made = Served()
    made.load_context(SimpleNamespace(artifacts={"exported": tmp_path}))
    assert made.model == load(tmp_path)
    return made


def ask(made: Served, texts: list[str]) -> tuple[list[str], list[str]]:
    found = made.predict(None, pd.DataFrame({"source": texts}))
    return list(found["answer"]), list(found["error"])


def test_a_model_answers_in_turns_as_it_does_at_once(model: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the red house", "", "x " * 201, "sleeps"] * 3
    answers, errors = ask(model, texts)
    monkeypatch.setattr(served, "TURN", 4)
    assert ask(model, texts) == (answers, errors)
    assert [bool(error) for error in errors] == [len(text) > 201 for text in texts]
    assert [answers[0], answers[3]] == model.model.predict(["the red house", "sleeps"])


def test_the_words_of_a_request_are_bounded_where_it_is_served(model: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "WORDS", 9)
    texts = ["the red house"] * 4
    assert ask(model, texts)[1] == [""] * 4, "in a process of one's own nothing is bounded"
    GONE.set(threading.Event())
    try:
        assert [error[:30] for error in ask(model, texts)[1]] == ["", "", *["only the first 2 texts are ans"] * 2]
    finally:
        GONE.set(None)


def test_words_are_counted_with_those_that_nothing_divides() -> None:
    assert within(["a b", "c"], 4) == 1 and within(["a b", "c"], 5) == 2
    assert within(["x" * 40], 4) == 0 and within(["x" * 40], 5) == 1
    assert within([""] * 9, 3) == 3


def test_turns_go_round() -> None:
    turns, order = Turns(), list[str]()

    def work(name: str) -> None:
        for _ in range(4):
            with turns():
                order.append(name)
                time.sleep(0.005)

    with turns():
        threads = []
        for name in "ab":
            threads.append(threading.Thread(target=work, args=[name]))
            threads[-1].start()
            while len(turns._waiting) < len(threads):
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert "".join(order) == "abababab"


def test_a_turn_that_fails_is_passed_on() -> None:
    turns = Turns()
    with pytest.raises(KeyError), turns():
        raise KeyError
    with turns():
        pass


class Client:
    """A client that sends these messages, and then waits until it leaves."""

    def __init__(self, *messages: bytes, leaves: float = 60.0, more: bool = False) -> None:
        self.messages = [{"type": "http.request", "body": m, "more_body": True} for m in messages]
        self.messages[-1]["more_body"] = more
        self.leaves, self.got = leaves, list[Any]()

    async def receive(self) -> Any:
        if self.messages:
            return self.messages.pop(0)
        await asyncio.sleep(self.leaves)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.got.append(message)

    def ask(self, app: Bounded) -> tuple[int, bytes]:
        asyncio.run(app({"type": "http"}, self.receive, self.send))
        return self.answer

    @property
    def answer(self) -> tuple[int, bytes]:
        return (self.got[0]["status"], self.got[1]["body"]) if self.got else (0, b"")


async def echo(scope: Any, receive: Any, send: Send) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def test_requests_that_are_too_large_or_too_slow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "BYTES", 8)
    monkeypatch.setattr(served, "SECONDS", 0.05)
    assert Client(b"1234", b"5678").ask(Bounded(echo)) == (200, b"12345678")
    assert Client(b"1234", b"56789").ask(Bounded(echo)) == (413, b"send at most 8 bytes\n")
    assert Client(b"1234", more=True).ask(Bounded(echo))[0] == 408
    assert Client(b"1234", more=True, leaves=0).ask(Bounded(echo)) == (0, b"")


def test_requests_beyond_a_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(scope: Any, receive: Any, send: Send) -> None:
        await asyncio.sleep(0.05)
        await echo(scope, receive, send)

    async def together() -> list[int]:
        app, clients = Bounded(slow), [Client(b"x") for _ in range(5)]
        await asyncio.gather(*(app({"type": "http"}, c.receive, c.send) for c in clients))
        late = Client(b"x")
        await app({"type": "http"}, late.receive, late.send)
        return [client.answer[0] for client in (*clients, late)]

    monkeypatch.setattr(served, "REQUESTS", 3)
    assert asyncio.run(together()) == [200, 200, 200, 503, 503, 200]


def test_a_request_whose_client_left_takes_no_further_turn(model: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the whole app of MLflow, in which the model works in a thread."""
    import fastapi
    from mlflow.pyfunc import scoring_server

    turns = []
    answers = model.model.answers

    def slow(texts: list[str]) -> Any:
        turns.append(texts)
        time.sleep(0.1)
        return answers(texts)

    object.__setattr__(model.model, "answers", slow)
    monkeypatch.setattr(served, "TURN", 2)
    monkeypatch.setattr(fastapi, "FastAPI", fastapi.FastAPI)  # put back after the test
    served._bound_requests()
    loaded = SimpleNamespace(predict=lambda data, params=None: model.predict(None, data), metadata=SimpleNamespace(
        get_input_schema=lambda: None, get_params_schema=lambda: None))  # fmt: skip
    app = scoring_server.init(loaded)
    body = json.dumps({"dataframe_split": {"columns": ["source"], "data": [["the"]] * 9}}).encode()
    scope = {"type": "http", "method": "POST", "path": "/invocations", "query_string": b"", "root_path": "",
             "headers": [(b"content-type", b"application/json")], "http_version": "1.1"}  # fmt: skip

    def served_to(client: Client) -> int:
        turns.clear()
        asyncio.run(app(scope, client.receive, client.send))
        return len(turns)

    assert served_to(stays := Client(body)) == 9 and stays.answer[0] == 200
    assert served_to(Client(body, leaves=0.25)) < 5
