"""Our own policy: examples to check by hand, and all choices tried on small instances."""

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given

from allocation.policies.motley_static import motley_static
from allocation.problem import LEASE, Problem, isolated_rate
from tests.allocation.allocation_cases import clusters
from tests.hypothesis_examples import examples

HOUR_S = 3600.0


def value(problem, assignment, *, short_first=0.2, horizon_s=900, begin=1.0, scale_up=0.0, fairness=2.0):
    """The sum that the policy is to make largest, written down once more; -inf for what it forbids."""
    total = 0.0
    for i, k in enumerate(assignment):
        rate, held, steps = problem.rate[i], problem.held[i], problem.remaining_steps[i]
        replicas = problem.replicas[i % len(problem.replicas)]
        most = max(scale_up * problem.most_replicas[i], problem.base_replicas[i]) if scale_up else np.inf
        if (problem.locked[i] and k != held) or (k >= 0 and k != held and (rate[k] == 0 or replicas[k] > most)):
            return -np.inf
        if k < 0:
            continue
        unsaid = problem.attained_gpu_s[i] / problem.base_gpus[i] + horizon_s
        left_s = max(steps / rate.max() if np.isfinite(steps) else unsaid, 1)
        alone_s = left_s * rate.max() / rate[k] if rate[k] else np.inf
        restart_s = 0 if k == held else problem.restart_s[i] * (2 if held >= 0 else 1)
        done = 1 - min(restart_s / min(horizon_s, restart_s + alone_s), 1)
        spared = min(problem.restart_s[i] / min(horizon_s, problem.restart_s[i] + left_s), 1) if held >= 0 else 0
        counts = problem.job_weight[i] * (1.0 if problem.attained_gpu_s[i] else 1.2)
        total += counts * (left_s / HOUR_S) ** -short_first * (begin + spared + rate[k] / rate.max() * done)
        work = problem.base_gpus[i] * rate[k] / problem.base_rate[i] * done
        total += fairness * (backlog_h(problem, i, k) + lateness(problem, i, left_s)) * work
    used = sum((problem.usage[:, k] for k in assignment if k >= 0), np.zeros(len(problem.capacity)))
    return total if (used <= problem.capacity).all() else -np.inf


def backlog_h(problem, i, k):
    """That of the job's team; within its lease a job that stays counts as one of the team furthest behind."""
    leased = k == problem.held[i] and problem.held_s[i] < LEASE * problem.restart_s[i]
    return (problem.team_backlog_s.max() if leased else problem.team_backlog_s[i]) / HOUR_S


def lateness(problem, i, left_s):
    """Its time on an equal part of the cluster; jobs that came later do not lengthen it beyond an hour."""
    parts = [len(problem.age_s), sum(problem.age_s >= problem.age_s[i])]
    alone = [isolated_rate(problem.base_gpus, problem.base_rate, problem.capacity, parts_of)[i] for parts_of in parts]
    of_all, of_as_old = (problem.isolated_s[i] + left_s * problem.rate[i].max() / rate for rate in alone)
    whole_s = min(of_all, max(of_as_old, HOUR_S))
    return max(problem.age_s[i] - 4 * whole_s, 0) / max(whole_s, HOUR_S)


@examples(120)
@given(clusters(max_jobs=4, busy=True))
def test_no_choice_of_all_is_better(cluster):
    problem = cluster.problem
    assume(len(problem.nodes) ** len(problem.weight) <= 3000)
    best = max(
        value(problem, assignment) for assignment in product(range(-1, len(problem.nodes)), repeat=len(problem.weight))
    )
    decision = motley_static(problem, gap=0, patience=0, lease_growth=0)
    assert value(problem, decision.assignment) == pytest.approx(decision.objective, rel=1e-9)
    assert decision.objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("newcomers", [4, 40])
def test_jobs_that_come_later_do_not_hold_up_a_gang_that_has_waited(newcomers):
    """However many come: at 4 h, and 2 h more for its queue to outweigh four jobs of full weight, it runs."""
    rate, weight = [[0, 1], *[[1, 0]] * newcomers], [1e-6, *[1] * newcomers]
    age_s, steps = [6.5 * HOUR_S, *[60] * newcomers], [1800, *[600] * newcomers]
    problem = Problem.of(rate, [[1, 4]], [4], job_weight=weight, age_s=age_s, remaining_steps=steps)
    assert motley_static(problem).assignment[0] == 1


def elastic(m=1, **columns):
    """Jobs that are 1.9 and 3.6 times as fast on two and four of the cluster's four GPUs."""
    return Problem.of(np.tile([1, 1.9, 3.6], (m, 1)), [[1, 2, 4]], [4], **{"remaining_steps": [1e5] * m} | columns)


