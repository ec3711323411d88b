"""The round mechanism: over rounds every job gets its shares, and no GPU idles that a job could use."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from allocation.decision import Decision
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.problem import LEASE, Problem
from allocation.quotas import Quotas
from allocation.rounds.mechanism import RoundAssignment, realise, reset_due
from tests.allocation.allocation_cases import clusters
from tests.hypothesis_examples import examples

ROUND_S = 360.0
few = examples(60)


def shares(X):
    return Decision.of_shares(X, prices=np.zeros(2), objective=0)


def shares_of_one_type(X):
    return Decision.of_shares(X, prices=np.zeros(1), objective=0)


def picked(problem, decision, quotas=None):
    assignment = RoundAssignment.start(problem, quotas or Quotas.none(len(problem.weight)))
    return realise(problem, decision, assignment, round_s=ROUND_S)


def free_gpus(problem, assignment):
    return problem.capacity - problem.usage[:, assignment[assignment >= 0]].sum(axis=1)


def test_over_many_rounds_the_time_received_comes_to_the_shares():
    X = np.array([[0.5, 0.25], [0.4, 0.2], [0.1, 0.55]])
    problem = Problem.of(np.ones((3, 2)), np.eye(2), [1, 1])
    received_s = np.zeros((3, 2))
    for _ in range(400):
        assignment = picked(dataclasses.replace(problem, received_s=received_s), shares(X))
        running = np.flatnonzero(assignment >= 0)
        received_s[running, assignment[running]] += ROUND_S
    assert received_s / (400 * ROUND_S) == pytest.approx(X, abs=0.02)


def test_the_job_furthest_behind_its_share_goes_first():
    problem = Problem.of([[1], [1]], [[1]], [1], received_s=[[720], [360]])
    assert picked(problem, shares([[0.5], [0.5]])).tolist() == [-1, 0]


def test_between_equals_the_job_that_holds_the_gpu_keeps_it():
    problem = Problem.of([[1], [1]], [[1]], [1], held=[-1, 0])
    assert picked(problem, shares([[0.5], [0.5]])).tolist() == [-1, 0]


def test_a_job_that_has_never_run_has_a_turn_before_others_have_a_second_even_on_a_type_of_which_it_has_no_share():
    problem = Problem.of([[1, 2], [1, 2]], np.eye(2), [1, 0], attained_gpu_s=[360, 0], received_s=[[360, 0], [0, 0]])
    assert picked(problem, shares([[0.9, 0], [0, 0.1]])).tolist() == [-1, 0]


@pytest.mark.parametrize("newcomers", [2, 40])
def test_a_gang_breaks_leases_for_its_turn_however_many_jobs_come_after_it(newcomers):
    """Of an equal share among the jobs as old, which it has to itself, it is owed a tenth: a turn in ten."""
    rate, held = [[0, 1], *[[1, 0]] * newcomers], [-1, 0, 0, *[-1] * (newcomers - 2)]
    age_s, ran_s = [11 * ROUND_S, *[60] * newcomers], [0, 60, 60, *[0] * (newcomers - 2)]
    columns = {"age_s": age_s, "held": held, "attained_gpu_s": ran_s, "restart_s": [ROUND_S / LEASE] * (newcomers + 1)}
    problem = Problem.of(rate, [[1, 2]], [2], **columns)
    X = [[0, 1e-6], *[[0.5, 0]] * newcomers]
    assert picked(problem, shares_of_one_type(X)).tolist() == [1, *[-1] * newcomers]


def test_a_job_that_would_end_within_a_lease_keeps_its_gpu_to_its_end():
    columns = {"held": [0, -1], "held_s": [9999, 0], "restart_s": [10, 10], "attained_gpu_s": [9999, 1]}
    for left, kept in ((200, [0, -1]), (9999, [-1, 0])):
        problem = Problem.of([[1], [1]], [[1]], [1], received_s=[[9999], [1]], remaining_steps=[left, 9999], **columns)
        assert picked(problem, shares([[0.5], [0.5]])).tolist() == kept


def test_a_lease_holds_no_job_off_faster_gpus_that_would_idle_unless_it_ends_soon():
    columns = {"held": [0], "held_s": [1], "restart_s": [10], "attained_gpu_s": [1]}
    for left, k in ((1000, 1), (15, 0)):
        problem = Problem.of([[1, 3]], np.eye(2), [1, 1], remaining_steps=[left], **columns)
        assert picked(problem, shares([[0.5, 0.5]])).tolist() == [k]


def test_between_equals_the_team_furthest_behind_goes_first():
    problem = Problem.of([[1], [1]], [[1]], [1], team_backlog_s=[0, 60])
    assert picked(problem, shares([[0.5], [0.5]])).tolist() == [-1, 0]


def test_left_over_gpus_go_to_a_job_without_a_share_in_its_fastest_configuration():
    problem = Problem.of([[1, 0, 0], [1, 2, 3]], [[2, 1, 2]], [4])
    assert picked(problem, shares([[1, 0, 0], [0, 0, 0]])).tolist() == [0, 2]


def test_a_locked_job_keeps_what_it_holds_whatever_its_share():
    problem = Problem.of([[1], [1]], [[1]], [1], held=[-1, 0], locked=[False, True])
    assert picked(problem, shares([[1], [0]])).tolist() == [-1, 0]


def test_a_team_at_its_limit_leaves_the_rest_to_others():
    quotas = Quotas(np.array([[0], [0], [1]]), most_gpus=np.array([2, 9]), used_gpus=np.array([1, 0]))
    problem = Problem.of(np.ones((3, 1)), [[1]], [3])
    assert picked(problem, shares([[0.9], [0.8], [0.1]]), quotas).tolist() == [0, -1, 0]


@pytest.mark.parametrize(
    ("changed", "since_s", "due"), [(True, 1920, True), (True, 1919, False), (False, 9999, False), (False, None, True)]
)
def test_shares_are_set_anew_after_a_change_and_not_too_soon(changed, since_s, due):
    assert reset_due(changed=changed, since_s=since_s, turn_s=ROUND_S) is due


@few
@given(clusters())
def test_no_gpu_idles_that_a_waiting_job_could_use(cluster):
    problem = cluster.problem
    assignment = picked(problem, max_min_fairness(problem))
    fits = (problem.usage <= free_gpus(problem, assignment)[:, None]).all(axis=0)
    assert not (problem.rate[assignment < 0][:, fits] > 0).any()


@few
@given(clusters())
def test_picks_fit_the_cluster_and_are_valid(cluster):
    problem = cluster.problem
    assignment = picked(problem, max_min_fairness(problem))
    running = np.flatnonzero(assignment >= 0)
    assert (free_gpus(problem, assignment) >= 0).all()
    assert (problem.rate[running, assignment[running]] > 0).all()
