"""A trained model that is served over HTTP in turns."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from outside import GIVEN, OUTSIDE, exporting
from serving import serving

from phrasemodels.flows.results.models import Model, load
from phrasemodels.flows.run import page_server
from phrasemodels.flows.run.page_server import Turns, served_model, server, within


@pytest.fixture
def model(tmp_path: Path) -> Model:
    (tmp_path / GIVEN).write_bytes(OUTSIDE["exported model"].seeds[0])
    exporting("model", lambda folder: None)(tmp_path)
    return load(tmp_path)


TEXTS = ["the red house", "x " * 201, "sleeps"] * 3


def test_a_model_answers_each_line_in_turns_as_it_does_at_once(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = []
    wanted = [
        {"source": text, "answer": a, "error": e} for text, (a, e) in zip(TEXTS, model.answers(TEXTS), strict=True)
    ]
    monkeypatch.setattr(page_server, "TURN", 6)

    def turn() -> nullcontext[None]:
        turns.append("")
        return nullcontext()

    served = served_model(model)
    assert json.loads(served.answer("\n\n".join(TEXTS), turn)) == wanted
    assert len(turns) == 7, "a long line has a turn of its own, and two short ones share one"
    assert all(f"<td>{row['answer']}" in served.page("\n".join(TEXTS), turn) for row in wanted)


def test_many_clients_of_a_model_are_answered_and_told_what_is_wrong(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(server(served_model(model), "127.0.0.1", 0)) as url:

        def ask(words: int) -> bool:
            with urlopen(f"{url}/predict.json", b"text=" + b"house " * words, timeout=60) as answer:
                (row,) = json.loads(answer.read())
            return bool(row["error"])

        sizes = [1, 1500, 3, 3000] * 15
        with ThreadPoolExecutor(60) as clients:
            assert list(clients.map(ask, sizes)) == [words > 200 for words in sizes]
        for host, status in (
            ("localhost:1", 200),
            ("[::1]", 200),
            ("evil.example", 403),
            ("127.0.0.1.evil.example", 403),
        ):
            request = Request(f"{url}/health", headers={"Host": host})
            with pytest.raises(HTTPError) if status == 403 else nullcontext():
                assert urlopen(request).status == status
        assert "/predict.json" in json.loads(urlopen(f"{url}/openapi.json").read())["paths"]

        def refuse(texts: list[str]) -> None:
            raise ValueError("a pair lacks its second text\nmore")

        object.__setattr__(model, "answers", refuse)
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{url}/predict.json?text=a")
        assert (refused.value.code, refused.value.read()) == (422, b"a pair lacks its second text\n")


def test_words_are_counted_with_those_that_nothing_divides() -> None:
    assert within(["a b", "c"], 4) == 1 and within(["a b", "c"], 5) == 2
    assert within(["x" * 40], 4) == 0 and within(["x" * 40], 5) == 1
    assert within([""] * 9, 3) == 3


def waiting_turns(sizes: list[int], rounds: int = 1) -> list[int]:
    """Return in which order texts of these sizes, which ask one after another while a turn is under way, get their turns."""
    turns, order = Turns(), list[int]()

    def work(size: int) -> None:
        for _ in range(rounds):
            with turns(size):
                order.append(size)
                time.sleep(0.01)

    with turns():
        threads = []
        for size in sizes:
            threads.append(Thread(target=work, args=[size]))
            threads[-1].start()
            while len(turns._waiting) < len(threads):
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return order


def test_turns_go_round_and_short_texts_come_first_but_not_always() -> None:
    assert len(waiting_turns([5, 5], rounds=4)) == 8
    assert waiting_turns([900, 500, 1, 500, 2]) == [1, 2, 500, 500, 900]
    assert waiting_turns([90, 10, 10, 10], rounds=15).index(90) in range(9, 40), "before all of the short ones"


def test_a_turn_that_fails_is_passed_on() -> None:
    turns = Turns()
    with pytest.raises(KeyError), turns():
        raise KeyError
    with turns():
        pass
