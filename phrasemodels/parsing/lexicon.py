"""Lemmas and morphological features of tagged words, by rules of suffixes learned from a treebank.

A value (features, or the change from a form to its lemma) depends on tags and on the form's longest known suffix. Exceptions are
listed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST = 6  # letters of a suffix
LONGEST_VALUE, JOINERS = 1000, "\u00ad\u200c\u200d"
KEEP, LOWER, WHOLE = "=", "<", "!"  # begin a change: of the form, of the form in lower case, or the lemma itself


@dataclass(frozen=True)
class SuffixRules:
    """forms, suffixes: numbers of values by "TAGS form" and "TAGS suffix", in lower case."""

    values: Sequence[str]
    forms: Mapping[str, int]
    suffixes: Mapping[str, int]

    @classmethod
    def learned(cls, seen: Iterable[tuple[str, str, str]]) -> "SuffixRules":
        """Return rules from (tags, form, value) of each word of a treebank. Values that no file may hold are left out."""
        of_form: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        of_suffix: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for tags, form, value in seen:
            if _is_safe(value):
                of_form[tags, form.lower()][value] += 1
        for (tags, own), counts in of_form.items():
            for size in range(min(LONGEST, len(own)) + 1):
                of_suffix[tags, own[len(own) - size :]].update(counts.keys())  # each form counts once
        values: dict[str, int] = {}
        suffixes: dict[str, int] = {}
        for (tags, suffix), counts in sorted(of_suffix.items(), key=lambda item: len(item[0][1])):
            best = values.setdefault(_best(counts), len(values))
            known = _longest(suffixes, tags, suffix[1:]) if suffix else None
            if known != best and (not suffix or counts.total() > 1):
                suffixes[f"{tags} {suffix}"] = best
        forms = {}
        for (tags, own), counts in of_form.items():
            best = values.setdefault(_best(counts), len(values))
            if _longest(suffixes, tags, own) != best:
                forms[f"{tags} {own}"] = best
        return cls(list(values), forms, suffixes)

    def value(self, tags: str, form: str) -> str | None:
        """Return the value of a form with these tags; None for unknown tags."""
        own = form.lower()
        found = self.forms.get(f"{tags} {own}")
        if found is None:
            found = _longest(self.suffixes, tags, own)
        return None if found is None else self.values[found]

    def described(self) -> dict[str, Any]:
        """Return the rules as JSON."""
        return {"values": list(self.values), "forms": dict(self.forms), "suffixes": dict(self.suffixes)}

    @classmethod
    def restored(cls, saved: Any) -> "SuffixRules":
        """Return rules of a file. ValueError: it has others than texts and numbers of values."""
        values, tables = saved["values"], (saved["forms"], saved["suffixes"])
        if not isinstance(values, list) or not all(isinstance(one, str) and _is_safe(one) for one in values):
            raise ValueError(f"lexicon: values is no list of texts on one line of {LONGEST_VALUE} characters at most")
        for table in tables:
            if not isinstance(table, dict) or not all(type(k) is int and 0 <= k < len(values) for k in table.values()):
                raise ValueError("lexicon: a number is none of a value")
        return cls(values, *tables)


def _is_safe(value: str) -> bool:
    """Whether a lemma or features forge no line and turn no direction. Joiners aren't printable, but are letters in Persian."""
    return len(value) <= LONGEST_VALUE and all(letter.isprintable() or letter in JOINERS for letter in value)


def _best(counts: Counter[str]) -> str:
    return min(counts, key=lambda value: (-counts[value], value))


def _longest(suffixes: Mapping[str, int], tags: str, form: str) -> int | None:
    for size in range(min(LONGEST, len(form)), -1, -1):
        if (found := suffixes.get(f"{tags} {form[len(form) - size :]}")) is not None:
            return found
    return None


def change(form: str, lemma: str) -> str:
    """Return the change from a form to its lemma: letters to cut at the end, and letters to add (went: whole)."""
    ways = ((LOWER, form.lower()), (KEEP, form))
    for mark, own in (
        ways if lemma == lemma.lower() else ways[::-1]
    ):  # The: the, at the beginning of a sentence as elsewhere
        same = next((k for k, (a, b) in enumerate(zip(own, lemma, strict=False)) if a != b), min(len(own), len(lemma)))
        if same and same >= len(own) - LONGEST:
            return f"{mark}{len(own) - same}{lemma[same:]}"
    return f"{WHOLE}{lemma}"


def changed(form: str, change: str) -> str:
    """Return the lemma of a form."""
    if change[:1] == WHOLE:
        return change[1:]
    own = form if change[:1] == KEEP else form.lower()
    cut = int(change[1:2]) if change[1:2].isdecimal() else 0
    return (own[: len(own) - cut] + change[2:]) or form


@dataclass(frozen=True)
class Lexicon:
    """Lemmas by universal tags, features by both tags."""

    lemmas: SuffixRules
    features: SuffixRules

    @classmethod
    def learned(cls, words: Iterable[tuple[str, str, str, str, str]]) -> "Lexicon":
        """Return a lexicon from (form, lemma, universal tag, tag, features) of each word of a treebank."""
        known = [word for word in words if word[1] != "_" or word[0] == "_"]
        lemmas = SuffixRules.learned((upos, form, change(form, lemma)) for form, lemma, upos, _, _ in known)
        features = SuffixRules.learned((f"{upos}/{tag}", form, own) for form, _, upos, tag, own in known)
        return cls(lemmas, features)

    def lemma(self, form: str, universal: str) -> str:
        """Return the lemma of a word, or the form if nothing is known."""
        found = self.lemmas.value(universal, form)
        return form if found is None else changed(form, found)

    def features_of(self, form: str, universal: str, tag: str) -> str:
        """Return the features of a word as in CoNLL-U; _ for none."""
        return self.features.value(f"{universal}/{tag or '_'}", form) or "_"
