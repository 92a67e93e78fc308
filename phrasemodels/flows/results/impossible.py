"""Printed numbers that cannot be what the paper says they are, each with its arithmetic.

What is known of the papers is data here; phrasemodels/verdicts/printed.py has the arithmetic. No published value is changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phrasemodels.verdicts.printed import (
    base_of,
    exchanged,
    least_whole,
    no_mean,
    no_product,
    no_share,
    no_sum,
    no_total,
    product_outside,
)

Line = Mapping[str, Any]  # a printed number: columns of data/published_results.csv, with `printed` and `exact`


@dataclass(frozen=True)
class TestSet:
    """The questions or sentences of a test or dev set, and where their number is from."""

    paper: str
    datasets: tuple[str, ...]
    split: str
    n: int
    source: str


# Percentages of these sets are shares k of n. Not among them: MR, CR, SUBJ and MPQA, whose accuracies are means over ten
# folds; sets of tokens or brackets; facts of bAbI, which are means over ten starts.
TEST_SETS = (
    TestSet("001", ("TREC",), "test", 500, "TREC's test set"),
    TestSet("001", ("MRPC",), "test", 1725, "MRPC's test set"),
    TestSet("001", ("SICK-E",), "test", 4927, "SICK's test set"),
    TestSet("001", ("SST2",), "test", 1821, "SST-2's test set"),
    TestSet("001", ("SNLI",), "test", 9824, "section 3.2"),
    TestSet("002", ("Geo",), "test", 280, "Table 1"),
    TestSet("002", ("Atis",), "dev", 491, "Table 1"),
    TestSet("002", ("Atis",), "test", 448, "Table 1"),
    TestSet("002", ("MSParS (BPE6k)",), "dev", 9000, "Table 1"),
    TestSet("002", ("MSParS (BPE6k)", "MSParS"), "test", 9000, "Table 1"),
    TestSet("003", ("SNLI",), "test", 9824, "SNLI's test set"),
)
SHARES = ("accuracy", "exact match", "logic match", "denotation match")
LITERATURE = "literature"  # the variant of a row that a paper repeats from others
# all its scores are; the paper does not say so
COPIED = {("001", "BiLSTM-Max"): "the row is that of Conneau et al. (2017)"}


def not_a_share(line: Line, lines: Sequence[Line]) -> str:
    """Say why an accuracy is no share of its test or dev set. Means over runs, which have a deviation, may be any number, and
    rows that are repeated from others may be of other questions."""
    known = [t for t in TEST_SETS if t.paper == line["paper"] and line["dataset"] in t.datasets]
    sets = [t for t in known if t.split == line["split"]]
    if not sets or line["metric"] not in SHARES or line["stdev"] or line["variant"] == LITERATURE:
        return ""
    said, copied = no_share(line["printed"], sets[0].n), COPIED.get((line["paper"], line["system"]))
    but = f"; {copied}" if copied else ""
    said = said.replace(f" of {sets[0].n}:", f" of {sets[0].n} ({sets[0].source}):", 1)
    return said and f"{said}; a mean over runs could be, which the paper does not say of it{but}"


AVERAGE = " AVERAGE"  # so ends the data set of a row that is an average
SAME_ROW = ("paper", "system", "metric")  # of the slides and of the full paper, which alone lists tasks 7 and 8 of bAbI


def tasks_of(line: Line, lines: Sequence[Line]) -> list[Line]:
    """Return the lines that an average is of; none for other lines."""
    if not line["dataset"].endswith(AVERAGE):
        return []
    prefix = line["dataset"].removesuffix(AVERAGE)
    row = [o for o in lines if all(o[name] == line[name] for name in SAME_ROW)]
    return [o for o in row if o["dataset"].startswith(prefix) and not o["dataset"].endswith(AVERAGE)]


def not_a_mean(line: Line, lines: Sequence[Line]) -> str:
    """Say why an average differs from the mean of its tasks, all of which are printed."""
    tasks = tasks_of(line, lines)
    said = no_mean(line["printed"], [task["printed"] for task in tasks]) if tasks else ""
    return said and f"{said}; one of the {len(tasks) + 1} numbers at least is wrong"


@dataclass(frozen=True)
class Misprint:
    """A printed count of a public corpus that the corpus contradicts; why: what else speaks for a misprint."""

    paper: str
    dataset: str
    printed: str
    why: str


MISPRINTS = (
    Misprint("000", "Multi30k (WMT16 multimodal)", "10", "every release of the corpus has 1,014 dev sentences"),
    Misprint("002", "Atis", "3434", "the corpus has 4,434, so one digit is wrong"),
)


def misprinted(line: Line, lines: Sequence[Line]) -> str:
    """Say why a count is a misprint, once it has been counted."""
    if not _is_counted(line) or line["verdict"] == "reproduced":
        return ""
    for known in MISPRINTS:
        if (line["paper"], line["dataset"], line["printed"]) == (known.paper, known.dataset, known.printed):
            return f"a misprint: {line['reason']}; {known.why}"
    return ""


@dataclass(frozen=True)
class Exchange:
    """Two cells of one column, of two data sets, that may stand in each other's place."""

    paper: str
    table: str
    metric: str
    datasets: tuple[str, str]


