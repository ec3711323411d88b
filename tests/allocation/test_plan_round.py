"""A whole round: GPUs of a pick that finds no node are offered to others, and waiting jobs have reasons."""

from types import SimpleNamespace

import numpy as np
import pytest

from allocation.decision import Decision, Status
from allocation.plan_round import plan_round
from allocation.policies.fifo import fifo
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.motley import motley
from allocation.policies.motley_static import motley_static
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.pending_reasons import ReasonCode, explain
from allocation.solvers.linear_program import maximize
from tests.allocation.allocation_cases import build_inventory

ROUND_S = 360.0
IDLE = -1


def plan(problem, inventory, policy=max_min_fairness, quotas=None):
    quotas = quotas or Quotas.none(len(problem.weight))
    planned = plan_round(problem, inventory, quotas, policy, round_s=ROUND_S)
    outcome = {"assignment": planned.assignment, "owner": planned.owner}
    left = explain(problem, planned.decision, inventory, quotas, **outcome, round_s=ROUND_S)
    return SimpleNamespace(decision=planned.decision, **outcome, left=left)


def of_shares(X):
    return lambda problem: Decision.of_shares(X, prices=np.zeros(len(problem.capacity)), objective=0)


def codes(planned, row):
    return [reason.code for reason in planned.left[row]]


def reason(planned, row, code):
    return next(found for found in planned.left[row] if found.code == code)


def limit(jobs, most_gpus, used_gpus=0):
    return Quotas(np.zeros((jobs, 1), dtype=int), np.array([most_gpus]), np.array([used_gpus]))


def test_an_empty_queue_leaves_every_gpu_idle():
    problem = Problem.of(np.zeros((0, 1)), [[1]], [2])
    planned = plan(problem, build_inventory([[2]], 0), policy=None)
    assert (planned.assignment.tolist(), planned.owner.tolist()) == ([], [IDLE, IDLE])


def test_gpus_of_a_pick_that_finds_no_node_go_to_another_job():
    """The gang of two finds a GPU on each of two nodes, whose other GPUs are locked; the single job takes one."""
    rate = [[0, 1], [1, 0], [1, 0], [1, 0]]
    problem = Problem.of(rate, [[1, 2]], [4], held=[-1, 0, 0, -1], locked=[False, True, True, False])
    inventory = build_inventory([[2, 2]], 4, holder=[1, IDLE, 2, IDLE])
    planned = plan(problem, inventory, of_shares([[0, 1], [1, 0], [1, 0], [0, 0]]))
    assert planned.assignment.tolist() == [-1, 0, 0, 0]


def test_a_gang_that_waits_for_locks_to_end_is_not_overtaken_by_newcomers():
    """Else a stream of small jobs, each locked for a while, would keep it waiting for ever."""
    columns = {"held": [-1, 0, -1], "locked": [False, True, False], "unlock_s": [0, 20, 0]}
    problem = Problem.of([[0, 1], [1, 0], [1, 0]], [[1, 2]], [2], **columns)
    planned = plan(problem, build_inventory([[2]], 3, holder=[1, IDLE]), of_shares([[0, 1], [1, 0], [0.5, 0]]))
    assert planned.assignment.tolist() == [-1, 0, -1]


def test_a_job_that_cannot_move_to_a_reserved_type_keeps_no_gpu_there():
    """The slow GPUs wait for the gang, so that the job does not move there; another has taken its fast GPU."""
    rate, usage = [[0, 0, 1], [0, 1, 0], [0, 1, 0], [2, 1, 0], [3, 0, 0]], [[1, 0, 0], [0, 1, 2]]
    held = {"held": [-1, 1, 1, 0, -1], "locked": [False, True, True, False, False], "unlock_s": [0, 60, 60, 0, 0]}
    inventory = build_inventory([[1], [2, 2, 1]], 5, holder=[3, 1, IDLE, 2, IDLE, IDLE])
    decision = Decision.of_assignment(np.array([2, 1, 1, 1, 0]), prices=np.zeros(2), status=Status.RULE)
    planned = plan(Problem.of(rate, usage, [1, 5], **held), inventory, lambda _: decision)
    assert planned.assignment.tolist() == [-1, 1, 1, -1, 0]
    assert planned.owner.tolist() == [4, 1, IDLE, 2, IDLE, IDLE]


