"""Placement: whole gangs, few nodes, and nobody moves or stops without need."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from allocation_cases import build_floor, clusters
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocation.configurations import Configurations
from allocation.explain import explain
from allocation.limits import Limits
from allocation.placement import assign, place
from allocation.planning import plan_round
from allocation.policies.fifo import fifo
from allocation.policies.las import las
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.srtf import srtf
from allocation.problem import Problem

few = settings(max_examples=100, deadline=None, derandomize=True)
IDLE = -1


def one_type(gangs, node_gpus, **columns):
    """Jobs of these gangs, each valid in its own size only, and the picks that ask for it."""
    offered = Configurations.of([node_gpus], gangs)
    picks = np.array([offered.gpus.tolist().index(gang) for gang in gangs])
    rate = np.eye(len(offered.nodes))[picks]
    return Problem.of(rate, offered.usage, [sum(node_gpus)], nodes=offered.nodes, **columns), picks


def holding(problem, picks, holder):
    """The same problem in which the rows on the floor hold their pick."""
    held = np.where(np.isin(np.arange(len(picks)), holder), picks, -1)
    return Problem.of(problem.rate, problem.usage, problem.capacity, nodes=problem.nodes, held=held)


def test_a_gang_goes_to_the_tightest_node_that_holds_it():
    problem, picks = one_type([2], [4, 2])
    assert place(problem, picks, build_floor([[4, 2]], 1)).tolist() == [IDLE] * 4 + [0, 0]


def test_the_largest_gang_is_placed_first():
    problem, picks = one_type([1, 4], [4, 1])
    assert place(problem, picks, build_floor([[4, 1]], 2)).tolist() == [1, 1, 1, 1, 0]


def test_a_gang_that_fits_one_node_waits_rather_than_be_split():
    problem, picks = one_type([2], [2, 2])
    floor = build_floor([[2, 2]], 1, node_cpus=[1, 1])
    assert place(problem, picks, floor).tolist() == [IDLE] * 4


def test_a_gang_larger_than_a_node_lies_in_equal_parts():
    problem, picks = one_type([6], [4, 4])
    assert place(problem, picks, build_floor([[4, 4]], 1)).tolist() == [0, 0, 0, IDLE, 0, 0, 0, IDLE]


def test_an_uneven_gang_takes_the_fewest_nodes():
    problem, picks = one_type([6], [4, 2, 2, 3])
    floor = build_floor([[4, 2, 2, 3]], 1, uneven=[True])
    assert place(problem, picks, floor).tolist() == [0, 0, 0, 0, 0, 0] + [IDLE] * 5


def test_gpus_still_being_vacated_are_the_last_to_be_used():
    problem, picks = one_type([2], [4])
    floor = build_floor([[4]], 1, releasing=[True, False, True, False])
    assert place(problem, picks, floor).tolist() == [IDLE, 0, IDLE, 0]


def test_a_job_that_keeps_its_pick_stays_on_exactly_its_gpus():
    problem, picks = one_type([2, 2], [4])
    holder = [IDLE, 0, IDLE, 0]
    assert place(holding(problem, picks, holder), picks, build_floor([[4]], 2, holder=holder)).tolist() == [1, 0, 1, 0]


def test_small_jobs_move_together_when_that_lets_a_large_gang_in():
    problem, picks = one_type([1, 1, 4], [4, 4])
    holder = [0, IDLE, IDLE, IDLE, 1, IDLE, IDLE, IDLE]
    owner = place(holding(problem, picks, holder), picks, build_floor([[4, 4]], 3, holder=holder))
    assert [(owner == row).sum() for row in range(3)] == [1, 1, 4]


def test_as_many_large_gangs_are_let_in_as_fit_without_stopping_a_small_job():
    problem, picks = one_type([1, 1, 4, 4], [4, 4])
    holder = [0, IDLE, IDLE, IDLE, 1, IDLE, IDLE, IDLE]
    owner = place(holding(problem, picks, holder), picks, build_floor([[4, 4]], 4, holder=holder))
    assert [(owner == row).sum() for row in range(4)] == [1, 1, 4, 0]


def test_a_locked_job_never_moves():
    problem, picks = one_type([1, 1, 4], [4, 4])
    holder = [0, IDLE, IDLE, IDLE, 1, IDLE, IDLE, IDLE]
    problem = Problem.of(
        problem.rate, problem.usage, [8], nodes=problem.nodes, held=[picks[0], picks[1], -1], locked=[True, True, False]
    )
    assert place(problem, picks, build_floor([[4, 4]], 3, holder=holder)).tolist() == holder


def test_a_held_job_that_was_not_picked_keeps_gpus_that_nobody_was_given():
    problem, picks = one_type([2, 2], [4, 4])
    problem = holding(problem, picks, [0])
    floor = build_floor([[4, 4]], 2, holder=[0, 0] + [IDLE] * 6)
    assert place(problem, np.array([-1, picks[1]]), floor).tolist() == [0, 0, 1, 1] + [IDLE] * 4


def test_a_held_job_that_was_not_picked_gives_way_when_its_gpus_are_used():
    problem, picks = one_type([2, 4], [4])
    floor = build_floor([[4]], 2, holder=[0, 0, IDLE, IDLE])
    assert place(holding(problem, picks, [0]), np.array([-1, picks[1]]), floor).tolist() == [1, 1, 1, 1]


def test_a_held_job_over_its_teams_limit_does_not_keep_its_gpus():
    problem, picks = one_type([2, 2], [4])
    limits = Limits(np.array([[0], [0]]), most_gpus=np.array([2]), used_gpus=np.array([0]))
    floor = build_floor([[4]], 2, holder=[0, 0, IDLE, IDLE])
    owner = place(holding(problem, picks, [0]), np.array([-1, picks[1]]), floor, limits)
    assert owner.tolist() == [IDLE, IDLE, 1, 1]


def test_a_node_short_of_memory_is_passed_over():
    problem, picks = one_type([2], [2, 2])
    floor = build_floor([[2, 2]], 1, node_memory_mib=[100, 200], memory_per_gpu_mib=[100])
    assert place(problem, picks, floor).tolist() == [IDLE, IDLE, 0, 0]


def scarce(rng, nodes, jobs):
    """CPUs and memory that may run out before the GPUs do."""
    return {
        "node_cpus": rng.uniform(4, 40, nodes),
        "cpus_per_gpu": rng.choice([0.0, 1.0, 4.0], jobs),
        "node_memory_mib": rng.uniform(100, 2000, nodes),
        "memory_per_gpu_mib": rng.choice([0.0, 50.0, 200.0], jobs),
    }


@st.composite
def rounds(draw, tight=False):
    """A cluster in its second round, the first round's jobs on their GPUs; tight: CPUs and teams are limited."""
    cluster = draw(clusters(max_jobs=12))
    policy = draw(st.sampled_from([fifo, max_min_fairness]))
    m, rng = len(cluster.problem.weight), np.random.default_rng(draw(st.integers(0, 1000)))
    columns = {"uneven": cluster.floor.uneven} | (scarce(rng, len(cluster.floor.node_type), m) if tight else {})
    capped = Limits(rng.integers(-1, 2, (m, 1)), rng.integers(0, 12, 2), np.zeros(2, dtype=int))
    limits = capped if tight else Limits.none(m)
    first = plan_round(cluster.problem, build_floor(cluster.node_gpus, m, **columns), limits, policy, round_s=360)
    later = Problem.of(
        cluster.problem.rate,
        cluster.problem.usage,
        cluster.problem.capacity,
        nodes=cluster.problem.nodes,
        held=first.picks,
        received_s=rng.uniform(0, 2000, (m, len(cluster.problem.capacity))),
    )
    floor = build_floor(cluster.node_gpus, m, holder=first.owner, **columns)
    return SimpleNamespace(
        problem=later, floor=floor, limits=limits, plan=plan_round(later, floor, limits, policy, round_s=360)
    )


