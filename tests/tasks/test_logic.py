"""Matches of logical forms: each step of logic match with what it equates and what not, the stricter structure match, and kinds of
errors (paper 002, Table 6)."""

import pytest

from phrasemodels.tasks.metrics.logic_match import (
    MISSING,
    OTHER,
    PREDICATE,
    ROLE,
    error_kind,
    exact_match,
    logic_match,
    normalised,
    structure,
    structure_match,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("( f $0 )  ", " ( f $0 )", id="spaces around"),
        pytest.param("(f $0 )", "( f $0 )", id="a space after each opening bracket"),
        pytest.param("( f $0 ) ) )", "( f $0 )", id="surplus brackets"),
        pytest.param("( and ( a $0 ) ( b $0 )", "( and ( b $0 ) ( a $0 ) )", id="a missing bracket at the end"),
        pytest.param("( lambda $0 e ( f $0 ) )", "( lambda $0 ( f $0 ) )", id="the type after lambda"),
        pytest.param("( lambda $0 i ( f $0 ) )", "( lambda $0 e ( f $0 ) )", id="any type of one character"),
        pytest.param("( and ( a $0 ) ( b $0 ) )", "( and ( b $0 ) ( a $0 ) )", id="and"),
        pytest.param("( or ( a $0 ) ( b $0 ) )", "( or ( b $0 ) ( a $0 ) )", id="or"),
        pytest.param("( = ( f $0 ) x )", "( = x ( f $0 ) )", id="="),
        pytest.param("( next_to:t $0 s0 )", "( next_to:t s0 $0 )", id="next_to:t"),
        pytest.param("( exists $1 ( a $1 ) ( b $1 ) )", "( exists $1 ( b $1 ) ( a $1 ) )", id="exists"),
        pytest.param("( max $0 ( a $0 ) ( b $0 ) )", "( max $0 ( b $0 ) ( a $0 ) )", id="max"),
        pytest.param("( min $0 ( a $0 ) ( b $0 ) )", "( min $0 ( b $0 ) ( a $0 ) )", id="min"),
        pytest.param("( count $0 ( a $0 ) ( b $0 ) )", "( count $0 ( b $0 ) ( a $0 ) )", id="count"),
        pytest.param("( sum $0 ( a $0 ) ( b $0 ) )", "( sum $0 ( b $0 ) ( a $0 ) )", id="sum"),
        pytest.param("( and ( a $0 ) ( a $0 ) ( b $0 ) )", "( and ( b $0 ) ( a $0 ) )", id="duplicates of and"),
        pytest.param("( or ( a $0 ) ( a $0 ) ( b $0 ) )", "( or ( b $0 ) ( a $0 ) )", id="duplicates of or"),
        pytest.param(
            "( and ( x $0 ) ( or ( b $0 ) ( a $0 ) ) )", "( and ( or ( a $0 ) ( b $0 ) ) ( x $0 ) )", id="inner first"
        ),
        pytest.param("( lambda $3 e ( f $3 $7 ) )", "( lambda $0 e ( f $0 $1 ) )", id="names of variables"),
        pytest.param("( F $0 s0 )", "( f $0 S0 )", id="case"),
        pytest.param("( g ( ( f $0 ) ) )", "( g ( f $0 ) )", id="brackets around brackets inside"),
        pytest.param("( and and ( a $0 ) )", "( and ( a $0 ) )", id="and among its own arguments"),
        pytest.param("( f $0 ) ) e", "( f $0 )", id="what surplus leaves is read again"),
        pytest.param("( lambda $0 e e ( f $0 ) )", "( lambda $0 ( f $0 ) )", id="a type each time it is read"),
    ],
)
def test_logic_match_equates_forms_by_each_rule(one, other):
    assert logic_match(one, other)
    assert logic_match(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("( f $0 $1 )", "( f $1 $1 )", id="another variable"),
        pytest.param("( loc:t $0 s0 )", "( loc:t s0 $0 )", id="an operator that is not sorted"),
        pytest.param("( argmax $0 ( a $0 ) ( b $0 ) )", "( argmax $0 ( b $0 ) ( a $0 ) )", id="argmax"),
        pytest.param("( exist ?y ( a ?y ) ( b ?y ) )", "( exist ?y ( b ?y ) ( a ?y ) )", id="exist is not exists"),
        pytest.param("( lambda ?x ( f ?x ) )", "( lambda ?y ( f ?y ) )", id="?x is not renamed"),
        pytest.param("( lambda $0 int ( f $0 ) )", "( lambda $0 ( f $0 ) )", id="a type of three characters"),
        pytest.param("( = ( f $0 ) ( f $0 ) )", "( = ( f $0 ) )", id="= keeps duplicates"),
        pytest.param("( max $0 ( a $0 ) ( a $0 ) )", "( max $0 ( a $0 ) )", id="max keeps duplicates"),
        pytest.param("( exists $0 ( a $0 ) )", "( exists ( a $0 ) $0 )", id="the variable of exists stays first"),
        pytest.param("( ( and ( b $0 ) ( a $0 ) ) )", "( ( and ( a $0 ) ( b $0 ) ) )", id="inside one part, nothing"),
        pytest.param(  # sorted under the old names, (a $1) before (b $0), and only then renamed
            "( and ( f $0 $1 ) ( a $1 ) ( a $0 ) )",
            "( and ( f $1 $0 ) ( a $0 ) ( a $1 ) )",
            id="sorted before renaming",
        ),
        pytest.param("( f )", "( f) ", id="an operator without arguments cannot be written"),
        pytest.param("", "( f $0 )", id="nothing"),
        pytest.param("( f $0 )", "f $0", id="brackets around everything"),
    ],
)
def test_logic_match_distinguishes_forms_by_each_quirk(one, other):
    assert not logic_match(one, other)
    assert not logic_match(other, one)


