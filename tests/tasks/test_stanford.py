"""The Stanford parser: what its output becomes, and one line for each way in which it can be missing or fail."""

import os
import shutil
from pathlib import Path

import pytest

from phrasemodels.data.formats.shards import SENTENCES, build
from phrasemodels.data.formats.trees import parse
from phrasemodels.tasks.parsers.stanford import GRAMMAR, NAME, UNPARSED, StanfordFiles, StanfordParser, analysis

SUPPLIED = Path(os.environ.get("PHRASEMODELS_SUPPLIED", "/nowhere"))
# As the parser of September 2010 prints it.
QUESTION = "(ROOT (SBARQ (WHNP (WP What)) (SQ (VP (VBZ is) (NP (NP (-LRB- -LRB-) (NNP x) (-RRB- -RRB-)) (NP (CD 1\\/2))))) (. ?)))"
WORDS = "What is ( x ) 1/2 ?".split()


def table(*texts: str):
    return build(
        SENTENCES, "a test", {"text": texts, "tree": [""] * len(texts), "label": [""] * len(texts)}, len(texts)
    )


def files(folder: Path, jar: bytes) -> Path:
    (folder / NAME).mkdir()
    (folder / NAME / "stanford-parser.jar").write_bytes(jar)
    (folder / NAME / GRAMMAR).write_bytes(b"no grammar")
    return folder / NAME


def test_a_tree_has_the_words_that_were_given() -> None:
    made = analysis(WORDS, QUESTION)
    assert parse(made.tree).tokens == tuple(WORDS) and made.tags[:2] == ("WP", "VBZ") and not made.reason
    assert [span.label for span in parse(made.tree).spans][:3] == ["ROOT", "SBARQ", "WHNP"]
    assert analysis(WORDS, "SENTENCE_SKIPPED_OR_UNPARSABLE").reason == UNPARSED
    assert "otherwise" in analysis([*WORDS, "more"], QUESTION).reason


def test_the_digests_of_jar_and_grammar_are_in_the_key(tmp_path: Path) -> None:
    absent = StanfordFiles().locate((tmp_path,))
    assert absent == StanfordFiles()
    folder = files(tmp_path, b"one")
    one = StanfordFiles().locate((tmp_path,))
    (folder / "stanford-parser.jar").write_bytes(b"another")
    os.utime(folder / "stanford-parser.jar", (1, 1))
    assert len({absent.step().key, one.step().key, StanfordFiles().locate((tmp_path,)).step().key}) == 3


def test_without_java_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match=r"needs Java, and there is no `java` here: install") as caught:
        StanfordParser().analyse(table("a cat"), "text", {"models": files(tmp_path, b"no jar")})
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not shutil.which("java"), reason="no Java here")
def test_a_process_that_dies_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=r"ended with status 1 after 0 of 1 sentences: Error: .*LexicalizedParser"
    ) as caught:
        StanfordParser().analyse(table("a cat", ""), "text", {"models": files(tmp_path, b"no jar")})
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(
    not (shutil.which("java") and (SUPPLIED / NAME / GRAMMAR).is_file()),
    reason="needs Java, and the parser in the folder stanford of PHRASEMODELS_SUPPLIED",
)
def test_the_real_parser_parses_all_sentences_in_one_process() -> None:
    found = StanfordParser(longest=6).analyse(
        table("the cat saw ( it )", "", "a " * 7, "Go"), "text", {"models": SUPPLIED / NAME}
    )
    trees, reasons = found["tree"].to_pylist(), found["reason"].to_pylist()
    assert parse(trees[0]).tokens == ("the", "cat", "saw", "(", "it", ")") and parse(trees[3]).tokens == ("Go",)
    assert reasons == ["", "no words", "more than 6 words", ""]
