"""A round with pairs of jobs as rows of their own: which jobs share which GPUs."""

import numpy as np
import pytest
from hypothesis import given

from allocation.decision import Decision, Pairs
from allocation.plan_round import plan_round
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import Problem, SpaceSharing
from allocation.quotas import Quotas
from allocation.space_sharing.pair_rows import PairRows
from tests.allocation.allocation_cases import build_inventory
from tests.allocation.space_sharing_cases import sharing
from tests.hypothesis_examples import examples

ROUND_S = 360.0


def decided(problem, shares, pairs):
    """A policy that gives these shares, and pairs by their rows to the one configuration."""
    rows, together = np.array([*pairs]).reshape(-1, 2), np.array([*pairs.values()], dtype=float).reshape(-1, 1)
    return lambda _: Decision.of_shares(shares, prices=[0], objective=0, pairs=Pairs(rows, together))


def planned(problem, policy, inventory, quotas=None):
    return plan_round(problem, inventory, quotas or Quotas.none(len(problem.weight)), policy, round_s=ROUND_S)


def alike(jobs, gpus=1, *, columns=None, **of_sharing):
    """Jobs of one GPU and one workload, which keep 0.9 of their rate beside each other."""
    shared = SpaceSharing.of([0] * jobs, [[[0.9]]], types=1, **of_sharing)
    return Problem.of([[1]] * jobs, [[1]], [gpus], sharing=shared, **columns or {})


@pytest.mark.parametrize(
    ("received_s", "pairs_received_s", "running"),
    [
        ([[0], [0], [0]], [[0]], [0, 1]),
        ([[0], [0], [0]], [[3600]], [2]),
        ([[0], [0], [3600]], [[3600]], [0, 1]),
        ([[0], [0], [7200]], [[3600]], [0, 1]),
    ],
)
def test_a_pair_waits_its_turn_like_a_job(received_s, pairs_received_s, running):
    """Two together are due two thirds of the GPU, a third alone the rest."""
    problem = alike(3, columns={"received_s": received_s}, pairs=[[1, 0]], pair_received_s=pairs_received_s)
    plan = planned(problem, decided(problem, [[0], [0], [1 / 3]], {(0, 1): 2 / 3}), build_inventory([[1]], 3))
    assert np.flatnonzero(plan.assignment >= 0).tolist() == running
    assert plan.mate.tolist() == ([1, 0, -1] if running == [0, 1] else [-1, -1, -1])
    assert plan.owner[0] == running[0]


def test_a_job_is_in_one_row_of_a_round_at_most():
    problem = alike(3, 3)
    policy = decided(problem, [[0.2], [0.1], [0]], {(0, 1): 0.5, (1, 2): 0.4, (0, 2): 0.3})
    plan = planned(problem, policy, build_inventory([[3]], 3))
    assert (plan.assignment.tolist(), plan.mate.tolist()) == ([0, 0, 0], [1, 0, -1])
    assert sorted(plan.owner.tolist()) == [-1, 0, 2]


def test_gpus_without_shares_go_to_jobs_without_a_partner():
    problem = alike(4, 2)
    plan = planned(problem, decided(problem, [[0]] * 4, {(0, 1): 1, (0, 2): 0}), build_inventory([[2]], 4))
    assert (plan.assignment.tolist(), plan.mate.tolist()) == ([0, 0, 0, -1], [1, 0, -1, -1])


def test_a_pair_stays_where_it_is():
    problem = alike(3, 3, columns={"held": [0, 0, -1]}, mate=[1, 0, -1])
    inventory = build_inventory([[1, 1, 1]], 3, holder=[-1, -1, 1])
    plan = planned(problem, decided(problem, [[0], [0], [1]], {(0, 1): 1}), inventory)
    assert plan.owner[2] == 0
    assert plan.mate.tolist() == [1, 0, -1]


