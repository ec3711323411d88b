"""Stages of a workflow are corrected by the ratio of those that have ended."""

import tracemalloc

import pytest

from estimation.durations import Basis, DurationEstimate
from estimation.estimate import Estimate
from estimation.scaling import Source
from estimation.stages import MOST_LEVELS, MOST_RATIO, MOST_STAGES, EndedStage, stage_ratios

CHAIN = {"second": frozenset({"first"}), "third": frozenset({"second"})}


def test_one_stage_that_took_four_times_as_long_makes_the_next_twice_as_long() -> None:
    (ratio,) = stage_ratios({"second": frozenset({"first"})}, {"first": EndedStage(100, False, 400)}).values()
    history = DurationEstimate(Estimate(50, 0.5, Source.SIMILAR, 7), Basis.SIMILAR)
    assert ratio.corrected(history) == (Estimate(100, 0.5, Source.SIMILAR, 1), Basis.STAGES)


def test_what_history_expected_of_a_stage_is_its_forecast_without_its_own_correction() -> None:
    """The second was expected to take 50, forecast as 100, and took 200: both took four times what history says."""
    ended = {"first": EndedStage(100, False, 400), "second": EndedStage(100, True, 200)}
    assert stage_ratios(CHAIN, ended)["third"].ratio == pytest.approx(4 ** (2 / 3))


def test_stages_count_by_their_gpu_time_and_each_once() -> None:
    """The two in the middle start after the same one, and were forecast with its ratio, 1."""
    parents = {"last": frozenset({"a", "b"}), "a": frozenset({"root"}), "b": frozenset({"root"})}
    ended = {"root": EndedStage(100, False, 100), "a": EndedStage(300, True, 600), "b": EndedStage(100, True, 50)}
    found = stage_ratios(parents, ended)["last"]
    assert (found.ratio, found.stages) == (pytest.approx(1.5 ** (3 / 4)), 3)


def test_a_ratio_is_four_at_most() -> None:
    assert stage_ratios(CHAIN, {"first": EndedStage(1, False, 1000)})["second"].ratio == MOST_RATIO


def test_of_stages_without_a_forecast_nothing_is_learned() -> None:
    assert stage_ratios(CHAIN, {}) == {}


@pytest.mark.parametrize("order", [("second", "third"), ("third", "second")])
def test_the_order_of_the_jobs_does_not_matter(order: tuple[str, str]) -> None:
    ended = {"first": EndedStage(100, False, 400), "second": EndedStage(100, True, 200)}
    assert stage_ratios({job: CHAIN[job] for job in order}, ended)["third"].ratio == pytest.approx(4 ** (2 / 3))


def chain(jobs: int) -> dict[int, frozenset[int]]:
    """Each starts after the one before; the last comes first, as a query may give them."""
    return {job: frozenset({job - 1}) for job in range(jobs, 0, -1)}


@pytest.mark.parametrize("ended", [{}, {job: EndedStage(100, False, 200) for job in range(4_000)}])
def test_a_long_chain_costs_memory_by_its_length_alone(ended: dict[int, EndedStage]) -> None:
    tracemalloc.start()
    found = stage_ratios(chain(5_000), ended)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert len(found) == (3_999 + MOST_LEVELS if ended else 0)


def test_of_many_stages_the_nearest_count() -> None:
    parents = {"join": frozenset(range(1_000)), "last": frozenset({"join", -1})}
    ended = {job: EndedStage(100, False, 200) for job in [*range(1_000), -1]}
    found = stage_ratios(parents, ended)
    assert found["join"].stages == found["last"].stages == MOST_STAGES