EXCHANGES = (
    Exchange("002", "Table 1", "src_vocab_size", ("Geo", "Atis")),
    Exchange("002", "Table 1", "src_avg_length", ("Geo", "Atis")),
)


def in_anothers_place(line: Line, lines: Sequence[Line]) -> str:
    """Say that a number stands where another one belongs, once both have been counted."""
    for pair in EXCHANGES:
        same = {
            o["dataset"]: o
            for o in lines
            if (o["paper"], o["table"], o["metric"]) == (pair.paper, pair.table, pair.metric) and _is_counted(o)
        }
        one, other = (same.get(dataset) for dataset in pair.datasets)
        if one and other and line in (one, other):
            said = exchanged((one["printed"], other["printed"]), (one["ours"], other["ours"]))
            counts = [f"{dataset} has {round(same[dataset]['ours'], 2):g}" for dataset in pair.datasets]
            return said and f"{said}; {', '.join(counts)}: both are wrong"
    return ""


def _is_counted(line: Line) -> bool:
    return bool(line["exact"]) and line["verdict"] in ("reproduced", "higher", "lower")


@dataclass(frozen=True)
class LayerSums:
    """Numbers of one column that are a base and as many steps as layers are named. layers: by the variant of the row.
    step: what a layer adds, in the unit of the column."""

    paper: str
    table: str
    metric: str
    step: float
    layers: Mapping[str, int]


# Section 3.1 of paper 002: BiLSTMs of 64 to 64 (66,560 parameters), one for each of the three sizes of n-grams of a layer.
LAYER_SUMS = (
    LayerSums(
        "002", "Table 4", "parameters", 3 * 66_560 / 1e6,
        {"layers=[1]": 1, "layers=[1 - 2]": 2, "layers=[1 - 3]": 3, "layers=[1 - 6]": 6, "layers=[3-6]": 4},
    ),
)  # fmt: skip


def not_the_layers(line: Line, lines: Sequence[Line]) -> str:
    """Say why a number cannot belong to so many layers, by the other numbers of its column."""
    for sums in LAYER_SUMS:
        found = {
            o["variant"]: o["printed"]
            for o in lines
            if (o["paper"], o["table"], o["metric"]) == (sums.paper, sums.table, sums.metric)
        }
        if found.get(line["variant"]) != line["printed"] or line["metric"] != sums.metric:
            continue
        others = {sums.layers[v]: text for v, text in found.items() if v != line["variant"] and v in sums.layers}
        try:
            base, slack = base_of(others, sums.step)
        except ValueError:  # one of the others is wrong
            continue
        return no_sum(line["printed"], sums.step, base, sums.layers[line["variant"]], slack)
    return ""


# Table 1 of paper 001. Phrases a sentence × words a phrase are the words of a sentence, on every level. CORPUS_WORDS: of a
# sentence of the corpus, mean: between spaces, and with every mark apart. Parsers join no words, and divide them at marks;
# in seven rows every product lies between the two. SST-2 is not here: the paper counts phrases of its trees.
PHRASES, OF_PHRASE = "phrases_per_sentence", "words_per_phrase"
CORPUS_WORDS = {
    "MR": (21.02, 22.94), "CR": (20.09, 20.74), "MPQA": (3.08, 3.12), "SUBJ": (24.06, 25.73), "SST5": (19.17, 20.64),
    "TREC": (9.98, 10.53), "SICK-E": (9.62, 9.71), "SICK-R": (9.62, 9.71), "STS14": (9.13, 10.72), "MRPC": (18.92, 23.51),
}  # fmt: skip


def too_many_words(line: Line, lines: Sequence[Line]) -> str:
    """Say why phrases a sentence × words a phrase are more words than parsers, as far as known, make of a sentence."""
    said = not_the_words(line, lines)
    if not said or line["dataset"] not in CORPUS_WORDS:
        return ""
    phrases, words = _phrases_and_words(line, lines)[line["variant"]]
    return said if float(phrases) * float(words) > CORPUS_WORDS[line["dataset"]][1] else ""


LEVEL_SHIFT = 1.06  # a mean over sentences in place of one over phrases moves the product of a level by 2 to 6 %


def levels_differ(line: Line, lines: Sequence[Line]) -> str:
    """Say why the levels of one corpus cannot be of the same sentences, whatever the phrases and words are means of."""
    if line["metric"] not in (PHRASES, OF_PHRASE):
        return ""
    pairs = _phrases_and_words(line, lines)
    if not all(all(pair) for pair in pairs.values()):
        return ""
    products = sorted(float(one) * float(other) for one, other in pairs.values())
    said = no_product(list(pairs.values())) if products[-1] > LEVEL_SHIFT * products[0] else ""
    return (
        said
        and f"{said}: words a sentence do not depend on the level, so one of the {2 * len(pairs)} numbers at least is wrong"
    )


