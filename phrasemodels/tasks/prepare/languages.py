"""The languages of a corpus and their tokeniser, as its manifest says them, checked before anything runs."""

from phrasemodels.tasks.prepare.tokenise import Detokenise, Tokeniser, detokenise_moses, join, moses_lower, spaces

UNSPACED = ("ja", "zh", "yue", "th", "lo", "km", "my")  # written without spaces between words


def letters_or_words(text: str, language: str) -> list[str]:
    """Return the characters of a language without spaces between words, and the Moses tokens of any other."""
    return list("".join(text.split())) if language in UNSPACED else moses_lower(text, language)


def joined_letters_or_words(tokens: list[str], language: str) -> str:
    """Return running text of `letters_or_words`."""
    return "".join(tokens) if language in UNSPACED else detokenise_moses(tokens, language)


# By the names that a manifest may give (data/download/manifest.py: Languages).
TOKENISERS: dict[str, tuple[Tokeniser, Detokenise]] = {
    "moses": (moses_lower, detokenise_moses),
    "spaces": (spaces, join),
    "characters": (letters_or_words, joined_letters_or_words),
}


def check_language(tokeniser: Tokeniser, language: str, corpus: str) -> None:
    """ValueError: the tokeniser has no rules for the language; it would take those of another one."""
    if tokeniser not in (moses_lower, letters_or_words):
        return
    from sacremoses.corpus import NonbreakingPrefixes

    if language in UNSPACED:
        if tokeniser is moses_lower:
            raise ValueError(
                f"{corpus}: {language!r} has no spaces between words, which Moses needs; {_how('characters')}"
            )
    elif language not in NonbreakingPrefixes().available_langs:
        raise ValueError(
            f"{corpus}: Moses has no rules for {language!r}; {_how('spaces')}, for text that is divided already"
        )


def _how(tokeniser: str) -> str:
    return f'write `tokeniser = "{tokeniser}"` into [languages] of its manifest'
