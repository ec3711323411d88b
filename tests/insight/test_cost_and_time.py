"""Cost and run time of each option of a plan: which are Pareto-optimal, and from what run times are known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_app.models import GpuType, Node
from cluster_app.services import drain
from insight_app.explain.cost_and_time import NOWHERE, UNKNOWN, CostAndTime, CostUnit, pareto_optimal
from insight_app.explain.dry_run import dry_run, dry_run_of_admitted
from jobs_app.submission.submit import admitted
from tests.service_lab import Lab

HOUR = 3600
SPEC = {"name": "net", "command": "true", "gpus": 1, "rates": {"a100": {1: 10, 2: 16, 4: 24}, "t4": {1: 4}}}
STEPS = 72_000
ELASTIC = {"gpus": {"min": 1, "max": 4}}


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """A T4 costs a fifth of an A100, and does two fifths of its work."""
    lab.node("a1", "a100", gpus=4)
    lab.node("t1", "t4", gpus=1)
    price("a100", 5)
    price("t4", 1)
    return lab


def price(gpu_type: str, per_hour: float) -> None:
    GpuType.objects.filter(name=gpu_type).update(price_per_hour=per_hour)


def found(lab: Lab, **spec: Any) -> CostAndTime:
    plan: CostAndTime = dry_run(SPEC | spec, owner=lab.user())["cost_and_time"]
    return plan


def seconds(of_plan: CostAndTime) -> dict[tuple[str, int], float]:
    return {(option.gpu_type, option.gpus): option.run_seconds for option in of_plan.options}


def test_of_points_that_another_dominates_none_is_pareto_optimal() -> None:
    points = [(1, 5), (2, 3), (2, 4), (3, 3), (4, 1), (5, 1)]
    assert pareto_optimal(points) == [True, True, False, False, True, False]


def test_equal_points_do_not_dominate_each_other() -> None:
    assert pareto_optimal([(1, 1), (1, 1), (2, 2)]) == [True, True, False]


def test_a_difference_of_rounding_makes_no_point_cheaper() -> None:
    assert pareto_optimal([(1, 0.3), (2, 0.1 * 3 - 1e-16)]) == [True, False]


def test_no_point_has_no_optimum() -> None:
    assert pareto_optimal([]) == []


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1))
def test_a_point_is_pareto_optimal_if_and_only_if_none_dominates_it(points: list[tuple[int, int]]) -> None:
    oracle = [not any((a <= x and b <= y) and (a, b) != (x, y) for a, b in points) for x, y in points]
    assert pareto_optimal(points) == oracle


def test_the_cost_is_that_of_all_gpus_at_the_price_of_their_type(cluster: Lab) -> None:
    told = found(cluster, total_steps=STEPS)
    assert (told.unit, told.note, told.why_none) == (CostUnit.PRICE, "", "")
    assert [(o.gpu_type, o.gpus, o.run_seconds, o.cost) for o in told.options] == [
        ("a100", 1, 2 * HOUR, 10.0),
        ("t4", 1, 5 * HOUR, 5.0),
    ]
    assert [(o.preferred, o.pareto_optimal) for o in told.options] == [(True, True), (False, True)]


def test_all_sizes_of_an_elastic_job_are_there_though_the_plan_lists_fewer(cluster: Lab) -> None:
    told = found(cluster, total_steps=STEPS, gpu_types=["a100"], **ELASTIC)
    assert [(o.gpus, o.preferred) for o in told.options] == [(4, True), (2, False), (1, False)]
    assert all(option.pareto_optimal for option in told.options)  # with every GPU the rate grows by less


def test_an_option_that_is_slower_and_dearer_is_not_pareto_optimal(cluster: Lab) -> None:
    price("t4", 5)
    assert [option.pareto_optimal for option in found(cluster, total_steps=STEPS).options] == [True, False]


def test_without_a_price_of_one_type_all_costs_are_gpu_hours(cluster: Lab) -> None:
    price("t4", 0)
    told = found(cluster, total_steps=STEPS)
    assert (told.unit, [option.cost for option in told.options]) == (CostUnit.GPU_HOURS, [2.0, 5.0])
    assert told.note == "The cost is in GPU-hours, because no price per hour is set for T4."


def test_run_times_of_a_job_without_steps_are_estimated_from_jobs_that_ended(cluster: Lab) -> None:
    """Their durations are those on the average GPU: of five, four do 10 steps/s and one 4."""
    cluster.succeeded("net", *[2 * HOUR] * 12)
    average = (4 * 10 + 4) / 5
    told = found(cluster)
    assert told.note == "Run times are estimated from 12 similar jobs of ada."
    expected = {("a100", 1): 2 * HOUR * average / 10, ("t4", 1): 2 * HOUR * average / 4}
    assert seconds(told) == pytest.approx(expected, rel=1e-3)


def test_steps_that_the_job_states_count_more_than_jobs_that_ended(cluster: Lab) -> None:
    cluster.succeeded("net", 9 * HOUR)
    told = found(cluster, total_steps=STEPS)
    assert (told.note, seconds(told)["a100", 1]) == ("", 2 * HOUR)


def test_without_steps_and_history_there_are_no_options_but_a_reason(cluster: Lab) -> None:
    told = found(cluster)
    assert (list(told.options), told.why_none) == ([], UNKNOWN)


def test_how_long_a_few_jobs_of_other_teams_took_is_not_told(cluster: Lab) -> None:
    cluster.succeeded("net", 500, owner=cluster.user("eve", "language"), team="language")
    assert found(cluster).why_none == UNKNOWN


def test_a_job_that_runs_nowhere_has_no_cost(cluster: Lab) -> None:
    asked = admitted(SPEC | {"gpu_types": ["t4"], "total_steps": STEPS}, cluster.user(), administrator=False)
    drain(Node.objects.get(name="t1"), reason="fan", actor=None)
    assert dry_run_of_admitted(asked)["cost_and_time"].why_none == NOWHERE