@few
@given(rounds(tight=True))
def test_every_row_has_its_whole_gang_of_the_right_types_or_nothing(case):
    problem, floor, plan = case.problem, case.floor, case.plan
    for i, k in enumerate(plan.picks):
        by_type = np.bincount(floor.gpu_type[plan.owner == i], minlength=len(problem.capacity))
        assert by_type.tolist() == (problem.usage[:, k].tolist() if k >= 0 else [0] * len(problem.capacity))


@few
@given(rounds(tight=True))
def test_gangs_lie_in_equal_parts_on_as_many_nodes_as_configured(case):
    problem, floor, plan = case.problem, case.floor, case.plan
    for i in np.flatnonzero((plan.picks >= 0) & ~floor.uneven):
        per_node = np.unique(floor.gpu_node[plan.owner == i], return_counts=True)[1]
        assert per_node.size == problem.nodes[plan.picks[i]]
        assert len(set(per_node)) == 1


@few
@given(rounds())
def test_whoever_loses_gpus_loses_them_to_another(case):
    problem, floor, plan = case.problem, case.floor, case.plan
    for i in np.flatnonzero((problem.held >= 0) & (plan.picks < 0)):
        assert (plan.owner[floor.holder == i] >= 0).any()


@few
@given(rounds(), st.sampled_from([fifo, srtf, las, max_min_fairness]))
def test_a_round_in_which_nothing_moves_is_as_if_it_had_been_placed(case, policy):
    """Limits without a cap rule out the short cut."""
    m = len(case.problem.weight)
    none = np.zeros(0, dtype=int)
    without_a_cap = Limits(np.full((m, 1), -1), none, none)
    held, holder = case.plan.picks, case.plan.owner
    for _ in range(2):  # the first may move some, the second is to find all where they are
        problem = replace(case.problem, held=held)
        floor = replace(case.floor, holder=holder)
        short, whole = (
            plan_round(problem, floor, limits, policy, round_s=360) for limits in (Limits.none(m), without_a_cap)
        )
        assert (short.picks.tolist(), short.owner.tolist()) == (whole.picks.tolist(), whole.owner.tolist())
        held, holder = short.picks, short.owner


