"""Each test runs in `make test` or in what `make test-all` adds, on every database that could change its outcome."""

from itertools import product

from tests.tiers import Kind, Tier, runs

KINDS = [Kind(*flags) for flags in product([False, True], repeat=len(Kind._fields))]
ON = {"SQLite": False, "PostgreSQL": True}


def places(kind: Kind, tier: Tier) -> set[str]:
    return {name for name, on_postgresql in ON.items() if runs(kind, tier, on_postgresql=on_postgresql)}


def test_both_tiers_together_run_everything() -> None:
    for kind in KINDS:
        wanted = {"PostgreSQL"} if kind.database and kind.slow else {*ON} if kind.database else {"SQLite"}
        assert places(kind, Tier.TEST) | places(kind, Tier.DEEP) == wanted, kind
        assert kind.draws or not places(kind, Tier.TEST) & places(kind, Tier.DEEP), kind


def test_the_fast_tier_is_a_part_of_make_test() -> None:
    for kind in KINDS:
        assert places(kind, Tier.FAST) <= places(kind, Tier.TEST) & {"SQLite"}, kind
        assert not (places(kind, Tier.FAST) and (kind.slow or kind.thorough)), kind


def test_what_is_drawn_is_drawn_again_with_all_examples() -> None:
    assert places(Kind(draws=True), Tier.DEEP) == {"SQLite"}
    assert places(Kind(draws=True, slow=True, database=True), Tier.DEEP) == {"PostgreSQL"}