def test_a_pair_without_a_share_goes_on_only_where_its_gpus_are_idle():
    problem = alike(3, 2, columns={"held": [0, 0, -1]}, mate=[1, 0, -1])
    inventory = build_inventory([[1, 1]], 3, holder=[-1, 0])
    plan = planned(problem, decided(problem, [[0.4], [0.3], [1]], {}), inventory)
    assert (plan.assignment.tolist(), plan.mate.tolist()) == ([0, -1, 0], [-1, -1, -1])


def test_a_locked_pair_stays_together():
    problem = alike(3, columns={"held": [0, 0, -1], "locked": [True, False, False]}, mate=[1, 0, -1])
    plan = planned(problem, decided(problem, [[0], [0], [1]], {}), build_inventory([[1]], 3, holder=[0]))
    assert (plan.assignment.tolist(), plan.mate.tolist()) == ([0, 0, -1], [1, 0, -1])


def test_a_node_needs_cpus_for_both():
    problem = alike(3)
    policy = decided(problem, [[0]] * 3, {(0, 1): 1})
    for cpus, mate in ((2, [1, 0, -1]), (1, [-1, -1, -1])):
        assert planned(problem, policy, build_inventory([[1]], 3, node_cpus=[cpus])).mate.tolist() == mate


@pytest.mark.parametrize(("cpus", "third"), [(5, 0), (4, -1)])
def test_what_is_booked_for_both_jobs_of_a_pair_is_left_to_it(cpus, third):
    problem = alike(3, 2, columns={"held": [0, 0, -1], "locked": [True, False, False]}, mate=[1, 0, -1])
    columns = {"node_cpus": [cpus], "node_least": [[1, 0]], "cpus_per_gpu": [0, 0, 2]}
    booked = {"row_booked": [[2, 0], [1, 0], [0, 0]], "holder": [0, -1]}
    inventory = build_inventory([[2]], 3, **columns, **booked)
    plan = planned(problem, decided(problem, [[0], [0], [1]], {(0, 1): 1}), inventory)
    assert plan.assignment.tolist() == [0, 0, third]


def test_a_pairs_gpus_count_for_the_groups_of_both():
    problem = alike(4, 4)
    quotas = Quotas(np.array([[0], [0], [0], [1]]), np.array([1, 1]), np.array([0, 0]))
    plan = planned(problem, decided(problem, [[0]] * 4, {(0, 1): 1, (2, 3): 0.5}), build_inventory([[4]], 4), quotas)
    assert (plan.assignment.tolist(), plan.mate.tolist()) == ([0, 0, -1, 0], [1, 0, -1, -1])


@examples(100)
@given(sharing())
def test_every_round_fits_the_cluster(problem):
    nodes = [[int(gpus)] for gpus in problem.capacity]
    inventory = build_inventory(nodes, len(problem.weight))
    plan = planned(problem, lambda p: max_min_fairness(p, packed=True), inventory)
    paired = np.flatnonzero(plan.mate >= 0)
    assert (plan.mate[plan.mate[paired]] == paired).all()
    assert (plan.assignment[plan.mate[paired]] == plan.assignment[paired]).all()
    assert (problem.rate[plan.assignment >= 0, plan.assignment[plan.assignment >= 0]] > 0).all()
    owners = np.flatnonzero((plan.assignment >= 0) & ((plan.mate < 0) | np.isin(np.arange(len(plan.mate)), plan.owner)))
    used = problem.usage[:, plan.assignment[owners]].sum(axis=1)
    assert (used == np.bincount(inventory.gpu_type[plan.owner >= 0], minlength=len(used))).all()
    assert (used <= problem.capacity).all()


def test_rows_that_share_nothing_are_the_jobs():
    problem = Problem.of([[1]] * 2, [[1]], [1])
    rows = PairRows.of(problem, Decision.of_shares([[0.5], [0.5]], prices=[0], objective=0))
    assert (rows.jobs, rows.members.tolist()) == (2, [[0, 0], [1, 1]])
