"""Sia: its recorded rounds, all choices tried on small instances, and what its parameters do."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given

from allocation.decision import Status
from allocation.policies.sia import sia
from allocation.problem import Problem
from tests.allocation.allocation_cases import clusters
from tests.allocation.set_clock import set_clock
from tests.hypothesis_examples import examples
from tests.reference import reference

EPSILON = 1e-4
"""What Sia writes for a configuration that a job cannot have."""


@pytest.fixture(scope="module")
def recorded():
    return json.loads((reference("sia") / "golden_milp.json").read_text())


def problem_of(config, record):
    """A recorded round; ages and restarts are such that Sia's factor comes out as recorded."""
    types = list(config["gpus"])
    usage = np.zeros((len(types), len(config["configs"])), dtype=int)
    for k, (gpu_type, _, gpus) in enumerate(config["configs"]):
        usage[types.index(gpu_type), k] = gpus
    rate = np.array(record["G"])
    factor, age_s = np.array(record["realloc"]), 1e6
    return Problem.of(
        np.where(rate > EPSILON, rate, 0),
        usage,
        [config["gpus"][gpu_type] for gpu_type in types],
        nodes=[nodes for _, nodes, _ in config["configs"]],
        age_s=np.full(len(rate), age_s),
        restarts=np.ones(len(rate), dtype=int),
        restart_s=age_s * (1 - factor) / (1 + factor),
        held=[-1 if k is None else k for k in record["prev"]],
        locked=np.isin(np.arange(len(rate)), [record["jobs"].index(job) for job in record["locked"]]),
    )


@pytest.mark.parametrize("number", range(10))
def test_a_recorded_round_is_solved_to_its_objective(recorded, number):
    record = recorded["rounds"][number]
    config = recorded["config"]
    decision = sia(
        problem_of(config, record), power=config["p"], waiting=config["lambda_n"], rounded=True, gap=0, scale_up=0
    )
    assert decision.objective == pytest.approx(record["objective"], abs=1e-6)
    assert decision.status == Status.OPTIMAL


def cost(problem, assignment, *, power=-0.5, waiting=1.1, scale_up=2.0):
    """Sia's sum, written down once more; inf for what it forbids."""
    total = 0.0
    for i, k in enumerate(assignment):
        rate, held, replicas = problem.rate[i], problem.held[i], problem.replicas[i % len(problem.replicas)]
        most = max(scale_up * problem.most_replicas[i], problem.base_replicas[i])
        if (problem.locked[i] and k != held) or (k >= 0 and k != held and (rate[k] == 0 or replicas[k] > most)):
            return np.inf
        if k < 0:
            total += waiting * problem.weight[i]
            continue
        t, n, r = problem.age_s[i], problem.restarts[i], problem.restart_s[i]
        factor = 1 if held in {-1, k} or t < r else max(t - n * r, 0) / (t + r)
        relative = rate[k] / rate[rate > 0].min() * problem.base_gpus[i]
        total += problem.weight[i] * min(max(factor * relative, 1e-12) ** power, 3000)
    used = sum((problem.usage[:, k] for k in assignment if k >= 0), np.zeros(len(problem.capacity)))
    return total if (used <= problem.capacity).all() else np.inf


@examples(120)
@given(clusters(max_jobs=4, busy=True))
def test_no_choice_of_all_is_better(cluster):
    problem = cluster.problem
    choices = product(range(-1, len(problem.nodes)), repeat=len(problem.weight))
    assume(len(problem.nodes) ** len(problem.weight) <= 3000)
    best = min(cost(problem, assignment) for assignment in choices)
    decision = sia(problem, gap=0)
    assert cost(problem, decision.assignment) == pytest.approx(decision.objective, rel=1e-9)
    assert decision.objective == pytest.approx(best, rel=1e-6)


def test_an_elastic_job_takes_idle_gpus_and_gives_them_back():
    usage = [[1, 2, 4]]
    alone = Problem.of([[1, 1.9, 3.6]], usage, [4])
    assert sia(alone).assignment.tolist() == [2]
    crowd = Problem.of(np.tile([1, 1.9, 3.6], (4, 1)), usage, [4], age_s=[9000, 0, 0, 0], held=[2, -1, -1, -1])
    assert sia(crowd, waiting=1.5).assignment.tolist() == [0, 0, 0, 0]


