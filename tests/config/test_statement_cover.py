"""Tests that `make test` runs on PostgreSQL: the list is a greedy cover of statements, and its tests exist."""

from tests.statement_cover import greedy_cover, normalised
from tests.suite_names import names_of
from tests.tiers import SLOW, TESTS, statement_cover, statement_known


def test_statements_of_the_same_code_are_one():
    lists = "SELECT id FROM t WHERE id IN (%s, %s, %s) LIMIT 21", "SELECT id FROM t WHERE id IN (%s) LIMIT 3"
    rows = "INSERT INTO t (a, b) VALUES (%s, %s), (%s, %s)", "INSERT INTO t (a, b) VALUES (%s, %s)"
    case = "UPDATE t SET a = CASE WHEN (id = %s) THEN %s WHEN (id = %s) THEN %s ELSE NULL END"
    for one, other in (lists, rows, (case, "UPDATE t SET a = CASE WHEN (id = %s) THEN %s ELSE NULL END")):
        assert normalised(one) == normalised(other)
    assert normalised("SELECT a FROM t") != normalised("SELECT b FROM t")


def test_the_cover_takes_what_adds_most_and_leaves_what_adds_nothing():
    sent = {"a": frozenset("xy"), "b": frozenset("yz"), "c": frozenset("z"), "d": frozenset("xyzw")}
    assert greedy_cover(sent) == ["d"]
    assert greedy_cover({name: sent[name] for name in "abc"}) == ["a", "b"]
    assert greedy_cover(sent, anyway=frozenset("wz")) == ["a"]


def test_the_names_of_the_list_exist_and_are_quick():
    """By their functions: `python -m tests.statement_cover` writes the list anew."""
    gone = [
        name for name in statement_cover() if (parts := name.split("[")[0].split("::"))[-1] not in names_of(parts[0])
    ]
    assert gone == []
    assert [name for name in statement_cover() if name.startswith(SLOW)] == []
    assert all((TESTS / name.split("::")[0]).exists() for name in statement_cover())


def test_what_is_chosen_was_known():
    assert {name.split("[")[0] for name in statement_cover()} <= statement_known()
