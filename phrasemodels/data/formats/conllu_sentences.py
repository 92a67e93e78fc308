"""CoNLL-U as it was read, with other analyses: what a parser does not predict is kept."""

from collections.abc import Iterable, Iterator, Sequence

from phrasemodels.data.formats.conllu import HEAD, RELATION, TAG, UNIVERSAL
from phrasemodels.data.formats.lines import Line

DEPENDENCIES = 8  # the column of enhanced dependencies


def conllu_sentences(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each sentence, without the empty lines between them."""
    own: list[Line] = []
    for line in lines:
        if line.text.strip():
            own.append(line)
        elif own:
            yield own
            own = []
    if own:
        yield own


def analysed_again(
    lines: Sequence[Line], columns: dict[int, Sequence[object]], comments: dict[str, str] | None = None
) -> str:
    """Return the lines of a sentence with other columns (place of a column -> a value for each of its n words).

    Comments, forms, lemmas, features, MISC and lines of multiword tokens stay. Enhanced dependencies and empty nodes (1.1),
    which belong to the tree that is replaced, are left out. comments: more of them, before the words, in place of those of the same name.
    """
    replaced = tuple(f"# {name} = " for name in comments or ())
    made = [line.text for line in lines if line.text.startswith("#") and not line.text.startswith(replaced)]
    made += [f"# {name} = {value}" for name, value in (comments or {}).items()]
    word = 0
    for line in lines:
        fields = line.text.split("\t")
        if line.text.startswith("#") or "." in fields[0]:
            continue
        if "-" not in fields[0]:
            for place, values in columns.items():
                fields[place] = str(values[word]) if values else "_"
            word += 1
        fields[DEPENDENCIES] = "_"
        made.append("\t".join(fields))
    return "\n".join(made) + "\n"


def predicted(
    tags: Sequence[str], universal: Sequence[str], heads: Sequence[int], relations: Sequence[str]
) -> dict[int, Sequence[object]]:
    """Return the columns that a parser predicts; tags that it does not know stay as they were."""
    known: dict[int, Sequence[object]] = {TAG: tags, UNIVERSAL: universal}
    return {place: values for place, values in known.items() if values} | {HEAD: heads, RELATION: relations}
