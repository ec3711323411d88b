"""The policy that decides by a plan: examples to check by hand, and all choices tried on small instances."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given

from allocation.decision import Status
from allocation.plan.costs_to_go import find_costs_to_go
from allocation.policies.motley import motley
from allocation.problem import Problem, isolated_rate
from tests.allocation.allocation_cases import clusters
from tests.allocation.set_clock import set_clock
from tests.hypothesis_examples import examples

HOUR_S = 3600.0
HORIZON_S = 900.0


class Formula:
    """The sum that the policy is to make largest, written down once more."""

    def __init__(self, problem):
        self.problem = problem
        best = problem.rate.max(axis=1)
        unsaid_s = problem.attained_gpu_s / problem.base_gpus + HORIZON_S
        self.left_s = np.where(np.isfinite(problem.remaining_steps), problem.remaining_steps / best, unsaid_s).clip(1)
        steps = self.left_s * best
        moves_s = np.where(np.arange(len(problem.nodes)) == problem.held[:, None], 0, problem.restart_s[:, None])
        rate = problem.rate * steps[:, None] / (steps[:, None] + problem.rate * moves_s)
        of_all = {"steps": steps, "weight": problem.job_weight, "lateness": 2}
        self.a = HOUR_S * find_costs_to_go(rate, problem.usage, problem.capacity, **of_all).alpha

    def value(self, assignment):
        """That of an assignment; -inf for what is forbidden."""
        problem, total = self.problem, 0.0
        for i, k in enumerate(assignment):
            if problem.locked[i] and k != problem.held[i]:
                return -np.inf
            total += self._of_job(i, k) if k >= 0 else 0
        used = sum((problem.usage[:, k] for k in assignment if k >= 0), np.zeros(len(problem.capacity)))
        return total if (used <= problem.capacity).all() else -np.inf

    def _of_job(self, i, k):
        problem, rate, held = self.problem, self.problem.rate[i], self.problem.held[i]
        if k != held and rate[k] == 0:
            return -np.inf
        restart_s = 0 if k == held else problem.restart_s[i] * (2 if held >= 0 else 1)
        alone_s = self.left_s[i] * rate.max() / rate[k] if rate[k] else np.inf
        unchanged_s = np.where(problem.held >= 0, problem.held_s, problem.age_s).min()
        done = 1 - min(restart_s / min(max(HORIZON_S, unchanged_s), restart_s + alone_s), 1)
        spared = min(problem.restart_s[i] / min(HORIZON_S, problem.restart_s[i] + self.left_s[i]), 1)
        value = self.a[i] * (rate[k] * done + (spared * rate.max() if held >= 0 else 0))
        work = problem.base_gpus[i] * rate[k] / problem.base_rate[i] * done
        return value + 2 * float((self.a * problem.rate.max(axis=1)).mean()) * self._lateness(i) * work

    def _lateness(self, i):
        problem = self.problem
        parts = [len(problem.age_s), sum(problem.age_s >= problem.age_s[i])]
        alone = [isolated_rate(problem.base_gpus, problem.base_rate, problem.capacity, some)[i] for some in parts]
        of_all, of_as_old = (problem.isolated_s[i] + self.left_s[i] * problem.rate[i].max() / one for one in alone)
        whole_s = min(of_all, max(of_as_old, HOUR_S))
        return max(problem.age_s[i] - 4 * whole_s, 0) / max(whole_s, HOUR_S)


@examples(60)
@given(clusters(max_jobs=4, busy=True))
def test_no_choice_of_all_is_better(cluster):
    problem = cluster.problem
    assume(len(problem.nodes) ** len(problem.weight) <= 3000 and not problem.team_backlog_s.any())
    formula = Formula(problem)
    choices = product(range(-1, len(problem.nodes)), repeat=len(problem.weight))
    best = max(formula.value(assignment) for assignment in choices)
    decision = motley(problem, gap=0, patience=0, lease_growth=0)
    assert formula.value(decision.assignment) == pytest.approx(decision.objective, rel=1e-6)
    assert decision.objective == pytest.approx(best, rel=1e-6)


def elastic(m=1, **columns):
    """Jobs that are 1.9 and 3.6 times as fast on two and four of the cluster's four GPUs."""
    return Problem.of(np.tile([1, 1.9, 3.6], (m, 1)), [[1, 2, 4]], [4], **{"remaining_steps": [1e5] * m} | columns)


def test_a_job_alone_has_its_best_size_and_gives_way_to_others():
    assert motley(elastic()).assignment.tolist() == [2]
    crowd = elastic(4, held=[2, -1, -1, -1], restart_s=[60] * 4)
    assert motley(crowd).assignment.tolist() == [0, 0, 0, 0]


def test_the_job_with_less_left_runs_first():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], remaining_steps=[7200, 3600])
    assert motley(problem).assignment.tolist() == [-1, 0]
    assert motley(problem.subset([1, 0])).assignment.tolist() == [0, -1]


