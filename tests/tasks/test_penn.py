"""The tokeniser of treebanks takes linear time, and divides clitics as a plainer expression that backtracks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrasemodels.inference.inputs import penn_treebank
from phrasemodels.parsing import words

CLITIC = r"n['’]t|['’](?:s|re|ve|ll|d|m)"
CLITICS = re.compile(rf"(?i)^(.+?)((?:{CLITIC})+)$")
PARTS = [*"a@.-'’nts1,S()! \nſé", "re", "ve", "ll", "d", "m", "n't", "N’T", "http://", "U.S."]


def backtracking(text: str) -> list[str]:
    """Tokens by the expression of clitics that says the same more plainly."""
    tokens: list[str] = []
    for piece in words._PIECE.findall(text):
        found = CLITICS.match(piece)
        tokens += [found[1], *re.findall(f"(?i){CLITIC}", found[2])] if found else [piece]
    return tokens


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_clitics_are_those_of_a_plainer_expression(text: str) -> None:
    assert penn_treebank(text) == backtracking(text)


@pytest.mark.parametrize(
    ("text", "tokens"), [("@" * 20_000, 20_000), ("a@" * 20_000, 40_000), ("a" + "'s" * 20_000 + "x", 1), ("!" * 20_000, 20_000)]
)  # fmt: skip
def test_long_words_take_linear_time(text: str, tokens: int) -> None:
    assert len(penn_treebank(text)) == tokens
