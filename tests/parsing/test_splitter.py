"""A trained splitter: learned from a treebank's raw text, the same however a text is cut, saved, and refused when damaged."""

import dataclasses
import json
import random
import re
import runpy
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import PROJECT
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemodels.data.formats.lines import Line
from phrasemodels.parsing import splitter as module
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import ABOUT, ENGLISH, SPLITTER, load, save
from phrasemodels.parsing.splitter import Splitter, SplitterConfig
from phrasemodels.parsing.words import Word, composed, sentences, spaced
from phrasemodels.tasks.parsers.splitting import (
    ANALYSIS,
    DIVISION,
    RawSentence,
    SplitterTraining,
    Token,
    attached,
    f1,
    raw_sentences,
    train_splitter,
    without_typing_errors,
    writes_marks_apart,
    written,
)

ROWS = {
    "Il va au pré.": "1\tIl|2\tva|3-4\tau|3\tà|4\tle|5\tpré\tSpaceAfter=No|6\t.",
    "Don't go!": "1-2\tDon't|1\tDo|2\tn't|3\tgo\tSpaceAfter=No|4\t!",
    "20 000 ans": "1\t20 000|2\tans",
    "Ça va": "1\tÇa|2\tva",
}
MAKER = runpy.run_path(str(PROJECT / "benchmarks" / "make_parser.py"))
SMALL = SplitterConfig(2, d=16, buckets=64, dilations=(1, 2, 4))


def conllu(text: str, rows: str) -> list[str]:
    lines = []
    for row in rows.split("|"):
        number, form, *misc = row.split("\t")
        lines.append("\t".join([number, form, *["_"] * 4, "0" if number == "1" else "1", "_", "_", *(misc or ["_"])]))
    return [f"# text = {text}", *lines, ""]


def treebank(copies: int = 1) -> list[RawSentence]:
    lines = [line for _ in range(copies) for text, rows in ROWS.items() for line in conllu(text, rows)]
    found = list(raw_sentences(Line(k, line) for k, line in enumerate(lines, 1)))
    assert None not in found
    return [one for one in found if one]


@pytest.fixture(scope="module")
def splitter() -> Splitter:
    about = SplitterTraining(epochs=20, rate=0.02, batch=512, model=SMALL)
    return train_splitter([treebank(30)], [treebank(4)], about)


def test_what_a_treebank_shows_is_learned(splitter: Splitter) -> None:
    assert splitter.spaces and splitter.fused == {"au": ("à", "le")}
    text = "Il va au pré. Don't go! 20 000 ans\n\nÇa va"
    found = splitter(text)
    words = [[word.form for word in own] for own in found]
    assert words[0] == "Il va à le pré .".split() and words[-1] == ["Ça", "va"] and ["20 000", "ans"] in words
    assert ["Do", "n't", "go", "!"] in words
    joined = [(word.form, text[word.start : word.end]) for own in found for word in own if word.joined]
    assert joined == [("le", "au"), ("n't", "n't")]
    placed = written(treebank())
    scored = f1([(placed[1], [(own, ()) for own in splitter(placed[0])])])
    assert scored["words"] > 95 and f1([(placed[1], [])])["words"] == 0