def test_a_job_that_is_as_fast_on_the_slow_gpu_leaves_the_fast_one_to_the_other():
    problem = Problem.of([[4.0, 1.0], [1.0, 1.0]], np.eye(2), [1, 1], remaining_steps=[3600, 600])
    assert motley(problem).assignment.tolist() == [0, 1]


def test_a_weight_counts_as_so_many_jobs():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], remaining_steps=[3600, 7200], job_weight=[1, 3])
    assert motley(problem).assignment.tolist() == [-1, 0]


def test_a_job_moves_only_if_it_gains_more_than_two_restarts_take():
    """On the faster GPU it would do a quarter more: within 900 s it gains two restarts of 85 s, and not of 95."""
    for restart_s, k in ((85, 1), (95, 0)):
        assert motley(able_to_move([600], restart_s=restart_s), lease_growth=0).assignment.tolist() == [k]


def test_what_has_lasted_for_long_is_expected_to_last_as_long():
    """Within 2,000 s it gains two restarts of 190 s, and not of 210; one that came lately ends the quiet."""
    for restart_s, k in ((190, 1), (210, 0)):
        assert motley(able_to_move([2000], restart_s=restart_s), lease_growth=0).assignment.tolist() == [k]
    for age_s, k in ((2000, 1), (10, 0)):
        two = able_to_move([2000, 0], restart_s=190, held=[0, -1], age_s=[2000, age_s], capacity=[2, 1])
        assert motley(two, lease_growth=0).assignment[0] == k


def able_to_move(held_s, *, restart_s, held=(0,), capacity=(1, 1), **columns):
    """A job on the slower of two types; a second one can run on that one alone."""
    rate = np.array([[4, 5], [1, 0]])[: len(held_s)]
    lasting = {"held": held, "held_s": held_s, "remaining_steps": [1e6] * len(held_s)}
    return Problem.of(rate, np.eye(2), capacity, restart_s=[restart_s] * len(held_s), **lasting | columns)


def test_of_equal_jobs_that_of_the_team_behind_its_share_runs():
    two = {"remaining_steps": [3600, 3600], "attained_gpu_s": [1, 1]}
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], team=[0, 1], team_backlog_s=[0, 60], **two)
    assert motley(problem).assignment.tolist() == [-1, 0]
    assert motley(problem, fairness=0).assignment.tolist() == [0, -1]


def test_a_job_keeps_its_gpus_for_its_lease():
    held = {"held": [0, -1], "restart_s": [10, 10], "remaining_steps": [7200, 60], "attained_gpu_s": [1, 0]}
    for held_s, chosen in ((249, [0, -1]), (251, [-1, 0])):
        problem = Problem.of([[1.0], [1.0]], [[1]], [1], held_s=[held_s, 0], **held)
        assert motley(problem).assignment.tolist() == chosen


def test_a_long_job_does_not_wait_forever_for_short_ones():
    columns = {"remaining_steps": [36_000, 60], "attained_gpu_s": [1, 0]}
    for age_s, chosen in ((3600, [-1, 0]), (1_000_000, [0, -1])):
        problem = Problem.of([[1.0], [1.0]], [[1]], [1], age_s=[age_s, 0], **columns)
        assert motley(problem).assignment.tolist() == chosen


def test_prices_are_hours_that_others_wait_for_a_gpu_hour():
    """Of five jobs of an hour on one GPU, all are done sooner by what one GPU-hour more does at once."""
    problem = Problem.of(np.ones((5, 1)), [[1]], [1], remaining_steps=[3600] * 5)
    assert 4 < motley(problem).prices[0] < 7


def test_at_the_time_limit_the_best_feasible_assignment_counts(monkeypatch):
    set_clock(monkeypatch, step_s=1)
    rng = np.random.default_rng(1)
    rate = rng.uniform(1, 2, (300, 3)).repeat(2, axis=1)
    problem = Problem.of(
        rate, np.kron(np.eye(3, dtype=int), [1, 2]), [8, 8, 8], remaining_steps=[1e4] * 300, solve_limit_s=0.5
    )
    decision = motley(problem)
    assert decision.status in (Status.LIMIT, Status.OPTIMAL)
    assert (problem.usage[:, decision.assignment[decision.assignment >= 0]].sum(axis=1) <= problem.capacity).all()


def test_of_many_jobs_some_are_planned_for_all():
    rng = np.random.default_rng(0)
    columns = {"remaining_steps": 10 ** rng.uniform(3, 5, 600)}
    problem = Problem.of(
        rng.uniform(1, 2, (600, 2)).repeat(2, axis=1), [[1, 2, 0, 0], [0, 0, 1, 2]], [40, 40], **columns
    )
    few, all_planned = motley(problem), motley(problem, planned=600)
    shared = ((few.assignment >= 0) == (all_planned.assignment >= 0)).mean()
    assert shared > 0.95