def test_a_job_starts_in_the_size_that_suits_it_and_gives_way_to_jobs_that_would_begin():
    assert motley_static(elastic()).assignment.tolist() == [2]
    crowd = elastic(4, held=[2, -1, -1, -1], restart_s=[60] * 4)
    assert motley_static(crowd).assignment.tolist() == [0, 0, 0, 0]


def test_a_job_waits_for_another_to_grow_only_where_beginning_is_worth_nothing_in_itself():
    pair = elastic(2, remaining_steps=[1e4, 1e5])
    assert motley_static(pair).assignment.tolist() == [1, 1]
    assert motley_static(pair, begin=0, short_first=1).assignment.tolist() == [2, -1]


def test_the_job_with_less_left_runs_first():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], remaining_steps=[7200, 3600])
    assert motley_static(problem).assignment.tolist() == [-1, 0]
    assert motley_static(problem.subset([1, 0])).assignment.tolist() == [0, -1]


def test_a_running_job_goes_on_before_an_equal_one():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], remaining_steps=[3600, 3600], held=[-1, 0])
    assert motley_static(problem).assignment.tolist() == [-1, 0]


def test_a_job_moves_only_if_it_gains_more_than_two_restarts_take():
    """On the faster GPU it would do a quarter more: within 900 s it gains two restarts of 85 s, and not of 95."""
    moving = {"held": [0], "remaining_steps": [1e6], "held_s": [1e4]}
    assert motley_static(Problem.of([[4, 5]], np.eye(2), [1, 1], restart_s=[85], **moving)).assignment.tolist() == [1]
    assert motley_static(Problem.of([[4, 5]], np.eye(2), [1, 1], restart_s=[95], **moving)).assignment.tolist() == [0]


def test_a_job_that_is_nearly_done_does_not_move():
    """It has 100 s left here, and 50 there after a restart of 60."""
    problem = Problem.of([[1, 2]], np.eye(2), [1, 1], restart_s=[60], held=[0], remaining_steps=[100])
    assert motley_static(problem, lease_growth=0).assignment.tolist() == [0]


def test_of_a_job_that_does_not_say_how_much_is_left_as_much_is_expected_as_it_has_had():
    young_and_old = {"attained_gpu_s": [100, 50_000], "remaining_steps": [np.inf, np.inf]}
    assert motley_static(Problem.of([[1.0], [1.0]], [[1]], [1], **young_and_old)).assignment.tolist() == [0, -1]


def test_a_weight_counts_as_so_many_jobs():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], remaining_steps=[3600, 36_000], job_weight=[1, 2])
    assert motley_static(problem).assignment.tolist() == [-1, 0]


def test_how_much_a_job_grows_at_once_may_be_limited():
    assert motley_static(elastic(most_replicas=[1])).assignment.tolist() == [2]
    assert motley_static(elastic(most_replicas=[1]), scale_up=2).assignment.tolist() == [1]


def test_of_equal_jobs_that_of_the_team_behind_its_share_runs():
    two = {"remaining_steps": [3600, 3600], "attained_gpu_s": [1, 1]}
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], team=[0, 1], team_backlog_s=[0, 60], **two)
    assert motley_static(problem).assignment.tolist() == [-1, 0]
    assert motley_static(problem, fairness=0).assignment.tolist() == [0, -1]


def test_no_job_is_stopped_within_its_lease_for_another_team_that_is_behind():
    held = {"held": [0, -1], "restart_s": [30, 30], "remaining_steps": [7200, 7200], "attained_gpu_s": [1, 1]}
    behind = {"team": [0, 1], "team_backlog_s": [0, 3600]}
    leased = Problem.of([[1.0], [1.0]], [[1]], [1], held_s=[LEASE * 30 - 1, 0], **held, **behind)
    assert motley_static(leased).assignment.tolist() == [0, -1]
    over = Problem.of([[1.0], [1.0]], [[1]], [1], held_s=[LEASE * 30, 0], **held, **behind)
    assert motley_static(over).assignment.tolist() == [-1, 0]


@pytest.mark.parametrize("jobs", [30, 300])
def test_of_equal_jobs_the_oldest_run_on_the_fastest_gpus(jobs):
    usage = [[4, 0, 0], [0, 4, 0], [0, 0, 4]]
    age_s = np.random.default_rng(0).permutation(jobs).astype(float)
    problem = Problem.of([[1.0, 2.0, 4.0]] * jobs, usage, [8, 8, 4], age_s=age_s, restart_s=np.full(jobs, 20.0))
    oldest = np.argsort(-age_s)
    assert motley_static(problem).assignment[oldest[:6]].tolist() == [2, 1, 1, 0, 0, -1]