def test_a_text_is_divided_equally_however_it_is_cut(splitter: Splitter, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Il va au pré. Don't go! " * 40
    whole = splitter.scores([text])[0]
    monkeypatch.setattr(module, "CHUNK", 100)
    torch.testing.assert_close(torch.from_numpy(splitter.scores(["x", text])[1]), torch.from_numpy(whole))
    for own in (splitter, load(ENGLISH).split):  # what pads a text changes no score at its end
        alone, padded = (
            torch.from_numpy(own.scores(texts)[0]) for texts in (["Go! ???"], ["Go! ???", "Go there. " * 3])
        )
        torch.testing.assert_close(padded, alone)
    assert splitter.each([text, "", " \n"]) == [splitter(text), [], []]
    assert splitter("  \u00adIl\u00ad va\u200b au")[0][0] == ("Il", 3, 5, False)


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧 👍🏽 🇩🇪🇫🇷 I ❤️ it",
        "e\u0301a -LRB- x",
        "\u200d \u200c",
        "a\u200cb",
        "\ufeffa\u200bb",
        "\ud800 x",
        "日本語。" * 50,
    ],
)
def test_odd_text_loses_no_character_and_is_divided_between_characters(splitter: Splitter, text: str) -> None:
    places = [place for own in splitter(text) for word in own for place in range(word.start, word.end)]
    assert places == sorted(set(places))
    lost = {text[k] for k in range(len(text)) if k not in places}
    assert all(c.isspace() or c in "\u00ad\u200b\ufeff\u200c\u200d" for c in lost)
    for word in (word for own in splitter(text) for word in own):
        assert word.form[0] not in "\u0301\ufe0f\U0001f3fd" and word.form != "🇩"


def test_accents_and_marks_that_the_treebank_lacks_are_read_as_those_it_has(splitter: Splitter) -> None:
    text = "Il va au pré. Don't go!"
    forms = [word.form for own in splitter(text) for word in own]
    for other in (unicodedata.normalize("NFD", text), text.replace("'", "’")):
        found = [unicodedata.normalize("NFC", word.form) for own in splitter(other) for word in own]
        assert [form.replace("’", "'") for form in found] == forms
    apart = "e\u0302\u0301a\u1100\u1161\u11a8\u1100\u1161"  # two accents; two syllables of Korean
    assert composed(apart) == ("ếa각가", [0, 0, 0, 1, 2, 2, 2, 3, 3])


BREAKS = (
    "\n",
    "\r\n",
    "\r",
    "\f",
    "\v",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\n\f",
    "\f\n",
    "\n> ",
    "\r\n> > ",
    "\n>> ",
)
BLANKS = [chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) not in "\u2029".join(BREAKS)]
MEANT = {
    " ": st.text(BLANKS, min_size=1, max_size=3),
    "\n": st.sampled_from(BREAKS),
    "\n\n": st.sampled_from(("\r\n\r\n", "\u2029", "\n \t\n", "\n>\n> ")),
}
AROUND = st.text([*BLANKS, "\ufeff", "\u200b", "\u2060"], max_size=2)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str, list[int]]:
    """A text, the same with other white space of the same meaning, and the place there of each character of the first."""
    plain, other, places = "", "", list[int]()
    for word in draw(
        st.lists(st.sampled_from("Il va au pré. Don't go! 20 000 ans (Ça) 5 % ?".split()), min_size=2, max_size=8)
    ):
        if plain:
            gap = draw(st.sampled_from(list(MEANT)))
            plain, places = plain + gap, places + [-1] * len(gap)
            quoted = (made := draw(MEANT[gap]))[-2:] == "> "
            other += (draw(AROUND) if gap != " " else "") + made + ("" if quoted else draw(AROUND))
        places += range(len(other), len(other) + len(word))
        plain, other = plain + word, other + word
    return plain, other, places


@pytest.mark.parametrize("name", ["english", "french", "rules"])
def test_white_space_of_any_kind_is_read_as_what_it_means(name: str, splitter: Splitter) -> None:
    split = {"english": load(ENGLISH).split, "french": splitter, "rules": sentences}[name]

    @settings(max_examples=150, deadline=None)
    @given(texts())
    def check(drawn: tuple[str, str, list[int]]) -> None:
        plain, other, places = drawn
        wanted = [[w._replace(start=places[w.start], end=places[w.end - 1] + 1) for w in own] for own in split(plain)]
        assert split(other) == wanted

    check()


