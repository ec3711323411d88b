"""Each test runs in one part of `make test-all`, on every database that could change its outcome."""

from itertools import product

from tests.tiers import Kind, Tier, runs

KINDS = [Kind(*flags) for flags in product([False, True], repeat=len(Kind._fields))]
ON = {"SQLite": False, "PostgreSQL": True}


def places(kind: Kind, tier: Tier) -> set[str]:
    return {name for name, on_postgresql in ON.items() if runs(kind, tier, on_postgresql=on_postgresql)}


def test_all_tiers_together_run_everything() -> None:
    for kind in KINDS:
        wanted = {"PostgreSQL"} if kind.database and kind.slow else {*ON} if kind.database else {"SQLite"}
        tiers = [places(kind, tier) for tier in (Tier.TEST, Tier.DEEP, Tier.REPEATS)]
        assert set[str]().union(*tiers) == wanted, kind
        assert kind.draws or sum(map(len, tiers)) == len(wanted), kind


def test_the_fast_tier_is_a_part_of_make_test() -> None:
    for kind in KINDS:
        assert places(kind, Tier.FAST) <= places(kind, Tier.TEST) & {"SQLite"}, kind
        assert not (places(kind, Tier.FAST) and (kind.slow or kind.thorough)), kind


def test_what_is_drawn_is_drawn_again_with_all_examples() -> None:
    assert places(Kind(draws=True), Tier.DEEP) == {"SQLite"}
    assert places(Kind(draws=True, slow=True, database=True), Tier.DEEP) == {"PostgreSQL"}


def test_of_quick_tests_those_that_are_new_to_the_cover_run_on_postgresql_before_anything_lands() -> None:
    assert places(Kind(database=True), Tier.DEEP) == {"PostgreSQL"}
    assert places(Kind(database=True, known=True), Tier.DEEP) == set()
    assert places(Kind(database=True, known=True), Tier.REPEATS) == {"PostgreSQL"}
    for kind in KINDS:
        assert not (places(kind, Tier.REPEATS) and (kind.slow or kind.thorough or kind.covers or kind.draws)), kind