def test_an_older_job_stops_no_equal_one_that_runs():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], age_s=[100.0, 1.0], held=[-1, 0])
    assert motley_static(problem).assignment.tolist() == [-1, 0]


def test_of_equal_jobs_the_one_that_has_not_run_yet_runs():
    problem = Problem.of([[1.0], [1.0]], [[1]], [1], remaining_steps=[3600, 3600], attained_gpu_s=[600, 0])
    assert motley_static(problem).assignment.tolist() == [-1, 0]


def test_a_long_job_does_not_wait_forever_for_short_ones():
    """Each hour brings another job of a minute, which would come first."""
    columns = {"remaining_steps": [36_000, 60], "attained_gpu_s": [1, 0]}
    young = Problem.of([[1.0], [1.0]], [[1]], [1], age_s=[3600, 0], **columns)
    assert motley_static(young).assignment.tolist() == [-1, 0]
    old = Problem.of([[1.0], [1.0]], [[1]], [1], age_s=[1_000_000, 0], **columns)
    assert motley_static(old).assignment.tolist() == [0, -1]


def leased(held_s, restarts=0, **columns):
    """A long job beyond the half of its work, and a short one that counts more, for the one GPU."""
    of_both = {"held": [0, -1], "restart_s": [10, 10], "remaining_steps": [7200, 60], "attained_gpu_s": [1, 0]}
    return Problem.of([[1.0], [1.0]], [[1]], [1], held_s=[held_s, 0], restarts=[restarts, 0], **of_both | columns)


@pytest.mark.parametrize(("restarts", "lease_s"), [(0, 250), (1, 500), (5, 900)])
def test_a_job_keeps_its_gpus_for_its_lease_which_restarts_lengthen_up_to_the_horizon(restarts, lease_s):
    assert motley_static(leased(lease_s - 1, restarts)).assignment.tolist() == [0, -1]
    assert motley_static(leased(lease_s, restarts)).assignment.tolist() == [-1, 0]
    assert motley_static(leased(1, restarts), lease_growth=0).assignment.tolist() == [-1, 0]


def test_a_lease_longer_than_the_horizon_is_not_lengthened():
    long = {"restart_s": [60, 60]}
    assert motley_static(leased(1499, 5, **long)).assignment.tolist() == [0, -1]
    assert motley_static(leased(1500, 5, **long)).assignment.tolist() == [-1, 0]


def gang_and_small_jobs(age_s, **columns):
    """A gang of two that takes 100 s where one-GPU jobs hold or want the two GPUs: one is held, for its lease."""
    rate = [[0, 1], [1, 0], [1, 0], [1, 0]]
    of_all = {
        "remaining_steps": [100, 1000, 100, 100],
        "age_s": [age_s, 10, 5, 5],
        "held": [-1, 0, -1, -1],
        "held_s": [0, 5, 0, 0],
        "attained_gpu_s": [0, 5, 0, 0],
        "restart_s": [2] * 4,
    }
    return Problem.of(rate, [[1, 2]], [2], **of_all | columns)


def test_idle_gpus_are_kept_for_a_gang_that_has_waited_as_long_as_it_takes():
    young, due = motley_static(gang_and_small_jobs(99)), motley_static(gang_and_small_jobs(101))
    assert young.assignment.tolist() in ([-1, 0, 0, -1], [-1, 0, -1, 0])
    assert due.assignment.tolist() == [-1, 0, -1, -1]
    assert due.kept_for.tolist() == [0]
    assert motley_static(gang_and_small_jobs(101), patience=0).assignment.tolist() != [-1, 0, -1, -1]


def test_a_gang_that_is_due_takes_gpus_of_jobs_beyond_their_lease():
    assert motley_static(gang_and_small_jobs(101, held_s=[0, 50, 0, 0])).assignment.tolist() == [1, -1, -1, -1]


def test_no_job_of_a_team_ahead_of_its_share_is_due_while_another_is_behind():
    teams = {"team": [0, 1, 1, 1], "team_backlog_s": [0, 120, 120, 120]}
    assert motley_static(gang_and_small_jobs(101, **teams)).kept_for.tolist() == [-1]
    assert motley_static(gang_and_small_jobs(101, **teams), fairness=0).kept_for.tolist() == [0]


def test_an_elastic_job_changes_its_size_within_its_lease():
    crowd = elastic(4, held=[2, -1, -1, -1], held_s=[1, 0, 0, 0], restart_s=[60] * 4)
    assert motley_static(crowd).assignment.tolist() == [0, 0, 0, 0]