def test_typing_errors_are_divided_only_where_they_are_no_word() -> None:
    rows = {"its": "1-2\tits|1\tit|2\ts", "dont": "1-2\tdont|1\tdo|2\tnt", "teams": "1-2\tteams|1\tteam|2\ts"}
    lines = [
        line.replace("\t_\t_\t_\t_\t1", "\t_\t_\t_\tTypo=Yes\t1")
        for text, row in rows.items()
        for line in conllu(text, row)
    ]
    lines = [*lines * 3, *conllu("its", "1\tits"), *conllu("its'", "1-2\tits'|1\tits|2\t'")]
    found = [one for one in raw_sentences(Line(k, line) for k, line in enumerate(lines, 1)) if one]
    learned = {(one.text, one.tokens[0].words) for one in without_typing_errors(found)}
    assert learned == {("its", ("its",)), ("dont", ("do", "nt")), ("teams", ("team", "s")), ("its'", ("its", "'"))}
    assert all(len(one.tokens[0].words) == 1 for one in without_typing_errors(found[:3]))


def test_what_treebanks_lack_is_inserted_with_its_words_and_ends() -> None:
    one = RawSentence("We go.", (Token(0, 2, ("We",)), Token(3, 5, ("go",)), Token(5, 6, (".",))), False, True)
    made = [MAKER["with_inserted"]([one], ["9·kg aa", "·[·9·]", "|No·."], random.Random(seed)) for seed in range(40)]
    texts = {re.sub(r"\d+", "9", written(own)[0]) for own in made}
    assert texts == {"9kg and We go.", "We 9kg and go.", "We go.[9]", "We go. No."}
    for own in (one for group in made for one in group):
        assert [w for t in own.tokens for w in t.words] == [own.text[t.start : t.end] for t in own.tokens]


def test_letters_of_an_unknown_script_stay_together() -> None:
    forms = [w.form for own in load(ENGLISH).split("привет мир, مرحبا สวัสดีครับ हिन्दी naïve 日本語") for w in own]
    assert forms == ["привет", "мир", ",", "مرحبا", "สวัสดีครับ", "हिन्दी", "naïve", "日本語"]


def test_pictures_and_characters_of_html_are_a_word_each(splitter: Splitter) -> None:
    text = "go😀😀👍🏽❤️❤️x &lt;i&gt;&#39;&quot; https://x.org/?a=1&amp;b=2"
    wanted = ["😀", "😀", "👍🏽", "❤️", "❤️", "&lt;", "&gt;", "&#39;", "&quot;", "https://x.org/?a=1&amp;b=2"]
    for split in (splitter, load(ENGLISH).split):
        assert [w.form for own in split(text) for w in own if not w.form.isascii() or "&" in w.form] == wanted
    assert Parser.load().ids.form("&amp;") == "&"
    ended = load(ENGLISH).split("See https://x.org/a. Mail me.")
    assert [[word.form for word in own] for own in ended] == [["See", "https://x.org/a", "."], ["Mail", "me", "."]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I loved it.<br /><br />The end was bad.", "I loved it . / The end was bad ."),
        ("<p>Hello <b>you</b>.</p><P>It is <i>un</i>like it.</P>", "Hello you . / It is unlike it ."),
        ("See <a href=\"http://x.org\" class='c'>it</a>, ok?<BR>Go<br>on <!-- a - b -->", "See it , ok ? / Go on"),
        ("<h1>One</h1><ul><li>two</li></ul>", "One / two"),
        ("<!DOCTYPE html><html><head><title>One</title></head><main><mark>two</mark></main></html>", "One / two"),
        ("It ends.<script async>if (a < b) go();</script><style>p { x: 1 }</style> Yes.", "It ends . / Yes ."),
        ("if a < b and b > a I <3 you", "if a < b and b > a I <3 you"),
        ("mail <me@x.org> or <unk>", "mail < me@x.org > or < unk >"),
    ],
)
def test_tags_of_html_are_no_words(text: str, wanted: str) -> None:
    found = load(ENGLISH).split(text)
    assert " / ".join(" ".join(word.form for word in own) for own in found) == wanted
    assert all(re.sub("<.*?>", "", text[w.start : w.end]) in (w.form, "") for own in found for w in own)
    if wanted.endswith("."):
        assert not spaced(found[-1], text[found[-1][0].start :])[-2]  # nothing but a tag before the full stop