def test_a_lock_without_end_reserves_nothing():
    columns = {"held": [-1, 0, -1], "locked": [False, True, False]}
    problem = Problem.of([[0, 1], [1, 0], [1, 0]], [[1, 2]], [2], **columns)
    planned = plan(problem, build_inventory([[2]], 3, holder=[1, IDLE]), of_shares([[0, 1], [1, 0], [0.5, 0]]))
    assert planned.assignment.tolist() == [-1, 0, 0]


def test_a_job_in_pieces_of_the_cluster_is_told_how_large_the_pieces_are():
    problem = Problem.of([[0, 1], [1, 0], [1, 0]], [[1, 2]], [4], held=[-1, 0, 0], locked=[False, True, True])
    planned = plan(problem, build_inventory([[2, 2]], 3, holder=[1, IDLE, 2, IDLE]))
    numbers = reason(planned, 0, ReasonCode.FRAGMENTED).numbers
    assert numbers == {"gpu_type": 0, "needed": 2, "left": 2, "per_node": 2, "largest_block": 1, "free_block": 1}


def test_a_job_without_enough_gpus_is_told_how_many_are_left():
    problem = Problem.of([[0, 1], [1, 0]], [[1, 2]], [2], held=[-1, 0], locked=[False, True])
    planned = plan(problem, build_inventory([[2]], 2, holder=[1, IDLE]))
    assert reason(planned, 0, ReasonCode.INSUFFICIENT_GPUS).numbers == {"gpu_type": 0, "needed": 2, "left": 1}


def test_an_outbid_job_is_told_by_which_job_and_by_how_much():
    problem = Problem.of([[1], [1]], [[1]], [1])
    planned = plan(problem, build_inventory([[1]], 2), of_shares([[0.25], [0.75]]))
    found = reason(planned, 0, ReasonCode.OUTBID)
    assert found.rival == 1
    assert (found.numbers["priority"], found.numbers["rival_priority"]) == (0.5, 1.5)


@pytest.mark.parametrize(("nudge", "runs"), [(1.001, True), (0.999, False)])
def test_the_share_that_an_outbid_job_would_need_is_the_one_that_wins(nudge, runs):
    problem = Problem.of([[1], [1]], [[1]], [1], received_s=[[900], [100]])
    outbid = plan(problem, build_inventory([[1]], 2), of_shares([[0.5], [0.2]]))
    needed = reason(outbid, 0, ReasonCode.OUTBID).numbers["needed_share"]
    again = plan(problem, build_inventory([[1]], 2), of_shares([[nudge * needed], [0.2]]))
    assert (again.assignment[0] >= 0) == runs


def test_among_equals_the_one_that_came_first_is_named():
    problem = Problem.of([[1], [1]], [[1]], [1])
    found = reason(plan(problem, build_inventory([[1]], 2), of_shares([[0.5], [0.5]])), 1, ReasonCode.OUTBID)
    assert (found.rival, found.numbers["needed_share"]) == (0, 0.5)


def test_a_locked_job_has_outbid_no_other():
    """However large its share, a job does not get the GPUs of one that keeps them."""
    problem = Problem.of([[1], [1]], [[1]], [1], held=[0, -1], locked=[True, False])
    planned = plan(problem, build_inventory([[1]], 2, holder=[0]), of_shares([[0.9], [0.1]]))
    assert codes(planned, 1) == [ReasonCode.INSUFFICIENT_GPUS]


def by_value(value, prices, assignment):
    return lambda _: Decision.of_assignment(assignment, prices=prices, value=np.asarray(value, float))


def test_a_job_that_no_gpus_are_worth_is_told_its_value_and_the_price():
    """Of its configurations the one that is nearest to its price: 2 x 0.9 - 1.5 lacks less than 0.9 - 0.4."""
    problem = Problem.of([[1, 1], [1, 1]], [[1, 2]], [2])
    policy = by_value([[2, 3], [0.4, 1.5]], [0.9], [1, -1])
    found = reason(plan(problem, build_inventory([[2]], 2), policy), 1, ReasonCode.OUTBID)
    assert found.numbers == {"gpu_type": 0, "gpus": 2, "value": 1.5, "price": 1.8}


