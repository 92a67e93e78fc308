"""What is wrong with a logical form, in the three kinds of paper 002's Table 6, by rule and not by eye."""

from collections import Counter

from phrasemodels.tasks.metrics.logic_match import BINDERS

ROLE, MISSING, PREDICATE, OTHER = "role of an entity", "component missing", "name of a predicate", "other"
KINDS = (ROLE, MISSING, PREDICATE, OTHER)
LOGIC = BINDERS | {"and", "or", "not", "="}


def error_kind(wrong: str, gold: str) -> str:
    """The kind of error of a form that is not the gold one.

    Missing: it has some of the gold predicates and no other. Predicate: it has one that the gold form has not. Role:
    its predicates are the gold ones, but their entities are not. Other: brackets, variables, operators, or a predicate
    too often.
    """
    (ours, our_facts), (theirs, their_facts) = _read(wrong), _read(gold)
    if ours.keys() - theirs.keys():
        return PREDICATE
    if theirs - ours:
        return MISSING
    return ROLE if ours == theirs and our_facts != their_facts else OTHER


def _read(form: str) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """How often each predicate occurs; and each entity under the predicate in whose bracket it stands."""
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
        elif token[0] not in "$?" and not (
            open_brackets[-1] in BINDERS and before[0] in "$?"
        ):  # else a variable, its type
            facts[open_brackets[-1], token] += 1
        before = token
    return +predicates, facts