def test_numbers_dates_and_names_of_files_are_words() -> None:
    """`_` stands where nothing is between two words."""
    text = (
        "#AI said (_#NLProc_)_: From 8,748 to 1,239,317.50 units on 1996-12-15_, so pay $_10,000 for report.tar.gz and B-a.csv_; a "
        "1,500_-_mile trip (_-_238,961_) at 00:50:39,339_."
    )
    found = load(ENGLISH).split(text.replace("_", ""))
    assert [word.form for own in found for word in own] == text.replace("_", " ").split()


def test_addresses_paths_and_braces_are_words() -> None:
    """`_` stands where nothing is between two words."""
    text = (
        r"run /usr/local/bin or ~/bin or ./run.sh or C:\temp or \\host\a and a/b.txt or x.org/a?b=1 or www.x.org/a?b=1 "
        "<_http://x.org_> git@x.org:me/x.git (_me@x.co.uk_) {_c_} $_{_x_} and TCP_/_IP stack"
    )
    found = load(ENGLISH).split(text.replace("_", ""))
    assert [word.form for own in found for word in own] == text.replace("_", " ").split()


@pytest.mark.parametrize("name", ["a/b.txt", "a.txt", "/usr/local/bin"])
def test_a_word_in_lower_case_after_a_path_begins_no_sentence(name: str) -> None:
    texts = [f"See {name} {rest}" for rest in ("for more information", "in the house", "but not this")]
    assert [len(load(ENGLISH).split(text)) for text in texts] == [1, 1, 1]


def test_a_saved_splitter_is_whole_or_refused(splitter: Splitter, tmp_path: Path) -> None:
    english = load(ENGLISH)
    folder = save(dataclasses.replace(english, split=splitter), tmp_path / "own", torch.float32)
    text = "Il va au pré. Don't go!"
    assert load(folder).split(text) == splitter(text)
    assert Parser.load(folder).parse(text)[0].tokens == "Il va à le pré .".split()
    about = json.loads((folder / ABOUT).read_text())
    change: list[Callable[[dict[str, Any]], Any]] = [
        lambda new: new.update(form=3),
        lambda new: new.update(form="x"),
        lambda new: new["split"].update(alphabet=["ab"]),
        lambda new: new["split"].update(alphabet=new["split"]["alphabet"][1:]),
        lambda new: new["split"].update(fused={"a": ["b", ""]}),
        lambda new: new["split"].update(fused={"a": ["b\n"]}),
        lambda new: new["split"].update(threshold=0),
        lambda new: new["split"]["config"].update(d=10**9),
        lambda new: new["split"]["config"].update(dilations=[10**6]),
        lambda new: new["split"]["config"].update(type="os:system"),
        lambda new: new["split"].pop("spaces"),
    ]
    for one in change:
        new = json.loads(json.dumps(about))
        one(new)
        (folder / ABOUT).write_text(json.dumps(new))
        with pytest.raises(ValueError, match="cannot be read"):
            load(folder)
    (folder / ABOUT).write_text(json.dumps(about))
    (folder / SPLITTER).write_bytes((folder / SPLITTER).read_bytes()[:-9])
    with pytest.raises(ValueError, match="cannot be read"):
        load(folder)
    (folder / SPLITTER).unlink()
    with pytest.raises(ValueError, match="cannot be read"):
        load(folder)
    rules = save(dataclasses.replace(english, split=sentences, lexicon=None), tmp_path / "rules")
    assert load(rules).split is sentences


def test_sentences_whose_text_is_not_that_of_their_tokens_are_left_out() -> None:
    (found,) = raw_sentences([Line(1, "# text = other"), Line(2, "\t".join(["1", "a", *["_"] * 8]))])
    assert found is None