@pytest.mark.parametrize("value", [[0.9, 1.0], [0, 0]])
def test_a_job_that_is_worth_its_price_or_was_not_valued_is_not_called_too_dear(value):
    problem = Problem.of([[1, 1], [1, 1]], [[1, 2]], [2])
    planned = plan(problem, build_inventory([[2]], 2), by_value([[2, 3], value], [0.9], [1, -1]))
    assert ReasonCode.OUTBID not in codes(planned, 1)


def test_a_job_at_its_teams_limit_is_told_the_limit_before_anything_else():
    problem = Problem.of([[1], [1]], [[1]], [2])
    planned = plan(problem, build_inventory([[2]], 2), quotas=limit(2, most_gpus=3, used_gpus=2))
    assert codes(planned, 1)[0] == ReasonCode.TEAM_LIMIT
    assert planned.left[1][0].numbers == {"limit": 3, "used": 3, "needed": 1}


def test_a_job_at_its_limit_does_not_hold_up_the_queue():
    problem = Problem.of([[0, 1], [1, 0]], [[1, 4]], [4], age_s=[9, 1])
    quotas = Quotas(np.array([[0], [-1]]), np.array([2]), np.array([0]))
    planned = plan(problem, build_inventory([[4]], 2), fifo, quotas)
    assert planned.assignment.tolist() == [-1, 0]


def test_in_a_queue_the_job_ahead_is_named():
    problem = Problem.of([[0, 1], [1, 0], [0, 1]], [[1, 2]], [2], age_s=[5, 9, 1])
    planned = plan(problem, build_inventory([[2]], 3), fifo)
    assert reason(planned, 2, ReasonCode.OUTBID).rival == 0


def test_the_same_round_is_planned_the_same_way():
    rng = np.random.default_rng(3)
    problem = Problem.of(rng.uniform(1, 2, (40, 4)), np.kron(np.eye(2, dtype=int), [1, 2]), [16, 16])
    inventory = build_inventory([[4] * 4, [8] * 2], 40)
    assert np.array_equal(plan(problem, inventory).owner, plan(problem, inventory).owner)


def test_a_round_whose_solver_failed_is_run_as_a_queue_and_says_so():
    problem = Problem.of([[1], [1]], [[1]], [1], age_s=[1, 2])
    planned = plan(problem, build_inventory([[1]], 2), lambda _: maximize([1], [[-1]], [1]))
    assert (planned.assignment.tolist(), planned.decision.status) == ([-1, 0], Status.FALLBACK)


@pytest.mark.parametrize("policy", [fifo, max_min_fairness])
def test_a_team_never_has_more_gpus_than_its_limit(policy):
    rng = np.random.default_rng(4)
    problem = Problem.of(rng.uniform(1, 2, (30, 4)), np.kron(np.eye(2, dtype=int), [1, 4]), [16, 16])
    quotas = Quotas(np.arange(30)[:, None] % 2, np.array([5, 40]), np.array([2, 0]))
    planned = plan(problem, build_inventory([[4] * 4, [8] * 2], 30), policy, quotas)
    of_team = np.isin(planned.owner, np.arange(0, 30, 2))
    assert of_team.sum() == 3


@pytest.mark.parametrize("policy", [motley, motley_static])
def test_gpus_that_are_kept_for_a_gang_are_not_returned_to_a_job_that_is_stopped(policy):
    """Of twelve GPUs four are leased and four idle; a gang of twelve is due, and the last job replaces the second."""
    problem = Problem.of(
        [[1, 0], [1, 0], [0, 1], [1, 0]],
        [[4, 12]],
        [12],
        remaining_steps=[5000, 50_000, 100, 50],
        age_s=[600, 50_000, 5000, 40],
        held=[0, 0, -1, -1],
        held_s=[5, 40_000, 0, 0],
        attained_gpu_s=[20, 160_000, 0, 0],
        restart_s=[200, 10, 10, 10],
    )
    inventory = build_inventory([[12]], 12, holder=[0] * 4 + [1] * 4 + [IDLE] * 4)
    planned = plan(problem, inventory, policy)
    assert planned.decision.kept_for.tolist() == [2]
    assert planned.assignment.tolist() == [0, -1, -1, 0]
    assert (planned.owner == IDLE).sum() == 4
