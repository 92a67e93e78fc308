"""Equality of logical forms (exact, logic and structure match) and kinds of errors.

Logic match is published. Structure match is ours and stricter. Logic match is the measure of Dong and Lapata (2018) as
paper 002 uses it (section 3.5 of the specification names its steps). Published numbers rest on its quirks. So the
quirks are kept. It sorts arguments before it renames variables. So it is not quite invariant to their names. It knows
neither `?x` nor other spellings of operators. The kinds of errors are those of paper 002's Table 6. A rule tells them
apart here. The authors did so by hand.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

ARGUMENTS_FROM = {
    **dict.fromkeys(("and", "or", "=", "next_to:t"), 1),
    **dict.fromkeys(("exists", "min", "max", "count", "sum"), 2),  # the variable stays first
}
WITHOUT_DUPLICATES = ("and", "or")


@dataclass
class Form:
    """A sequence of tokens and forms, with brackets around it or without."""

    parts: "list[Form | str]"
    bracketed: bool

    def tokens(self) -> list[str]:
        """Return the form as tokens. ValueError: brackets around fewer than two tokens."""
        inside = [token for part in self.parts for token in ([part] if isinstance(part, str) else part.tokens())]
        if not self.bracketed:
            return inside
        if len(inside) < 2:
            raise ValueError(f"( {' '.join(inside)} ): an operator needs an argument")
        return ["(", *inside, ")"]

    def __str__(self) -> str:
        return " ".join(self.tokens())


def exact_match(hypothesis: str, reference: str) -> bool:
    """Return whether two lines are equal, apart from spaces around them."""
    return hypothesis.strip() == reference.strip()


def logic_match(hypothesis: str, reference: str) -> bool:
    """Return whether two forms are equal as they are or normalised. An unreadable or too deep form matches only itself."""
    if exact_match(hypothesis, reference):
        return True
    try:
        return normalised(hypothesis) == normalised(reference)
    except (ValueError, IndexError, RecursionError):
        return False


def normalised(text: str) -> str:
    """Return the string for logic match.

    As in the published code, the form is written and read again before and after. This cuts off more surplus brackets, and both of
    `e e` after `lambda $0`.
    """
    form = ordered(read(str(read(text))))
    return str(read(" ".join(renamed(form.tokens())))).lower()


def read(text: str) -> Form:
    """Read a form. Each `)` is a token. Surplus `)` are cut off the end, missing ones are added there."""
    return _read(text.replace("(", "( ").split())


def _read(tokens: list[str]) -> Form:
    surplus = tokens.count(")") - tokens.count("(")
    if 0 < surplus < len(tokens):
        tokens = tokens[:-surplus]
    bracketed = tokens[0] == "(" and tokens[-1] == ")"
    if bracketed:
        tokens = tokens[1:-1]
    parts: list[Form | str] = []
    i = 0
    while i < len(tokens):
        if tokens[i] == "(":
            end = _end(tokens, i)
            parts.append(Form(_read(tokens[i + 1 : end]).parts, True))
            i = end + 1
        else:
            if not _is_type(tokens, i):
                parts.append(tokens[i])
            i += 1
    return Form(parts, bracketed)


def _end(tokens: list[str], begin: int) -> int:
    """Return the index of the bracket closing the one at `begin`, or the number of tokens."""
    depth = 0
    for i in range(begin, len(tokens)):
        depth += (tokens[i] == "(") - (tokens[i] == ")")
        if depth == 0:
            return i
    return len(tokens)


def _is_type(tokens: list[str], i: int) -> bool:
    """Return whether token i is the type of a variable: the `e` of `lambda $0 e`."""
    return i >= 2 and len(tokens[i]) == 1 and tokens[i - 1].startswith("$") and tokens[i - 2] == "lambda"


def ordered(form: Form) -> Form:
    """Return the form with sorted arguments of commutative operators and/or without duplicates.

    Inner forms come first. A duplicate may be the operator itself, for example an `and` among its own arguments. A form
    of one part stays as it is.
    """
    if len(form.parts) < 2:
        return form
    parts = [part if isinstance(part, str) else ordered(part) for part in form.parts]
    operator = parts[0] if isinstance(parts[0], str) else ""
    first = ARGUMENTS_FROM.get(operator)
    if first is not None:
        parts = parts[:first] + sorted(parts[first:], key=str)
    if operator in WITHOUT_DUPLICATES:
        parts = list({str(part): part for part in parts}.values())
    return Form(parts, form.bracketed)


def renamed(tokens: Iterable[str]) -> list[str]:
    """Return the tokens with variables named $0, $1, ... in order of appearance. A variable begins with $."""
    names: dict[str, str] = {}
    return [names.setdefault(token, f"${len(names)}") if token.startswith("$") else token for token in tokens]


BINDERS = frozenset("lambda exists exist argmax argmin max min count sum the".split())
COMMUTATIVE = frozenset(("and", "or", "=", "next_to:t"))


def structure_match(hypothesis: str, reference: str) -> bool:
    """Return whether two well-formed forms are equal but for names of bound variables and the order of commuting arguments.

    Of and/or their repetition is ignored, too. A too deep form matches nothing.
    """
    try:
        return structure(hypothesis) == structure(reference)
    except (ValueError, RecursionError):
        return False


def structure(text: str) -> str:
    """Return the canonical form for `structure_match`. ValueError: unbalanced brackets.

    A variable is bound from the operator before it to the end of its bracket. Its name becomes the number of variables bound around
    it. This number does not depend on the order of arguments.
    """
    return _structure(_strict(text.replace("(", " ( ").replace(")", " ) ").split()), {}, 0)


def _strict(tokens: list[str]) -> Form:
    """Read a form with balanced, non-empty brackets. ValueError: any other form."""
    open_forms = [Form([], False)]
    for token in tokens:
        if token == "(":
            open_forms.append(Form([], True))
        elif token == ")":
            closed = open_forms.pop()
            if not open_forms or not closed.parts:
                raise ValueError(f"{' '.join(tokens)}: a bracket closes nothing; remove it")
            open_forms[-1].parts.append(closed)
        else:
            open_forms[-1].parts.append(token)
    if len(open_forms) > 1 or not tokens:
        raise ValueError(f"{' '.join(tokens)}: a bracket is not closed; close it")
    return open_forms[0]


def _structure(form: Form, bound: Mapping[str, str], depth: int) -> str:
    found: list[str] = []
    for i, part in enumerate(form.parts):
        if not isinstance(part, str):
            found.append(_structure(part, bound, depth))
            continue
        if i and part[0] in "$?" and found[i - 1] in BINDERS:
            bound, depth = {**bound, part: f"#{depth}"}, depth + 1
        found.append(bound.get(part, part))
    operator, arguments = found[0], found[1:]
    if operator in COMMUTATIVE:
        arguments = sorted(set(arguments) if operator in WITHOUT_DUPLICATES else arguments)
    inside = " ".join([operator, *arguments])
    return f"( {inside} )" if form.bracketed else inside


Match = Callable[[str, str], bool]
MATCHES: Mapping[str, Match] = {"exact": exact_match, "logic": logic_match, "structure": structure_match}


ROLE, MISSING, PREDICATE, OTHER = "role of an entity", "component missing", "name of a predicate", "other"
KINDS = (ROLE, MISSING, PREDICATE, OTHER)
LOGIC = BINDERS | {"and", "or", "not", "="}


def error_kind(wrong: str, gold: str) -> str:
    """Return the kind of error of a wrong form.

    PREDICATE: it has a predicate outside of the gold form. MISSING: it lacks a gold predicate and has no other. ROLE:
    it has the gold predicates with other entities. OTHER: the rest, for example brackets, variables, operators or a
    repeated predicate.
    """
    (ours, our_facts), (theirs, their_facts) = _parsed_form(wrong), _parsed_form(gold)
    if ours.keys() - theirs.keys():
        return PREDICATE
    if theirs - ours:
        return MISSING
    return ROLE if ours == theirs and our_facts != their_facts else OTHER


def _parsed_form(form: str) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return the counts of predicates, and of entities with the predicate of their bracket."""
    predicates: Counter[str] = Counter()
    facts: Counter[tuple[str, str]] = Counter()
    open_brackets, before = [""], ""
    for token in form.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            open_brackets.append("")
        elif token == ")":
            open_brackets = open_brackets[:-1] or [""]
        elif before == "(":
            open_brackets[-1] = token
            predicates[token] += token not in LOGIC
        # what is neither a variable nor, after one, its type is an entity
        elif token[0] not in "$?" and not (open_brackets[-1] in BINDERS and before[0] in "$?"):
            facts[open_brackets[-1], token] += 1
        before = token
    return +predicates, facts