def not_the_words(line: Line, lines: Sequence[Line]) -> str:
    """Say why phrases a sentence and words a phrase of one level cannot both be, by the corpus, or by the other levels where
    the words of the corpus are not known."""
    if line["metric"] not in (PHRASES, OF_PHRASE):
        return ""
    pairs = _phrases_and_words(line, lines)
    if not all(all(pair) for pair in pairs.values()):
        return ""
    if bounds := CORPUS_WORDS.get(line["dataset"]):
        said = product_outside(*pairs[line["variant"]], *bounds)
        has = f"{line['dataset']} has {bounds[0]:.2f}, or {bounds[1]:.2f} with every mark apart"
        return said and f"{said} words a sentence, but {has}: one of the two numbers at least is wrong"
    said = no_product(list(pairs.values()))
    return (
        said
        and f"{said}: words a sentence do not depend on the level, so one of the {2 * len(pairs)} numbers at least is wrong"
    )


def _phrases_and_words(line: Line, lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Return what is printed of phrases a sentence and words a phrase, by level, of the data set of a line; empty if a level
    lacks one."""
    levels: dict[str, dict[str, str]] = {}
    for other in lines:
        same = all(other[name] == line[name] for name in ("paper", "table", "dataset"))
        if same and other["metric"] in (PHRASES, OF_PHRASE):
            levels.setdefault(other["variant"], {})[other["metric"]] = other["printed"]
    return {variant: (found.get(PHRASES, ""), found.get(OF_PHRASE, "")) for variant, found in levels.items()}


@dataclass(frozen=True)
class Whole:
    """Percentages of one whole, all of which are printed. most: it has at most so many parts, which `source` lists."""

    paper: str
    metric: str
    most: int
    source: str


WHOLES = (Whole("002", "share_of_errors", 55, "errors of the Transformer on Atis (Table 3: 87.7 % of 448 are right)"),)


def not_one_whole(line: Line, lines: Sequence[Line]) -> str:
    """Say why percentages of one whole cannot come from its parts, even if parts may count twice."""
    for whole in WHOLES:
        if (line["paper"], line["metric"]) == (whole.paper, whole.metric):
            shares = [o["printed"] for o in lines if (o["paper"], o["metric"]) == (whole.paper, whole.metric)]
            said = no_total("100.0", [1.0] * len(shares), shares)
            # parts of two kinds, which count twice, would not do it
            if said and (n := least_whole(shares)) > whole.most:
                of = f"the least number of which all are shares is {n}, and there are {whole.most} {whole.source}"
                odd = [share for share in shares if no_share(share, whole.most)]
                suspect = (
                    f"; {odd[0]} is suspect, the only one that is no share of {whole.most}" if len(odd) == 1 else ""
                )
                return f"{said}; {of}: one of the {len(shares)} numbers at least is wrong{suspect}"
    return ""


CONTRADICTION, SUSPECT = "contradiction", "suspect"  # proved; or it holds if what its reason assumes is so
EXCHANGED = f"{CONTRADICTION}: exchanged with another number"
KINDS = {
    f"{CONTRADICTION}: levels of unlike words a sentence": levels_differ,
    f"{SUSPECT}: phrases × words are more words than a sentence has, unless its parser splits more": too_many_words,
    f"{CONTRADICTION}: phrases × words are not the words of a sentence": not_the_words,
    f"{SUSPECT}: no share of its test or dev set, unless it is a mean over runs": not_a_share,
    f"{CONTRADICTION}: not the mean of its rows": not_a_mean,
    EXCHANGED: in_anothers_place,
    f"{CONTRADICTION}: parameters of other layers": not_the_layers,
    f"{CONTRADICTION}: shares that are more than the whole": not_one_whole,
    f"{CONTRADICTION}: a misprint of a count": misprinted,
}


def impossible(lines: Sequence[Line]) -> Iterator[tuple[int, str, str]]:
    """Yield the places of lines whose printed number cannot be, with the kind of finding and its arithmetic."""
    for place, line in enumerate(lines):
        for kind, check in KINDS.items():
            if said := check(line, lines):
                yield place, kind, said
                break


def least_wrong(lines: Iterable[Line]) -> tuple[int, int]:
    """Return how many numbers are contradicted, and how many of these at least must be wrong: one of each group with the same
    arithmetic, and both of two that were exchanged."""
    groups: dict[str, list[str]] = {}
    for line in lines:
        if line["kind"].startswith(CONTRADICTION):
            groups.setdefault(line["reason"], []).append(line["kind"])
    return sum(map(len, groups.values())), sum(len(kinds) if EXCHANGED in kinds else 1 for kinds in groups.values())