def test_raw_text_is_scored_as_in_the_shared_tasks() -> None:
    rows = "1\tI|2-3\tdon't\tSpaceAfter=No|2\tdo|3\tn't|4\t."
    lines = conllu("I don't.", rows)
    (one,) = raw_sentences(Line(k, line) for k, line in enumerate(lines, 1))
    assert one and one.analysis[0] == ("_", 0, "_")
    gold = dataclasses.replace(one, analysis=(("A", 2, "nsubj:x"), ("B", 0, "root"), ("C", 2, "b"), ("D", 2, "c")))
    words = [Word("I", 0, 1), Word("do", 2, 7), Word("not", 2, 7, True), Word(".", 7, 8)]
    found = (words, (("A", 2, "nsubj:y"), ("X", 0, "root"), ("C", 2, "b"), ("D", 1, "c")))
    scores = f1([([(0, gold)], [found])], (*DIVISION, *ANALYSIS))
    assert scores == {"sentences": 100, "tokens": 100, "words": 75, "UPOS": 50, "UAS": 50, "LAS": 50}
    close = [Line(line.number, line.text.replace("text = ", "text =")) for line in map(Line, range(1, 9), lines)]
    assert list(raw_sentences(close)) == [one]


def test_abbreviations_before_numbers_seldom_end_sentences() -> None:
    split = Parser.load(ENGLISH).split
    short = "Op. No. no. Sec. Ch. Eq. p. pp. vol. Vol. v. Tab. Thm. Prop. App. Par. cf. Nov. Reg. Dir.".split()
    around = (("Under", "of the treaty, states may act."), ("See", "for more."))
    texts = [f"{begin} {word} 5 {end}" for word in short for begin, end in around]
    cut = [text for text in texts if len(split(text)) > 1]
    assert len(cut) <= len(texts) // 10, cut


def test_a_reference_ends_no_sentence_unless_it_is_its_end() -> None:
    split = load(ENGLISH).split
    one = (
        "See Art. 5 of it.",
        "In Chapter II. we see it.",
        "Op. 27 was played.",
        "Roe v. Wade was decided.",
        "Nos. 3 and 4 are lost.",
    )
    two = "It is in Chapter II. He read it twice.", "He cited Art. 5. The others did not."
    assert [len(list(split(text))) for text in (*one, *two)] == [1] * len(one) + [2] * len(two)


def test_references_are_inserted_with_their_words_and_end() -> None:
    one = next(
        raw_sentences(Line(k, line) for k, line in enumerate(conllu("We go.", "1\tWe|2\tgo\tSpaceAfter=No|3\t."), 1))
    )
    assert one
    found = {MAKER["referring"](one, ["Chapter"], random.Random(seed)).text for seed in range(40)}
    assert all(re.fullmatch(r"(Chapter \w+\. )?We (Chapter \w+\. )?go( Chapter \w+)?\.", text) for text in found)
    for seed in range(40):
        made = MAKER["referring"](one, ["Chapter"], random.Random(seed))
        assert "".join(made.text[t.start : t.end] for t in made.tokens) == made.text.replace(" ", "")
        assert [w for t in made.tokens for w in t.words] == [made.text[t.start : t.end] for t in made.tokens]


def test_marks_that_a_treebank_writes_apart_are_learned_as_in_print() -> None:
    def row(text: str) -> RawSentence:
        places = [(match.start(), match.end(), match[0]) for match in re.finditer(r"\S+", text)]
        return RawSentence(text, tuple(Token(start, end, (word,)) for start, end, word in places), True, True)

    one = row('he ( " I " ) said , 5 % .')
    assert (found := attached(one)).text == 'he ("I") said, 5%.'
    assert [found.text[token.start : token.end] for token in found.tokens] == one.text.split()
    texts = ("We go , you stay .", "Go ( now ) !", "You stay .", "No , go .")
    sentences = [row(text) for text in texts] * 40
    assert writes_marks_apart([sentences]) and not writes_marks_apart([[attached(one) for one in sentences]])
    about = SplitterTraining(epochs=12, rate=0.02, batch=512, model=SMALL)
    splitter = train_splitter([sentences], [sentences[:8]], about)
    for text in (*texts, *(attached(one).text for one in sentences[:4])):
        (words,) = splitter(text)
        assert [word.form for word in words] == re.findall(r"\w+|[^\w\s]", text)
