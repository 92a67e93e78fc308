"""Kinds of errors: the rows of paper 002's Table 6, and forms of no kind."""

import pytest

from phrasemodels.tasks.metrics.logic_match import MISSING, OTHER, PREDICATE, ROLE, error_kind

GOLD = "( lambda $0 e ( and ( flight $0 ) ( from $0 ci1 ) ( to $0 ci2 ) ( stop $0 ci0 ) ) )"


@pytest.mark.parametrize(
    ("wrong", "gold", "kind"),
    [
        ("( lambda $0 e ( and ( flight $0 ) ( from $0 ci1 ) ( to $0 ci0 ) ( stop $0 ci2 ) ) )", GOLD, ROLE),
        (
            "( argmin $0 ( and ( flight $0 ) ( month $0 mn0 ) ) ( fare $0 ) )",
            "( argmin $0 ( and ( flight $0 ) ( month $0 mn0 ) ( round_trip $0 ) ) ( fare $0 ) )",
            MISSING,
        ),
        (
            "( lambda $0 e ( and ( airport $0 ) ( airline $0 al0 ) ) )",
            "( lambda $0 e ( and ( airport $0 ) ( services al0 $0 ) ) )",
            PREDICATE,
        ),
        ("( lambda $0 e ( and ( flight $0 ) ( from $0 ci1 ) ( to $0 ci2 ) ( stop $0 ci0 ) ) ) )", GOLD, OTHER),
        (GOLD.replace("( stop $0 ci0 )", "( stop $0 ci0 ) ( stop $0 ci0 )"), GOLD, OTHER),
        ("", GOLD, MISSING),
        (") ) flight", GOLD, MISSING),
    ],
)
def test_error_kinds_of_known_forms(wrong, gold, kind):
    assert error_kind(wrong, gold) == kind