def test_equal_strings_match_even_if_they_are_no_forms():
    assert exact_match("( f )", "( f ) ")
    assert logic_match("( f )", "( f ) "), "logic match adds to exact match"
    assert not exact_match("( F )", "( f )")


def test_normalisation_of_a_form():
    form = (
        "( lambda $2 e ( and ( to $2 ci1 ) ( flight $2 ) ( exists $5 ( and ( b $5 ) ( a $5 $2 ) ) ) ( to $2 ci1 ) ) )"
    )
    expected = "( lambda $0 ( and ( exists $1 ( and ( a $1 $0 ) ( b $1 ) ) ) ( flight $0 ) ( to $0 ci1 ) ) )"
    assert normalised(form) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("( lambda ?x ( f ?x ) )", "( lambda ?y ( f ?y ) )"),
        ("( lambda ?x exist ?y ( and ( f a ?y ) ( g ?y ?x ) ) )", "( lambda ?y exist ?x ( and ( g ?x ?y ) ( f a ?x ) ) )"),
        ("( and ( f $0 $1 ) ( a $1 ) ( a $0 ) )", "( and ( a $0 ) ( f $0 $1 ) ( a $1 ) )"),
        (
            "( lambda $0 e ( and ( exists $1 ( a $1 $0 ) ) ( exists $1 ( b $1 $0 ) ) ) )",
            "( lambda $3 e ( and ( exists $2 ( b $2 $3 ) ) ( exists $1 ( a $1 $3 ) ) ) )",
        ),
        ("( lambda $0 e ( lambda $0 e ( lambda $1 e ( f $0 $1 ) ) ) )", "( lambda $5 e ( lambda $6 e ( lambda $7 e ( f $6 $7 ) ) ) )"),
        ("( and ( a $0 ) ( a $0 ) )", "( and ( a $0 ) )"),
        ("( argmax $0 ( a $0 ) ( f $0 ) $1 )", "( argmax $2 ( a $2 ) ( f $2 ) $1 )"),
    ],
)  # fmt: skip
def test_structure_match_ignores_variable_names_and_order(one, other):
    assert structure_match(one, other)
    assert structure_match(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("( f $0 ) )", "( f $0 )"),
        ("( f ( a $0 )", "( f ( a $0 ) )"),
        ("( lambda $0 i ( f $0 ) )", "( lambda $0 e ( f $0 ) )"),
        ("( F $0 )", "( f $0 )"),
        ("( max $0 ( a $0 ) ( b $0 ) )", "( max $0 ( b $0 ) ( a $0 ) )"),
        ("( lambda $0 e ( lambda $1 e ( f $0 $1 ) ) )", "( lambda $0 e ( lambda $1 e ( f $1 $0 ) ) )"),
        ("( f $0 )", "( f $1 )"),
        ("( f ( ) )", "( f ( ) )"),
        ("", ""),
    ],
)
def test_structure_match_distinguishes_all_other_forms(one, other):
    assert not structure_match(one, other)


@pytest.mark.parametrize("deep", ["( " * 998 + "a", "(" * 1500 + "a", "( f " * 1500 + "a" + " )" * 1500])
def test_forms_that_are_too_deep_match_nothing_else(deep):
    for match in (logic_match, structure_match):
        assert not match(deep, "( f a )")
        assert not match("( f a )", deep)


def test_canonical_form_of_structure_match():
    assert structure("( lambda $4 e ( and ( b $4 ) ( a $4 ) ) )") == "( lambda #0 e ( and ( a #0 ) ( b #0 ) ) )"


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
