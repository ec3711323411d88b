"""Quotas of teams on GPU types: limits hold, guarantees come before borrowers, and what is left is lent."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.plan_round import plan_round
from allocation.policies import POLICIES
from allocation.policies.fifo import fifo
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.motley import motley
from allocation.policies.sia import sia
from allocation.problem import Problem
from allocation.quota_lending import NO_LIMIT, TypeQuotas
from allocation.quotas import Quotas
from allocation.rounds.pending_reasons import ReasonCode, explain
from tests.allocation.allocation_cases import build_inventory, clusters
from tests.hypothesis_examples import examples

ROUND_S = 360.0
IDLE = -1
FILLING = [name for name in POLICIES if name not in ("hadar", "min_cost", "min_cost_slo")]
"""Policies that leave no GPU idle which a job could use: the others weigh prices."""


def quotas_of(team, nominal, *, borrowing=None, withheld=None, used=None):
    """Quotas by team and type; borrowing: most that each may borrow, no limit unless told."""
    nominal = np.array(nominal)
    most = np.full_like(nominal, NO_LIMIT) if borrowing is None else nominal + np.array(borrowing)
    withheld, used = (np.zeros_like(nominal) if of is None else np.array(of) for of in (withheld, used))
    by_type = TypeQuotas.of(np.array(team), nominal, most, withheld, used)
    return replace(Quotas.none(len(team)), by_type=by_type)


def single_gpus(jobs, gpus, **columns):
    """Jobs of one GPU on one type."""
    problem = Problem.of(np.ones((jobs, 1)), [[1]], [gpus], **columns)
    return problem, build_inventory([[gpus]], jobs)


def runs(plan):
    return (plan.assignment >= 0).astype(int).tolist()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_team_without_borrowing_has_its_quota_at_most(policy):
    problem, inventory = single_gpus(6, 6, team=[0] * 6, remaining_steps=[1e4] * 6)
    plan = plan_round(problem, inventory, quotas_of([0] * 6, [[2]], borrowing=[[0]]), policy, round_s=ROUND_S)
    assert sum(runs(plan)) == 2


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_quota_comes_before_older_jobs_that_would_borrow(policy):
    """Four jobs of a team without a quota are older than two of the team that has one."""
    columns = {"age_s": [60, 50, 40, 30, 2, 1], "team": [7] * 4 + [0] * 2, "remaining_steps": [1e4] * 6}
    problem, inventory = single_gpus(6, 4, **columns)
    plan = plan_round(problem, inventory, quotas_of([IDLE] * 4 + [0] * 2, [[2]]), policy, round_s=ROUND_S)
    assert (sum(runs(plan)[:4]), runs(plan)[4:]) == (2, [1, 1])


@pytest.mark.parametrize("name", FILLING)
def test_what_a_team_leaves_of_its_quota_is_lent(name):
    problem, inventory = single_gpus(5, 4, team=[7] * 4 + [0], remaining_steps=[1e4] * 5)
    plan = plan_round(problem, inventory, quotas_of([IDLE] * 4 + [0], [[3]]), POLICIES[name], round_s=ROUND_S)
    assert (sum(runs(plan)[:4]), runs(plan)[4]) == (3, 1)


@pytest.mark.parametrize("policy", [fifo, motley, max_min_fairness])
def test_a_team_that_borrows_gives_back_when_the_lender_has_jobs(policy):
    held = [0, 0, IDLE, IDLE]
    problem = Problem.of(np.ones((4, 1)), [[1]], [2], held=held, held_s=[9e5, 9e5, 0, 0], team=[1, 1, 0, 0])
    inventory = build_inventory([[2]], 4, holder=[0, 1])
    plan = plan_round(problem, inventory, quotas_of([1, 1, 0, 0], [[2], [0]]), policy, round_s=ROUND_S)
    assert runs(plan) == [0, 0, 1, 1]


@pytest.mark.parametrize("kept", [{"locked": [True, True, False]}, {"restart_s": [900.0] * 3, "held_s": [1, 1, 0]}])
def test_within_its_lease_and_minimum_run_time_a_borrower_keeps_its_gpus(kept):
    problem = Problem.of(np.ones((3, 1)), [[1]], [2], held=[0, 0, IDLE], team=[1, 1, 0], **kept)
    inventory = build_inventory([[2]], 3, holder=[0, 1])
    plan = plan_round(problem, inventory, quotas_of([1, 1, 0], [[2], [0]]), max_min_fairness, round_s=ROUND_S)
    assert runs(plan) == [1, 1, 0]


def test_what_a_team_does_not_lend_stays_idle():
    problem, inventory = single_gpus(4, 4, team=[7] * 4)
    plan = plan_round(problem, inventory, quotas_of([1] * 4, [[3], [0]], withheld=[[2], [0]]), fifo, round_s=ROUND_S)
    assert sum(runs(plan)) == 2


def test_attempts_outside_the_round_count_towards_the_quota():
    problem, inventory = single_gpus(3, 3)
    quotas = quotas_of([0] * 3, [[2]], borrowing=[[0]], used=[[1]])
    assert sum(runs(plan_round(problem, inventory, quotas, fifo, round_s=ROUND_S))) == 1


@pytest.mark.parametrize("policy", [max_min_fairness, motley, sia])
def test_jobs_go_to_another_type_where_the_quota_of_one_is_used_up(policy):
    """All are four times as fast on the first type, of which the team has two GPUs."""
    problem = Problem.of(np.tile([4.0, 1.0], (4, 1)), np.eye(2, dtype=int), [4, 4], team=[0] * 4)
    inventory = build_inventory([[4], [4]], 4)
    quotas = quotas_of([0] * 4, [[2, 0]], borrowing=[[0, NO_LIMIT]])
    plan = plan_round(problem, inventory, quotas, policy, round_s=ROUND_S)
    assert sorted(plan.assignment.tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize("policy", [motley, sia])
def test_an_elastic_job_runs_on_as_many_gpus_as_its_quota_has(policy):
    problem = Problem.of([[1.0, 1.9, 3.6]], [[1, 2, 4]], [4])
    plan = plan_round(problem, build_inventory([[4]], 1), quotas_of([0], [[2]], borrowing=[[0]]), policy, round_s=360)
    assert plan.assignment.tolist() == [1]


@st.composite
def later_rounds(draw):
    """A round whose jobs hold what an earlier one gave them, some of it for good, with quotas of two teams of three."""
    cluster = draw(clusters(max_jobs=10))
    problem, rng = cluster.problem, np.random.default_rng(draw(st.integers(0, 2**16)))
    (m, _), n = problem.rate.shape, len(problem.capacity)
    columns = {"uneven": cluster.inventory.uneven}
    before = plan_round(problem, cluster.inventory, Quotas.none(m), fifo, round_s=ROUND_S)
    holds = before.assignment >= 0
    held_s = np.where(holds, rng.choice([10.0, 1e6], m), 0)
    problem = replace(problem, held=before.assignment, held_s=held_s, locked=holds & (rng.random(m) < 0.2))
    nominal = rng.integers(0, 9, (2, n))
    most = np.where(rng.random((2, n)) < 0.5, nominal + rng.integers(0, 3, (2, n)), NO_LIMIT)
    withheld = np.where(rng.random((2, n)) < 0.3, nominal // 2, 0)
    by_type = TypeQuotas.of(problem.team - 1, nominal, most, withheld, np.zeros((2, n), dtype=int))
    inventory = build_inventory(cluster.node_gpus, m, holder=before.owner, **columns)
    return SimpleNamespace(
        problem=problem, inventory=inventory, quotas=replace(Quotas.none(m), by_type=by_type), by_type=by_type
    )


def used_of(case, rows):
    """GPUs (T, n) of each team under an assignment."""
    return case.by_type.in_use(case.problem, rows)


@pytest.mark.parametrize("name", POLICIES)
@examples(10)
@given(case=later_rounds())
def test_no_team_has_more_gpus_of_a_type_than_its_limit_but_those_of_locked_jobs(name, case):
    plan = plan_round(case.problem, case.inventory, case.quotas, POLICIES[name], round_s=ROUND_S)
    locked = used_of(case, np.where(case.problem.locked, case.problem.held, IDLE))
    assert (used_of(case, plan.assignment) <= np.maximum(case.by_type.most, locked)).all()


@pytest.mark.parametrize("name", POLICIES)
@examples(10)
@given(case=later_rounds())
def test_borrowers_take_no_gpu_that_a_team_does_not_lend(name, case):
    """But those of jobs that keep theirs: locked, or within their leases."""
    problem, by_type = case.problem, case.by_type
    plan = plan_round(problem, case.inventory, case.quotas, POLICIES[name], round_s=ROUND_S)
    keeps = problem.locked | problem.leased
    of_all = problem.usage[:, plan.assignment[(plan.assignment >= 0) & ~keeps]].sum(axis=1)
    of_team = used_of(case, np.where(keeps, IDLE, plan.assignment))
    own = np.minimum(of_team, by_type.nominal).sum(axis=0)
    assert (of_all - own <= np.maximum(problem.capacity - by_type.withheld.sum(axis=0), 0)).all()


@pytest.mark.parametrize("name", FILLING)
@examples(10)
@given(seed=st.integers(0, 2**16))
def test_each_team_has_its_quota_while_it_has_jobs_for_it(name, seed):
    """Jobs of one GPU on one type each: none is too large for what is left."""
    rng = np.random.default_rng(seed)
    m, capacity = 14, np.array([5, 4])
    kind, team = rng.integers(0, 2, m), rng.integers(-1, 2, m)
    held = np.where(rng.random(m) < 0.5, kind, IDLE)
    for j in range(2):
        held[np.flatnonzero(held == j)[capacity[j] :]] = IDLE
    rate = np.eye(2)[kind]
    columns = {"held": held, "held_s": np.where(held >= 0, 1e6, 0), "team": team + 1, "age_s": rng.uniform(0, 1e4, m)}
    problem = Problem.of(rate, np.eye(2, dtype=int), capacity, **columns, remaining_steps=rng.uniform(1e5, 1e6, m))
    nominal = rng.integers(0, 3, (2, 2))
    quotas = quotas_of(team, nominal)
    holder = np.full(9, IDLE)
    for j, first in enumerate((0, 5)):
        rows = np.flatnonzero(held == j)
        holder[first : first + len(rows)] = rows
    inventory = build_inventory([[5], [4]], m, holder=holder)
    plan = plan_round(problem, inventory, quotas, POLICIES[name], round_s=ROUND_S)
    demand = np.array([[((kind == j) & (team == t)).sum() for j in range(2)] for t in range(2)])
    used = np.array([[((plan.assignment == j) & (team == t)).sum() for j in range(2)] for t in range(2)])
    assert (used >= np.minimum(nominal, demand)).all()
    of_type = np.bincount(plan.assignment[plan.assignment >= 0], minlength=2)
    assert (of_type == np.minimum(capacity, np.bincount(kind, minlength=2))).all()


def reasons(plan, problem, inventory, quotas, row):
    outcome = {"assignment": plan.assignment, "owner": plan.owner}
    return explain(problem, plan.decision, inventory, quotas, **outcome, round_s=ROUND_S)[row]


def test_a_job_at_its_teams_quota_is_told_the_type_the_quota_and_the_limit():
    problem, inventory = single_gpus(4, 8)
    quotas = quotas_of([0] * 4, [[2]], borrowing=[[1]])
    plan = plan_round(problem, inventory, quotas, fifo, round_s=ROUND_S)
    (found,) = reasons(plan, problem, inventory, quotas, 3)
    assert (found.code, found.rival) == (ReasonCode.QUOTA, None)
    assert found.numbers == {"gpu_type": 0, "needed": 1, "quota": 2, "used": 3, "limit": 3}


def test_a_job_is_told_that_what_is_left_is_kept_for_other_teams():
    problem, inventory = single_gpus(3, 4)
    quotas = quotas_of([IDLE] * 3, [[2]], withheld=[[2]])
    plan = plan_round(problem, inventory, quotas, fifo, round_s=ROUND_S)
    assert reasons(plan, problem, inventory, quotas, 2)[0].numbers == {
        "gpu_type": 0,
        "needed": 1,
        "quota": 0,
        "used": 0,
        "left": 2,
    }


def test_a_job_within_its_quota_is_told_who_borrows_its_gpus_after_what_it_lacks():
    columns = {"held": [0, 0, IDLE], "locked": [True, True, False], "unlock_s": [60, 60, 0], "team": [5, 5, 6]}
    problem, inventory = Problem.of(np.ones((3, 1)), [[1]], [2], **columns), build_inventory([[2]], 3, holder=[0, 1])
    quotas = quotas_of([1, 1, 0], [[2], [1]])
    plan = plan_round(problem, inventory, quotas, fifo, round_s=ROUND_S)
    first, *_, last = reasons(plan, problem, inventory, quotas, 2)
    assert (first.code, last.code, last.rival) == (ReasonCode.INSUFFICIENT_GPUS, ReasonCode.QUOTA, 0)


def test_a_job_that_has_another_type_is_told_first_what_it_lacks_there():
    problem = Problem.of(np.tile([4.0, 1.0], (3, 1)), np.eye(2, dtype=int), [4, 1], team=[0] * 3)
    inventory, quotas = build_inventory([[4], [1]], 3), quotas_of([0] * 3, [[1, 0]], borrowing=[[0, 9]])
    plan = plan_round(problem, inventory, quotas, motley, round_s=ROUND_S)
    waiting = int(np.flatnonzero(plan.assignment < 0)[0])
    found = [
        (reason.code, reason.numbers.get("gpu_type")) for reason in reasons(plan, problem, inventory, quotas, waiting)
    ]
    assert found[0] == (ReasonCode.INSUFFICIENT_GPUS, 1)
    assert found[-1] == (ReasonCode.QUOTA, 0)
