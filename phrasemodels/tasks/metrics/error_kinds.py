"""Kinds of errors in logical forms: the three of paper 002's Table 6, which the authors told apart by hand, by rule."""

from collections import Counter

from phrasemodels.tasks.metrics.logic_match import BINDERS

ROLE, MISSING, PREDICATE, OTHER = "role of an entity", "component missing", "name of a predicate", "other"
KINDS = (ROLE, MISSING, PREDICATE, OTHER)
LOGIC = BINDERS | {"and", "or", "not", "="}


def error_kind(wrong: str, gold: str) -> str:
    """Return the kind of error of a form that differs from the gold one.

    PREDICATE: it has a predicate that the gold form lacks. MISSING: it lacks a gold predicate and has no other. ROLE: it
    has the gold predicates, with other entities. OTHER: the rest, such as brackets, variables, operators, or a repeated
    predicate.
    """
    (ours, our_facts), (theirs, their_facts) = _read(wrong), _read(gold)
    if ours.keys() - theirs.keys():
        return PREDICATE
    if theirs - ours:
        return MISSING
    return ROLE if ours == theirs and our_facts != their_facts else OTHER


def _read(form: str) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return the counts of predicates, and of entities with the predicate in whose bracket they stand."""
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
        # what is neither a variable nor, behind one, its type is an entity
        elif token[0] not in "$?" and not (open_brackets[-1] in BINDERS and before[0] in "$?"):
            facts[open_brackets[-1], token] += 1
        before = token
    return +predicates, facts