def test_at_the_published_cost_of_waiting_to_grow_counts_for_more_than_to_begin():
    """A second GPU takes 1 - 1.9 ** -0.5 = 0.27 off the sum, a first one of a job that waits 0.1."""
    crowd = Problem.of(np.tile([1, 1.9], (2, 1)), [[1, 2]], [2])
    assert sorted(sia(crowd).assignment.tolist()) == [-1, 1]


def test_a_job_at_most_doubles_what_its_kind_ever_had():
    problem = Problem.of([[1, 1.9, 3.6]], [[1, 2, 4]], [4], most_replicas=[1])
    assert sia(problem).assignment.tolist() == [1]
    assert sia(problem, scale_up=0).assignment.tolist() == [2]


def test_a_hybrid_parallel_job_at_most_doubles_the_replicas_its_kind_ever_had_on_any_type():
    """One replica takes two GPUs of the first type and eight of the second; the second is faster."""
    usage = [[2, 4, 8, 0, 0, 0], [0, 0, 0, 8, 16, 24]]
    rate = [[2, 3.9, 7.6, 3, 5.9, 8.8]]

    def replicas_after(most):
        problem = Problem.of(rate, usage, [8, 24], gpus_per_replica=[[2, 8]], most_replicas=[most])
        return float(problem.replicas[0, sia(problem).assignment[0]])

    assert [replicas_after(most) for most in (0, 1, 2)] == [1, 2, 3]


def test_a_job_that_has_just_restarted_stays_where_it_is():
    problem = Problem.of([[1, 1.1]], np.eye(2), [1, 1], held=[0], age_s=[400], restart_s=[100])
    assert sia(problem).assignment.tolist() == [0]
    aged = Problem.of([[1, 1.9]], np.eye(2), [1, 1], held=[0], age_s=[40000], restart_s=[100])
    assert sia(aged).assignment.tolist() == [1]


def test_equals_are_not_swapped():
    rate, held = np.ones((12, 1)), np.where(np.arange(12) % 3 == 1, 0, -1)
    problem = Problem.of(rate, [[1]], [4], held=held, age_s=np.arange(12) * 100, restart_s=np.full(12, 30))
    assert (sia(problem).assignment == held).all()


def test_no_job_waits_beside_gpus_that_it_could_use():
    """Waiting costs more than any gang of one GPU or more."""
    assert sia(Problem.of([[1.0], [1.0]], [[1]], [4]), waiting=1.05).assignment.tolist() == [0, 0]


def test_a_price_is_what_outbids_the_job_that_waits():
    problem = Problem.of([[1.0], [1.0], [1.0]], [[1]], [2], weight=[3, 2, 1])
    decision = sia(problem)
    assert decision.assignment.tolist() == [0, 0, -1]
    assert decision.value[2, 0] <= decision.prices[0] + 1e-9 <= decision.value[1, 0] + 2e-9


def test_many_jobs_are_decided_within_the_gap():
    rng = np.random.default_rng(0)
    usage = np.kron(np.eye(3, dtype=int), [1, 2, 4, 8])
    speed = rng.uniform(0.5, 8, (1000, 3)).repeat(4, axis=1)
    rate = speed * usage.sum(axis=0) ** rng.uniform(0.6, 1, (1000, 1))
    decision = sia(Problem.of(rate, usage, [400, 400, 200]))
    assert decision.gap <= 1e-3
    assert (usage[:, decision.assignment[decision.assignment >= 0]].sum(axis=1) <= [400, 400, 200]).all()


def test_when_time_runs_out_the_answer_by_prices_counts_and_says_so(monkeypatch):
    """Values without structure, gangs that do not divide: after a few cuts nothing is proven to be best."""
    set_clock(monkeypatch, step_s=1)
    rng = np.random.default_rng(3)
    rate = rng.uniform(1, 20, (300, 6))
    problem = Problem.of(rate, [[3, 5, 7, 0, 0, 0], [0, 0, 0, 3, 5, 11]], [389, 397])
    decision = sia(problem, gap=0, time_limit_s=15)
    assert decision.status == Status.LIMIT
    assert 0 < decision.gap < 0.05
    assert (problem.usage[:, decision.assignment[decision.assignment >= 0]].sum(axis=1) <= problem.capacity).all()
