"""The plan over time: its interior-point method against HiGHS, examples to check by hand, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.columns import InvalidProblem
from allocation.plan.plain_program import plain_program
from allocation.plan.program import HOUR_S, PlanProgram, doubling_intervals
from allocation.plan.reduction import undominated
from allocation.plan.solution import solve_plan
from allocation.time_budget import TimeBudget
from tests.hypothesis_examples import examples

GAP = 0.01
DUST = 1e-7
GIVEN_BACK = 1e-5
"""Part of all work that may be late: it was planned in an interval or on a type that has nothing (`LEAST_PART`)."""
HOURLY_S = HOUR_S * np.arange(1, 9)


def drawn(seed: int) -> PlanProgram:
    """A program of up to 12 rows: some rates are 0 or equal, some types have no GPUs in some or all intervals."""
    rng = np.random.default_rng(seed)
    m, n, T = rng.integers(1, 13), rng.integers(1, 4), rng.integers(1, 9)
    sizes = np.array([1, 2, 3, 4, 8])[: rng.integers(1, 6)]
    usage = np.kron(sizes, np.eye(n, dtype=int))
    if n > 1 and rng.random() < 0.3:
        usage = np.column_stack([usage, np.ones(n, dtype=int)])  # a mixed gang
    rate = (
        rng.choice([1.0, 2.0, 3.0], (m, usage.shape[1]))
        if rng.random() < 0.3
        else rng.uniform(0.1, 9, (m, usage.shape[1]))
    )
    rate = rate * usage.sum(axis=0) ** rng.uniform(0, 1.2)
    rate *= rng.random(rate.shape) < rng.choice([0.2, 0.7, 1.0])
    capacity = rng.integers(0, 9, (n, T)) * (rng.random((n, T)) < rng.choice([0.5, 1.0]))
    ends_s = np.cumsum(10 ** rng.uniform(1, 4, T))
    weight = 10.0 ** rng.uniform(-2, 2, m) if rng.random() < 0.5 else 1.0
    cost_h = np.cumsum(rng.choice([0.0, 0.1, 1.0], (m, T)), axis=1) if rng.random() < 0.4 else None
    late_h = None if cost_h is None else cost_h[:, -1] + rng.choice([0.1, 10])
    return PlanProgram.of(
        rate,
        usage,
        capacity,
        ends_s,
        steps=10 ** rng.uniform(0, 5, m),
        weight=weight,
        release_s=rng.choice([0.0, 1.0]) * rng.uniform(0, ends_s[-1] * 1.1, m),
        cost_h=cost_h,
        late_h=late_h,
        count=rng.integers(1, 4, m),
        probability=rng.choice([0.25, 1.0], m),
    )


@pytest.mark.more_examples
@examples(2000)
@given(st.integers(0, 2**32 - 1))
def test_bound_optimum_and_value_are_in_this_order_within_the_gap(seed):
    program = drawn(seed)
    plan, optimum = solve_plan(program, gap=GAP), -plain_program(program).value
    tolerance = 1e-5 * optimum + 1e-7 * program.late_h.max()
    assert plan.bound <= optimum + tolerance
    assert plan.value >= optimum - tolerance
    given_back = GIVEN_BACK * float(program.count @ program.late_h)
    assert plan.value - plan.bound <= GAP * plan.value + max(tolerance, given_back)


@pytest.mark.more_examples
@examples(300)
@given(st.integers(0, 2**32 - 1))
def test_a_plan_is_feasible(seed):
    program = drawn(seed)
    plan = solve_plan(program, gap=GAP)
    done = np.einsum("ikt,ik->i", plan.seconds, program.rate / program.steps[:, None])
    assert plan.seconds.min(initial=0) >= 0
    assert done + plan.late == pytest.approx(1)
    assert (plan.seconds.sum(axis=1) <= program.length_s + 1e-6 * program.interval_s).all()
    assert (plan.load <= program.capacity + 1e-6).all()
    assert (plan.seconds[program.rate == 0] == 0).all()
    assert (plan.prices >= 0).all()


@pytest.mark.more_examples
@examples(300)
@given(st.integers(0, 2**32 - 1))
def test_capacity_that_is_left_has_no_price(seed):
    """Complementary slackness: the value of all spare capacity at the prices is within the gap."""
    program = drawn(seed)
    plan = solve_plan(program, gap=GAP)
    spare_gpu_h = (program.capacity - plan.load) * program.interval_s / HOUR_S
    assert (plan.prices * spare_gpu_h).sum() <= GAP * plan.value + DUST


@pytest.mark.more_examples
@examples(300)
@given(st.integers(0, 2**32 - 1))
def test_configurations_that_are_dominated_change_no_optimum(seed):
    program = drawn(seed)
    reduced = replace(program, rate=np.where(undominated(program), program.rate, 0))
    assert plain_program(reduced).value == pytest.approx(plain_program(program).value, rel=1e-6, abs=1e-9)


def test_one_job_runs_at_once_at_its_best():
    """10,800 steps at 2 steps/s on two GPUs take an hour and a half: two thirds by 0.5 h, a third by 1.25 h."""
    plan = solve_plan(PlanProgram.of([[1, 2]], [[1, 2]], [2], HOURLY_S, steps=[10_800]), gap=1e-6)
    assert plan.value == pytest.approx(2 / 3 * 0.5 + 1 / 3 * 1.5, rel=1e-5)
    assert (plan.start_s, plan.end_s) == (pytest.approx([0], abs=1), pytest.approx([1.5 * HOUR_S], rel=1e-3))
    assert plan.load[0, :3] == pytest.approx([2, 1, 0], abs=1e-3)


def test_where_all_jobs_fit_at_once_no_gpu_has_a_price_and_the_plan_is_exact():
    roomy, crowded = (
        PlanProgram.of([[2, 3], [1, 0]], [[1, 2]], [gpus], HOURLY_S, steps=[21_600, 7200]) for gpus in (3, 2)
    )
    plan = solve_plan(roomy)
    assert (plan.iterations, plan.prices.max()) == (0, 0)
    assert plan.value == pytest.approx(-plain_program(roomy).value, rel=1e-9) == plan.bound
    assert solve_plan(crowded, gap=1e-6).prices.max() > 0


def test_the_short_job_is_planned_first():
    """One GPU, a job of an hour and one of two: the short one in the first hour, the long one after it."""
    plan = solve_plan(PlanProgram.of([[1], [1]], [[1]], [1], HOURLY_S, steps=[7200, 3600]), gap=1e-6)
    assert plan.end_s == pytest.approx([3 * HOUR_S, HOUR_S], rel=1e-3)
    assert plan.value == pytest.approx(0.5 + (1.5 + 2.5) / 2, rel=1e-5)


def test_a_price_is_what_a_gpu_hour_saves():
    """A GPU-hour more in the first hour takes half of a job of two hours from its last one: (2.5 - 0.5) / 2 hours."""
    of_first = [solve_plan(_two_on_one(first=more), gap=1e-7) for more in (1.0, 1.01)]
    saved = (of_first[0].value - of_first[1].value) / 0.01
    assert of_first[0].prices[0, 0] >= saved - 1e-3
    assert of_first[0].prices[0, 2:].max() <= of_first[0].prices[0, 0]


def _two_on_one(first: float) -> PlanProgram:
    capacity = np.array([[first, *np.ones(7)]])
    return PlanProgram.of([[1], [1]], [[1]], capacity, HOURLY_S, steps=[7200, 3600])


def test_prices_fall_to_nothing_where_the_queue_is_empty():
    plan = solve_plan(PlanProgram.of(np.ones((4, 1)), [[1]], [1], HOURLY_S, steps=np.full(4, 3600)), gap=1e-6)
    assert (np.diff(plan.prices[0]) <= 1e-6).all()
    assert plan.prices[0, 4:] == pytest.approx(0, abs=1e-4)
    assert plan.prices[0, 0] > 1


def test_identical_jobs_are_one_row_with_their_number():
    alone = PlanProgram.of(np.ones((3, 1)), [[1]], [2], HOURLY_S, steps=[3600, 3600, 3600])
    as_one = PlanProgram.of([[1]], [[1]], [2], HOURLY_S, steps=[3600], count=[3])
    assert solve_plan(as_one, gap=1e-6).value == pytest.approx(solve_plan(alone, gap=1e-6).value, rel=1e-5)


def test_a_job_that_can_run_nowhere_is_late_and_the_others_are_planned():
    program = PlanProgram.of([[1], [0]], [[1]], [1], HOURLY_S, steps=[3600, 3600])
    plan = solve_plan(program)
    assert plan.late == pytest.approx([0, 1], abs=1e-2)
    assert plan.end_s[0] < np.inf == plan.end_s[1]
    assert plan.cost_to_go[1] * 3600 == program.late_h[1]


def test_a_gang_of_more_gpus_than_there_are_is_late():
    plan = solve_plan(PlanProgram.of([[1]], [[4]], [3], HOURLY_S, steps=[60]))
    assert (plan.late, plan.start_s, plan.value) == ([1], [np.inf], pytest.approx(16))


def test_work_waits_for_its_release_and_for_capacity():
    capacity = [[0, 0, 0, 1, 1, 1, 1, 1]]
    plan = solve_plan(
        PlanProgram.of([[1], [1]], [[1]], capacity, HOURLY_S, steps=[3600, 3600], release_s=[0, 5 * HOUR_S])
    )
    assert plan.seconds[0, 0, :3].sum() <= 1
    assert plan.seconds[1, 0, :5].sum() <= 1
    assert plan.start_s == pytest.approx([3 * HOUR_S, 5 * HOUR_S], rel=0.02)


def test_a_deadline_comes_before_a_shorter_job():
    """The long job is late after two hours, at a cost of ten: it goes first."""
    deadline_h = np.where(HOURLY_S <= 2 * HOUR_S, 0.0, 10.0)
    cost_h = [deadline_h, HOURLY_S / HOUR_S]
    plan = solve_plan(
        PlanProgram.of([[1], [1]], [[1]], [1], HOURLY_S, steps=[7200, 3600], cost_h=cost_h, late_h=20), gap=1e-6
    )
    assert plan.end_s == pytest.approx([2 * HOUR_S, 3 * HOUR_S], rel=1e-3)


def test_a_short_horizon_leaves_work_late():
    plan = solve_plan(PlanProgram.of([[1]], [[1]], [1], [HOUR_S], steps=[7200]), gap=1e-6)
    assert plan.late == pytest.approx([0.5], rel=1e-4)
    assert plan.end_s == [np.inf]


def test_without_jobs_or_capacity_there_is_a_plan():
    empty = solve_plan(PlanProgram.of(np.zeros((0, 1)), [[1]], [1], HOURLY_S, steps=[]))
    assert (empty.value, empty.bound, empty.gap) == (0, 0, 0)
    none = solve_plan(PlanProgram.of([[1]], [[1]], [0], HOURLY_S, steps=[1]))
    assert (none.late, none.gap) == ([1], 0)


def test_work_that_costs_nothing_has_a_plan():
    plan = solve_plan(PlanProgram.of([[1]], [[1]], [1], HOURLY_S, steps=[60], cost_h=np.zeros(8), late_h=1))
    assert plan.value == pytest.approx(0, abs=1e-6)
    assert plan.bound == pytest.approx(0, abs=1e-6)


def test_when_the_time_is_over_the_plan_is_feasible_and_says_its_gap():
    program = drawn(5)
    plan = solve_plan(program, gap=1e-6, budget=TimeBudget.after(0))
    optimum = -plain_program(program).value
    assert plan.iterations == 0
    assert plan.bound <= optimum <= plan.value
    assert plan.gap > 1e-6


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"ends_s": [2, 1]}, "ends_s, row 1: is not after the one before"),
        ({"steps": [0]}, "steps, row 0: must be positive"),
        ({"capacity": [[1, -1]]}, "capacity, row 0: must not be less than 0"),
        ({"cost_h": [5, 6], "late_h": 4}, "cost_h, row 0: costs more than to be late"),
        ({"count": [0]}, "count, row 0: must not be less than 1"),
        ({"length_s": [[1, 2, 3]]}, "cost_h"),
        ({"rate": [[np.nan]]}, "rate, row 0: is not a number"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns, reason):
    given_columns = {"rate": [[1]], "usage": [[1]], "capacity": [[1, 1]], "ends_s": [1, 2], "steps": [1]} | columns
    with pytest.raises((InvalidProblem, ValueError), match=reason):
        PlanProgram.of(**given_columns)


def test_intervals_double():
    assert doubling_intervals(60, 1000).tolist() == [60, 120, 240, 480, 960, 1920]
