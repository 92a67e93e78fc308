"""Lemmas and features of words, learned from a treebank, and refused when damaged."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phrasemodels.parsing.lexicon import Lexicon, SuffixRules, change, changed
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ABOUT, ENGLISH, load, save


@pytest.mark.parametrize(
    ("form", "lemma"), [("houses", "house"), ("went", "go"), ("The", "the"), ("UN", "UN"), ("n't", "not")]
)
def test_a_change_of_a_form_gives_its_lemma(form: str, lemma: str) -> None:
    assert changed(form, change(form, lemma)) == lemma


def test_unseen_forms_get_the_value_of_their_longest_suffix() -> None:
    words = [("houses", "house", "NOUN", "NNS", "Number=Plur"), ("dogs", "dog", "NOUN", "NNS", "Number=Plur")]
    words += [("cat", "cat", "NOUN", "NN", "Number=Sing"), ("mice", "mouse", "NOUN", "NNS", "Number=Plur")]
    words += [("The", "the", "DET", "DT", "Definite=Def"), ("the", "the", "DET", "DT", "Definite=Def")]
    lexicon = Lexicon.learned(words)
    for form, lemma, upos, tag, features in words:
        assert (lexicon.lemma(form, upos), lexicon.features_of(form, upos, tag)) == (lemma, features)
    assert lexicon.lemma("Lamps", "NOUN") == "lamp" and lexicon.features_of("lamps", "NOUN", "NNS") == "Number=Plur"
    assert lexicon.lemma("x", "VERB") == "x" and lexicon.features_of("x", "VERB", "VB") == "_"
    again = SuffixRules.restored(json.loads(json.dumps(lexicon.lemmas.described())))
    assert again == lexicon.lemmas


def test_a_lemma_that_no_file_may_hold_is_left_out() -> None:
    known = [("Dogs", "dog", "NOUN", "_", "_"), ("x", "10\u00a0000", "NUM", "_", "a\u202eb")]
    lexicon = Lexicon.learned(known)
    for rules in (lexicon.lemmas, lexicon.features):
        assert SuffixRules.restored(json.loads(json.dumps(rules.described()))) == rules
    assert (lexicon.lemma("x", "NUM"), lexicon.features_of("x", "NUM", "_")) == ("x", "_")


def test_the_english_parser_knows_lemmas_and_features_and_refuses_damaged_ones(tmp_path: Path) -> None:
    (found,) = Parser.load().parse("The mice didn't see him.")
    assert found.lemmas == ["the", "mouse", "do", "not", "see", "he", "."]
    rows = [line.split("\t") for line in found.conllu().split("\n")[2:-1]]
    assert rows[1][2] == "mouse" and rows[1][5] == "Number=Plur" and rows[2][:3] == ["3-4", "didn't", "_"]
    saved = load(ENGLISH)
    small = dataclasses.replace(saved, lexicon=Lexicon.learned([("a", "b", "X", "X", "_")]))
    folder = save(small, tmp_path / "own")
    about = json.loads((folder / ABOUT).read_text())
    change: list[Callable[[dict[str, Any]], Any]] = [
        *(
            lambda new, text=text: new["lemmas"].update(values=[text])
            for text in ("a\tb", "\x1b[2J", "a\u2028b", "\u202ea", "a" * 1001)
        ),
        lambda new: new["lemmas"].update(forms={"a": 9}),
        lambda new: new["features"].update(suffixes={"a": True}),
        lambda new: new.pop("features"),
    ]
    for one in change:
        new = json.loads(json.dumps(about))
        one(new["lexicon"])
        (folder / ABOUT).write_text(json.dumps(new))
        with pytest.raises(ValueError, match="cannot be read"):
            load(folder)