@few
@given(rounds(tight=True))
def test_every_row_runs_or_has_a_reason(case):
    outcome = {"picks": case.plan.picks, "owner": case.plan.owner}
    left = explain(case.problem, case.plan.decision, case.floor, case.limits, **outcome, round_s=360)
    assert sorted(left) == np.flatnonzero(case.plan.picks < 0).tolist()
    assert all(left.values())


@few
@given(rounds(tight=True))
def test_no_node_gives_more_cpus_or_memory_than_it_has(case):
    floor, taken = case.floor, case.plan.owner >= 0
    nodes, rows, N = floor.gpu_node[taken], case.plan.owner[taken], len(floor.node_type)
    assert (np.bincount(nodes, floor.cpus_per_gpu[rows], N) <= floor.node_cpus + 1e-6).all()
    assert (np.bincount(nodes, floor.memory_per_gpu_mib[rows], N) <= floor.node_memory_mib + 1e-6).all()


@few
@given(rounds(tight=True))
def test_no_group_has_more_gpus_than_its_limit(case):
    gpus = np.where(case.plan.picks >= 0, case.problem.gpus[case.plan.picks], 0)
    assert all(gpus[case.limits.group[:, 0] == g].sum() <= most for g, most in enumerate(case.limits.most_gpus))


def test_a_floor_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="releasing"):
        build_floor([[4]], 1, releasing=[False])


def one_by_one(problem, picks, floor):
    """The rule for who holds nothing, as it is written: each in turn looks at every node."""
    owner = np.full(len(floor.gpu_node), IDLE)
    for i in sorted(np.flatnonzero(picks >= 0), key=lambda i: (-problem.gpus[picks[i]], i)):
        k = picks[i]
        each = problem.gpus[k] // problem.nodes[k]
        free = np.bincount(floor.gpu_node[owner < 0], minlength=len(floor.node_type))
        vacant = np.bincount(floor.gpu_node[(owner < 0) & floor.vacant], minlength=len(free))
        of_type = problem.usage[floor.node_type, k] > 0
        fed = (floor.node_cpus - np.bincount(floor.gpu_node[owner >= 0], minlength=len(free))) >= each
        nodes = np.flatnonzero(of_type & fed & (free >= each))
        nodes = nodes[np.lexsort((nodes, free[nodes], np.maximum(each - vacant[nodes], 0)))]
        for v in nodes[: problem.nodes[k]] if len(nodes) >= problem.nodes[k] else []:
            idle = np.flatnonzero((floor.gpu_node == v) & (owner < 0))
            owner[idle[np.argsort(~floor.vacant[idle], kind="stable")][:each]] = i
    return owner


@few
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_newcomers_find_the_nodes_that_they_would_find_one_by_one(seed, scarce_cpus):
    rng = np.random.default_rng(seed)
    sizes = [rng.choice([2, 4], 5).tolist(), rng.choice([4, 8], 5).tolist()]
    offered = Configurations.of(sizes, [1, 2, 4, 8])
    picks = rng.permutation(np.repeat(np.arange(len(offered.nodes)), rng.integers(0, 3, len(offered.nodes))))
    rate = np.eye(len(offered.nodes))[picks]
    problem = Problem.of(rate, offered.usage, [sum(of_type) for of_type in sizes], nodes=offered.nodes)
    releasing = rng.random(sum(map(sum, sizes))) < 0.3
    cpus = rng.integers(1, 9, 10) if scarce_cpus else np.full(10, 99)
    floor = build_floor(sizes, len(picks), releasing=releasing, node_cpus=cpus)
    expected = one_by_one(problem, picks, floor)
    assume(set(expected) >= set(range(len(picks))))  # else those that run are moved to make room
    assert assign(problem, picks, floor).tolist() == expected.tolist()
