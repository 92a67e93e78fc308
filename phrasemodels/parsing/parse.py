"""A parse of a sentence, and a parse as text: brackets, CoNLL-U, JSON, a tree of NLTK."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phrasemodels.data.formats.conllu import sentence_to_conllu
from phrasemodels.data.formats.conllu_sentences import analysed_again, predicted
from phrasemodels.data.formats.lines import Line
from phrasemodels.data.formats.trees import Tree, brackets
from phrasemodels.parsing.words import INSIDE, Word, spaced

NO_SPACE = "SpaceAfter=No"


@dataclass(frozen=True)
class Parse:
    """A parse of n tokens; what was not decoded is empty: tree, or heads (n) from 1 with 0 for the root and relations (n).

    tags: Penn tags. universal: tags of Universal Dependencies, if the parser knows them. text: the sentence as written;
    words: its tokens with their places in the text that was given; both are empty for words that were given as such. note:
    what was done otherwise than asked, for example for a long sentence.
    """

    tokens: list[str]
    tags: list[str]
    tree: Tree | None
    heads: list[int]
    relations: list[str]
    universal: Sequence[str] = ()
    text: str = ""
    words: Sequence[Word] = ()
    note: str = ""

    @property
    def brackets(self) -> str:
        """The tree in Penn brackets on one line, or an empty string."""
        return brackets(self.tree) if self.tree else ""

    def __str__(self) -> str:
        """The tree in brackets, or CoNLL-U for heads alone."""
        return self.brackets or self.conllu().rstrip("\n")

    def conllu(self, sent_id: str = "", read: Sequence[Line] = ()) -> str:
        """Return CoNLL-U without the empty line that ends a sentence: sent_id, the text without soft hyphens and word
        joiners, SpaceAfter=No, UPOS and XPOS.

        read: the lines of CoNLL-U that the words come from. All that the parser does not predict is then as it was there.
        """
        if not self.tokens:
            return ""
        if read:
            columns = predicted(self.tags, self.universal, self.heads, self.relations)
            return analysed_again(read, columns, {"note": self.note} if self.note else {})
        comments = {
            "sent_id": sent_id,
            "text": _one_line(INSIDE.sub("", self.text)) or " ".join(self.tokens),
            "note": self.note,
        }
        misc = ["_" if space else NO_SPACE for space in spaced(self.words)] if self.words else ()
        lines = sentence_to_conllu(self.tokens, self.tags, self.universal, self.heads, self.relations, misc)
        return "".join(f"# {name} = {value}\n" for name, value in comments.items() if value) + lines

    def json(self) -> str:
        """Return a JSON object on one line."""
        values: dict[str, Any] = {"tokens": self.tokens, "tags": self.tags, "tree": self.brackets}
        values |= {"heads": self.heads, "relations": self.relations}
        if self.universal:
            values["universal"] = list(self.universal)
        if self.words:
            values |= {"text": self.text, "offsets": [[word.start, word.end] for word in self.words]}
        if self.note:
            values["note"] = self.note
        return json.dumps(values, ensure_ascii=False)

    def nltk(self) -> Any:
        """Return the tree as nltk.Tree. ImportError: nltk is not installed. ValueError: there is no tree."""
        from nltk import Tree as NltkTree

        if self.tree is None:
            raise ValueError("this parse has no phrases: decode jointly or phrases alone")
        return NltkTree.fromstring(self.brackets)


def _one_line(text: str) -> str:
    return " ".join(text.split())
