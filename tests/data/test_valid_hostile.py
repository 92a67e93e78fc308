"""Valid hostile input is refused or read, and never read as something else; work grows with the input, not with its square."""

import gc
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import CHANGES, GROWING, attacked
from outside import attempt

SLOW = ("exported model", "packed", "checkpoint", "object storage")  # some of which take a second each


@pytest.mark.parametrize("name", CHANGES)
def test_valid_hostile_input_is_refused_or_read(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    for number in range(1 if "MLflow" in name else 2 if any(word in name for word in SLOW) else 12):
        (tmp_path / str(number)).mkdir()
        attacked(name, tmp_path / str(number), chance)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_much_valid_hostile_input_is_refused_or_read(name: str, tmp_path: Path) -> None:
    """Of each run another: the seed is in the name of a folder of a find."""
    seed = time.time_ns()
    for number in range(20 if any(word in name for word in (*SLOW, "MLflow")) else 300):
        (tmp_path / f"{seed}-{number}").mkdir()
        attacked(name, tmp_path / f"{seed}-{number}", random.Random(f"{seed} {number}"))


def seconds(name: str, content: bytes, folder: Path) -> float:
    """Return the least processor time of two readings, without the collection of garbage, which grows with other tests."""

    def once(number: int) -> float:
        start = time.process_time()
        attempt(name, content, folder / str(number))
        return time.process_time() - start

    folder.mkdir()
    gc.disable()
    try:
        return min(once(number) for number in range(2))
    finally:
        gc.enable()


@pytest.mark.parametrize("way", GROWING)
def test_work_does_not_grow_with_the_square_of_the_input(way: str, tmp_path: Path) -> None:
    """Of four times the input less than nine times the time is taken, where a square is sixteen times."""
    name, size, grown = GROWING[way]
    small, large = (seconds(name, grown(n), tmp_path / str(n)) for n in (size // 4, size))
    assert large < 9 * small + 0.02, f"{way}: {small:.3f} s, of four times the input {large:.3f} s"


@pytest.mark.slow
@pytest.mark.parametrize("way", GROWING)
def test_memory_grows_with_the_input(way: str, tmp_path: Path) -> None:
    name, size, grown = GROWING[way]

    def peak(content: bytes, folder: Path) -> int:
        tracemalloc.start()
        attempt(name, content, folder)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    small, large = (peak(grown(n), tmp_path / str(n)) for n in (size, 4 * size))
    assert large < 6 * small + 1_000_000, f"{way}: {small} bytes, of four times the input {large}"


def quadratic(content: bytes) -> None:
    for _ in content:
        content.count(b"x")


def test_a_square_would_be_noticed(tmp_path: Path) -> None:
    def taken(n: int, work: Callable[[bytes], None]) -> float:
        start = time.process_time()
        work(b"a" * n)
        return time.process_time() - start

    assert taken(48_000, quadratic) > 9 * taken(12_000, quadratic) + 0.02
