"""Placement: whole gangs, few nodes, and no job moves or stops without need."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from allocation.configurations import Configurations
from allocation.demands import Demands
from allocation.inventory import InvalidInventory
from allocation.plan_round import plan_round
from allocation.policies.fifo import fifo
from allocation.policies.las import las
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.srtf import srtf
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.rounds.pending_reasons import explain
from allocation.rounds.placement import place_gangs, return_idle_gpus
from tests.allocation.allocation_cases import build_inventory, clusters
from tests.hypothesis_examples import examples

few = examples(100)
IDLE = -1


def one_type(gangs, node_gpus, **columns):
    """Jobs of these gangs, each valid in its own size only, and the picks that ask for it."""
    offered = Configurations.of([node_gpus], gangs)
    assignment = np.array([offered.gpus.tolist().index(gang) for gang in gangs])
    rate = np.eye(len(offered.nodes))[assignment]
    return Problem.of(rate, offered.usage, [sum(node_gpus)], nodes=offered.nodes, **columns), assignment


def place(problem, assignment, inventory, quotas=None):
    """The owner of each GPU after gangs are placed and idle GPUs are returned to the jobs that hold them."""
    owner = place_gangs(problem, assignment, inventory)
    return return_idle_gpus(problem, assignment, inventory, owner, quotas or Quotas.none(len(assignment)))


def holding(problem, assignment, holder):
    """The same problem in which the rows on the floor hold their pick."""
    held = np.where(np.isin(np.arange(len(assignment)), holder), assignment, -1)
    return Problem.of(problem.rate, problem.usage, problem.capacity, nodes=problem.nodes, held=held)


def wanting(problem, *amounts, nodes, held=None):
    """Demands of CPUs per GPU, 0: the share of 3, on nodes whose GPUs have 3 each."""
    share, whole = np.tile([3.0, 16.0], (nodes, 1)), np.zeros((len(amounts), len(problem.nodes), 2))
    whole[:, :, 0] = np.array(amounts)[:, None]
    keeps = np.zeros((len(amounts), 2)) if held is None else np.column_stack([held, np.zeros(len(amounts))])
    return Demands(share=share, profile=np.arange(len(amounts)), amount=whole, held=keeps)


def fed(gangs, amounts, node_gpus, **columns):
    """GPUs of each job on each node, of jobs that would have so many CPUs per GPU."""
    problem, assignment = one_type(gangs, node_gpus)
    held = columns.pop("held", None)
    demands = wanting(problem, *amounts, nodes=len(node_gpus), held=held)
    capacity = {"node_cpus": 3.0 * np.array(node_gpus), "node_memory_mib": 16384.0 * np.array(node_gpus)}
    asked = {"cpus_per_gpu": np.zeros(len(gangs)), "memory_per_gpu_mib": np.zeros(len(gangs))}
    inventory = replace(build_inventory([node_gpus], len(gangs), **capacity | asked | columns), demands=demands)
    if "holder" in columns:
        problem = holding(problem, assignment, columns["holder"])
    owner = place(problem, assignment, inventory)
    found = np.zeros((len(gangs), len(node_gpus)), dtype=int)
    np.add.at(found, (owner[owner >= 0], inventory.gpu_node[owner >= 0]), 1)
    return found.tolist()


HUNGRY, LIGHT, ANY = 5.0, 1.0, 0.0


def test_jobs_that_want_many_cpus_are_spread_among_those_that_need_few():
    assert fed([1, 1, 1, 1], [HUNGRY, HUNGRY, LIGHT, LIGHT], [2, 2]) == [[1, 0], [0, 1], [1, 0], [0, 1]]


def test_the_largest_demand_chooses_first_whatever_the_order_of_submission():
    assert fed([1, 1, 1], [LIGHT, ANY, 5.0], [2, 2]) == [[1, 0], [0, 1], [1, 0]]


def test_a_job_whose_demand_is_nowhere_left_takes_nothing_from_others_if_it_can_have_its_share():
    assert fed([1, 1, 1], [9.0, ANY, 9.0], [4, 2]) == [[1, 0], [1, 0], [0, 1]]


def test_what_jobs_hold_counts_where_they_are():
    columns = {"holder": [0, IDLE, IDLE, 1, IDLE, IDLE], "held": [9.0, 1.0, 0.0]}
    assert fed([1, 1, 1], [ANY, ANY, 8.0], [3, 3], **columns) == [[1, 0], [0, 1], [0, 1]]


def test_a_job_that_moves_counts_with_its_demand_and_not_with_what_it_has():
    columns = {"holder": [0, IDLE, 1, IDLE], "held": [1.0, 1.0, 0.0]}
    assert fed([1, 1, 2], [ANY, ANY, ANY], [2, 2], **columns)[2] in ([2, 0], [0, 2])


def test_many_jobs_with_one_demand_are_placed_as_one_by_one():
    """They are served from a heap of nodes, others by a search of all nodes."""
    together = fed([1] * 60, [HUNGRY] * 30 + [LIGHT] * 30, [2] * 30)
    alone = fed([1] * 60, [HUNGRY + i / 1000 for i in range(30)] + [LIGHT] * 30, [2] * 30)
    assert np.array(together)[:30].sum(axis=0).tolist() == [1] * 30
    assert np.array(alone)[:30].sum(axis=0).tolist() == [1] * 30


def test_a_gang_wants_its_cpus_on_each_of_its_nodes():
    assert fed([4, 1, 1], [LIGHT, HUNGRY, HUNGRY], [2, 2, 2, 2])[0] != [0, 0, 2, 2]


def test_demands_of_another_shape_are_refused():
    problem, _ = one_type([1], [2])
    with pytest.raises(InvalidInventory, match="demands must be those of 2 jobs"):
        replace(build_inventory([[2]], 2), demands=wanting(problem, ANY, nodes=1))


def test_a_gpu_for_which_the_engine_can_book_no_cpu_is_left_idle():
    problem, assignment = one_type([1, 1, 1], [3])
    needs = {"cpus_per_gpu": [2, 0, 0], "node_cpus": [3], "node_least": [[1, 0]]}
    inventory = build_inventory([[3]], 3, **needs)
    assert place(problem, assignment, inventory).tolist() == [0, 1, IDLE]


def test_what_is_booked_beyond_what_a_job_asks_for_is_free_for_those_that_take_its_gpus():
    problem, assignment = one_type([8, 8], [8])
    booked = {"cpus_per_gpu": [0, 8], "node_cpus": [64], "node_least": [[1, 0]], "row_booked": [[8, 0], [0, 0]]}
    inventory = build_inventory([[8]], 2, holder=[0] * 8, **booked)
    preempted = np.where([True, False], -1, assignment)
    assert place(holding(problem, assignment, [0] * 8), preempted, inventory).tolist() == [1] * 8


def test_what_is_booked_for_a_job_that_goes_on_is_left_to_it():
    problem, assignment = one_type([2, 1, 1], [4])
    booked = {"cpus_per_gpu": [0, 4, 2], "node_cpus": [9], "node_least": [[1, 0]]}
    inventory = build_inventory([[4]], 3, holder=[0, 0, IDLE, IDLE], row_booked=[[3, 0], [0, 0], [0, 0]], **booked)
    owner = place(holding(problem, assignment, [0]), assignment, inventory)
    assert owner.tolist() == [0, 0, 2, IDLE]


def test_a_job_that_is_idle_in_the_plan_gets_its_gpus_back_only_with_what_is_booked_for_it():
    problem, _ = one_type([1, 1], [2])
    booked = {"cpus_per_gpu": [0, 4], "node_cpus": [6], "node_least": [[1, 0]], "row_booked": [[3, 0], [0, 0]]}
    inventory = build_inventory([[2]], 2, holder=[0, IDLE], **booked)
    owner = place(holding(problem, np.array([0, 0]), [0]), np.array([-1, 0]), inventory)
    assert owner.tolist() in ([1, IDLE], [IDLE, 1])


def beside_booked(node_cpus, booked):
    """Owners where two jobs hold one of two GPUs each, with so many CPUs, and a third wants two GPUs of a node."""
    problem, assignment = one_type([1, 1, 2], [2, 2])
    columns = {"cpus_per_gpu": [0, 0, 0], "node_cpus": [node_cpus] * 2, "node_least": [[1, 0]] * 2}
    columns |= {"holder": [0, IDLE, 1, IDLE], "row_booked": [[booked[0], 0], [booked[1], 0], [0, 0]]}
    return place(holding(problem, assignment, [0, 1]), assignment, build_inventory([[2, 2]], 3, **columns)).tolist()


def test_a_job_that_is_moved_leaves_what_was_booked_beyond_what_it_asks_for():
    assert beside_booked(3, [3, 2]) in ([2, 2, 1, 0], [2, 2, 0, 1])


def test_no_job_is_moved_beside_one_that_goes_on_with_all_cpus_of_the_node():
    """It would wait at its engine until the other ends."""
    assert beside_booked(2, [2, 2]) == [0, IDLE, 1, IDLE]


def test_jobs_that_ask_for_more_or_less_are_served_in_turn_where_cpus_run_out():
    problem, assignment = one_type([1] * 6, [2, 2, 2])
    columns = {"cpus_per_gpu": [2, 0, 2, 0, 2, 0], "node_cpus": [0, 2, 3], "node_least": [[1, 0]] * 3}
    owner = place(problem, assignment, build_inventory([[2, 2, 2]], 6, **columns))
    assert owner.tolist() == [IDLE, IDLE, 0, IDLE, 1, 2]


def test_a_job_goes_only_to_a_node_of_its_set():
    problem, assignment = one_type([2], [4, 2])
    inventory = build_inventory([[4, 2]], 1, node_set=[0], node_sets=[[True, False]])
    assert place(problem, assignment, inventory).tolist() == [0, 0] + [IDLE] * 4


def test_a_job_with_a_set_of_nodes_is_placed_before_those_without():
    problem, assignment = one_type([2, 2], [2, 2])
    inventory = build_inventory([[2, 2]], 2, node_set=[-1, 0], node_sets=[[True, False]])
    assert place(problem, assignment, inventory).tolist() == [1, 1, 0, 0]


def test_a_gang_of_several_nodes_that_are_not_all_of_its_set_waits():
    problem, assignment = one_type([4], [2, 2])
    inventory = build_inventory([[2, 2]], 1, node_set=[0], node_sets=[[True, False]])
    assert place(problem, assignment, inventory).tolist() == [IDLE] * 4


def test_a_job_keeps_the_gpus_that_it_holds_on_a_node_that_left_its_set():
    problem, assignment = one_type([2], [2, 2])
    inventory = build_inventory([[2, 2]], 1, holder=[0, 0, IDLE, IDLE], node_set=[0], node_sets=[[False, True]])
    assert place(holding(problem, assignment, [0]), assignment, inventory).tolist() == [0, 0, IDLE, IDLE]


@pytest.mark.parametrize("columns", [{"node_set": [0, 0]}, {"node_set": [1], "node_sets": [[True]]}, {"node_set": [0]}])
def test_sets_of_nodes_of_another_shape_are_refused(columns):
    with pytest.raises(InvalidInventory, match="node_set"):
        build_inventory([[2]], 1, **columns)


def test_a_gang_goes_to_the_tightest_node_that_holds_it():
    problem, assignment = one_type([2], [4, 2])
    assert place(problem, assignment, build_inventory([[4, 2]], 1)).tolist() == [IDLE] * 4 + [0, 0]


def test_the_largest_gang_is_placed_first():
    problem, assignment = one_type([1, 4], [4, 1])
    assert place(problem, assignment, build_inventory([[4, 1]], 2)).tolist() == [1, 1, 1, 1, 0]


def test_a_gang_that_fits_one_node_waits_rather_than_be_split():
    problem, assignment = one_type([2], [2, 2])
    inventory = build_inventory([[2, 2]], 1, node_cpus=[1, 1])
    assert place(problem, assignment, inventory).tolist() == [IDLE] * 4


def test_a_gang_larger_than_a_node_lies_in_equal_parts():
    problem, assignment = one_type([6], [4, 4])
    assert place(problem, assignment, build_inventory([[4, 4]], 1)).tolist() == [0, 0, 0, IDLE, 0, 0, 0, IDLE]


def test_an_uneven_gang_takes_the_fewest_nodes():
    problem, assignment = one_type([6], [4, 2, 2, 3])
    inventory = build_inventory([[4, 2, 2, 3]], 1, uneven=[True])
    assert place(problem, assignment, inventory).tolist() == [0, 0, 0, 0, 0, 0] + [IDLE] * 5


def test_gpus_still_being_vacated_are_the_last_to_be_used():
    problem, assignment = one_type([2], [4])
    inventory = build_inventory([[4]], 1, releasing=[True, False, True, False])
    assert place(problem, assignment, inventory).tolist() == [IDLE, 0, IDLE, 0]


def test_a_job_that_keeps_its_pick_stays_on_exactly_its_gpus():
    problem, assignment = one_type([2, 2], [4])
    holder = [IDLE, 0, IDLE, 0]
    assert place(
        holding(problem, assignment, holder), assignment, build_inventory([[4]], 2, holder=holder)
    ).tolist() == [1, 0, 1, 0]


def test_small_jobs_move_together_when_that_lets_a_large_gang_in():
    problem, assignment = one_type([1, 1, 4], [4, 4])
    holder = [0, IDLE, IDLE, IDLE, 1, IDLE, IDLE, IDLE]
    owner = place(holding(problem, assignment, holder), assignment, build_inventory([[4, 4]], 3, holder=holder))
    assert [(owner == row).sum() for row in range(3)] == [1, 1, 4]


def test_as_many_large_gangs_are_let_in_as_fit_without_stopping_a_small_job():
    problem, assignment = one_type([1, 1, 4, 4], [4, 4])
    holder = [0, IDLE, IDLE, IDLE, 1, IDLE, IDLE, IDLE]
    owner = place(holding(problem, assignment, holder), assignment, build_inventory([[4, 4]], 4, holder=holder))
    assert [(owner == row).sum() for row in range(4)] == [1, 1, 4, 0]


def test_a_locked_job_never_moves():
    problem, assignment = one_type([1, 1, 4], [4, 4])
    holder = [0, IDLE, IDLE, IDLE, 1, IDLE, IDLE, IDLE]
    problem = Problem.of(
        problem.rate,
        problem.usage,
        [8],
        nodes=problem.nodes,
        held=[assignment[0], assignment[1], -1],
        locked=[True, True, False],
    )
    assert place(problem, assignment, build_inventory([[4, 4]], 3, holder=holder)).tolist() == holder


def test_a_held_job_that_was_not_picked_keeps_gpus_that_were_not_given_away():
    problem, assignment = one_type([2, 2], [4, 4])
    problem = holding(problem, assignment, [0])
    inventory = build_inventory([[4, 4]], 2, holder=[0, 0] + [IDLE] * 6)
    assert place(problem, np.array([-1, assignment[1]]), inventory).tolist() == [0, 0, 1, 1] + [IDLE] * 4


def test_a_held_job_that_was_not_picked_gives_way_when_its_gpus_are_used():
    problem, assignment = one_type([2, 4], [4])
    inventory = build_inventory([[4]], 2, holder=[0, 0, IDLE, IDLE])
    assert place(holding(problem, assignment, [0]), np.array([-1, assignment[1]]), inventory).tolist() == [1, 1, 1, 1]


def test_a_held_job_over_its_teams_limit_does_not_keep_its_gpus():
    problem, assignment = one_type([2, 2], [4])
    quotas = Quotas(np.array([[0], [0]]), most_gpus=np.array([2]), used_gpus=np.array([0]))
    inventory = build_inventory([[4]], 2, holder=[0, 0, IDLE, IDLE])
    owner = place(holding(problem, assignment, [0]), np.array([-1, assignment[1]]), inventory, quotas)
    assert owner.tolist() == [IDLE, IDLE, 1, 1]


def test_a_node_short_of_memory_is_passed_over():
    problem, assignment = one_type([2], [2, 2])
    inventory = build_inventory([[2, 2]], 1, node_memory_mib=[100, 200], memory_per_gpu_mib=[100])
    assert place(problem, assignment, inventory).tolist() == [IDLE, IDLE, 0, 0]


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
    columns = {"uneven": cluster.inventory.uneven} | (scarce(rng, len(cluster.inventory.node_type), m) if tight else {})
    capped = Quotas(rng.integers(-1, 2, (m, 1)), rng.integers(0, 12, 2), np.zeros(2, dtype=int))
    quotas = capped if tight else Quotas.none(m)
    first = plan_round(cluster.problem, build_inventory(cluster.node_gpus, m, **columns), quotas, policy, round_s=360)
    later = Problem.of(
        cluster.problem.rate,
        cluster.problem.usage,
        cluster.problem.capacity,
        nodes=cluster.problem.nodes,
        held=first.assignment,
        received_s=rng.uniform(0, 2000, (m, len(cluster.problem.capacity))),
    )
    inventory = build_inventory(cluster.node_gpus, m, holder=first.owner, **columns)
    return SimpleNamespace(
        problem=later,
        inventory=inventory,
        quotas=quotas,
        plan=plan_round(later, inventory, quotas, policy, round_s=360),
    )


@few
@given(rounds(tight=True))
def test_every_row_has_its_whole_gang_of_the_right_types_or_nothing(case):
    problem, inventory, plan = case.problem, case.inventory, case.plan
    for i, k in enumerate(plan.assignment):
        by_type = np.bincount(inventory.gpu_type[plan.owner == i], minlength=len(problem.capacity))
        assert by_type.tolist() == (problem.usage[:, k].tolist() if k >= 0 else [0] * len(problem.capacity))


@few
@given(rounds(tight=True))
def test_gangs_lie_in_equal_parts_on_as_many_nodes_as_configured(case):
    problem, inventory, plan = case.problem, case.inventory, case.plan
    for i in np.flatnonzero((plan.assignment >= 0) & ~inventory.uneven):
        per_node = np.unique(inventory.gpu_node[plan.owner == i], return_counts=True)[1]
        assert per_node.size == problem.nodes[plan.assignment[i]]
        assert len(set(per_node)) == 1


@few
@given(rounds())
def test_a_job_loses_gpus_only_to_another(case):
    problem, inventory, plan = case.problem, case.inventory, case.plan
    for i in np.flatnonzero((problem.held >= 0) & (plan.assignment < 0)):
        assert (plan.owner[inventory.holder == i] >= 0).any()


@few
@given(rounds(), st.sampled_from([fifo, srtf, las, max_min_fairness]))
def test_a_round_in_which_nothing_moves_is_as_if_it_had_been_placed(case, policy):
    """Limits without a cap rule out the short cut."""
    m = len(case.problem.weight)
    none = np.zeros(0, dtype=int)
    without_a_cap = Quotas(np.full((m, 1), -1), none, none)
    held, holder = case.plan.assignment, case.plan.owner
    for _ in range(2):  # the first may move some, the second is to find all where they are
        problem = replace(case.problem, held=held)
        inventory = replace(case.inventory, holder=holder)
        short, whole = (
            plan_round(problem, inventory, quotas, policy, round_s=360) for quotas in (Quotas.none(m), without_a_cap)
        )
        assert (short.assignment.tolist(), short.owner.tolist()) == (whole.assignment.tolist(), whole.owner.tolist())
        held, holder = short.assignment, short.owner


@few
@given(rounds(tight=True))
def test_every_row_runs_or_has_a_reason(case):
    outcome = {"assignment": case.plan.assignment, "owner": case.plan.owner}
    left = explain(case.problem, case.plan.decision, case.inventory, case.quotas, **outcome, round_s=360)
    assert sorted(left) == np.flatnonzero(case.plan.assignment < 0).tolist()
    assert all(left.values())


@few
@given(rounds(tight=True))
def test_no_node_gives_more_cpus_or_memory_than_it_has(case):
    inventory, taken = case.inventory, case.plan.owner >= 0
    nodes, rows, N = inventory.gpu_node[taken], case.plan.owner[taken], len(inventory.node_type)
    assert (np.bincount(nodes, inventory.cpus_per_gpu[rows], N) <= inventory.node_cpus + 1e-6).all()
    assert (np.bincount(nodes, inventory.memory_per_gpu_mib[rows], N) <= inventory.node_memory_mib + 1e-6).all()


@few
@given(rounds(tight=True))
def test_no_group_has_more_gpus_than_its_limit(case):
    gpus = np.where(case.plan.assignment >= 0, case.problem.gpus[case.plan.assignment], 0)
    assert all(gpus[case.quotas.group[:, 0] == g].sum() <= most for g, most in enumerate(case.quotas.most_gpus))


def test_a_floor_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="releasing"):
        build_inventory([[4]], 1, releasing=[False])


def one_by_one(problem, assignment, inventory):
    """The rule for jobs that hold nothing, as it is written: each in turn tries every node."""
    owner = np.full(len(inventory.gpu_node), IDLE)
    for i in sorted(np.flatnonzero(assignment >= 0), key=lambda i: (-problem.gpus[assignment[i]], i)):
        k = assignment[i]
        each = problem.gpus[k] // problem.nodes[k]
        free = np.bincount(inventory.gpu_node[owner < 0], minlength=len(inventory.node_type))
        vacant = np.bincount(inventory.gpu_node[(owner < 0) & inventory.vacant], minlength=len(free))
        of_type = problem.usage[inventory.node_type, k] > 0
        fed = (inventory.node_cpus - np.bincount(inventory.gpu_node[owner >= 0], minlength=len(free))) >= each
        nodes = np.flatnonzero(of_type & fed & (free >= each))
        nodes = nodes[np.lexsort((nodes, free[nodes], np.maximum(each - vacant[nodes], 0)))]
        for v in nodes[: problem.nodes[k]] if len(nodes) >= problem.nodes[k] else []:
            idle = np.flatnonzero((inventory.gpu_node == v) & (owner < 0))
            owner[idle[np.argsort(~inventory.vacant[idle], kind="stable")][:each]] = i
    return owner


@few
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_newcomers_find_the_nodes_that_they_would_find_one_by_one(seed, scarce_cpus):
    rng = np.random.default_rng(seed)
    sizes = [rng.choice([2, 4], 5).tolist(), rng.choice([4, 8], 5).tolist()]
    offered = Configurations.of(sizes, [1, 2, 4, 8])
    assignment = rng.permutation(np.repeat(np.arange(len(offered.nodes)), rng.integers(0, 3, len(offered.nodes))))
    rate = np.eye(len(offered.nodes))[assignment]
    problem = Problem.of(rate, offered.usage, [sum(of_type) for of_type in sizes], nodes=offered.nodes)
    releasing = rng.random(sum(map(sum, sizes))) < 0.3
    cpus = rng.integers(1, 9, 10) if scarce_cpus else np.full(10, 99)
    inventory = build_inventory(sizes, len(assignment), releasing=releasing, node_cpus=cpus)
    expected = one_by_one(problem, assignment, inventory)
    assume(set(expected) >= set(range(len(assignment))))  # else those that run are moved to make room
    assert place_gangs(problem, assignment, inventory).tolist() == expected.tolist()


def test_a_gang_keeps_to_one_domain_and_to_the_one_that_it_is_in():
    """Types of one GPU a node: the first row may only be placed on the second domain, which has two nodes."""
    problem = Problem.of([[1]], [[2]], [3], nodes=[2])
    inventory = build_inventory([[1, 1, 1]], 1, node_domain=[0, 1, 1])
    assert place_gangs(problem, np.array([0]), inventory).tolist() == [IDLE, 0, 0]
    moved = build_inventory([[1, 1, 1, 1]], 1, node_domain=[0, 0, 1, 1], holder=[IDLE, IDLE, 0, IDLE])
    assert place_gangs(problem, np.array([0]), moved).tolist() == [IDLE, IDLE, 0, 0]


def test_a_gang_of_several_domains_together_is_not_offered():
    assert Configurations.of([[1, 1]], [1, 2], domains=[["a", "b"]]).gpus.tolist() == [1]
    offered = Configurations.of([[2, 1, 1]], [2], domains=[["a", "b", "b"]])
    assert (offered.gpus.tolist(), offered.nodes.tolist()) == ([2], [1])


def test_the_largest_gang_is_placed_on_the_steadiest_nodes():
    """Nodes of two GPUs: the last is lost a hundred times as often as the others."""
    problem, assignment = one_type([1, 2, 2], [2, 2, 2])
    inventory = build_inventory([[2, 2, 2]], 3, node_loss_rate=[1.0, 100.0, 1.0])
    assert place_gangs(problem, assignment, inventory).tolist() == [1, 1, 0, IDLE, 2, 2]


def test_a_gang_of_several_nodes_keeps_away_from_one_that_is_often_lost():
    problem = Problem.of([[1]], [[4]], [6], nodes=[2])
    inventory = build_inventory([[2, 2, 2]], 1, node_loss_rate=[100.0, 1.0, 1.1])
    assert place_gangs(problem, np.array([0]), inventory).tolist() == [IDLE, IDLE, 0, 0, 0, 0]


def test_no_job_is_moved_to_a_steadier_node():
    problem, assignment = one_type([2], [2, 2], held=[0])
    inventory = build_inventory([[2, 2]], 1, holder=[0, 0, IDLE, IDLE], node_loss_rate=[100.0, 1.0])
    assert place_gangs(problem, assignment, inventory).tolist() == [0, 0, IDLE, IDLE]


def test_nodes_that_are_lost_about_as_often_are_filled_tightly():
    problem, assignment = one_type([1], [2, 1])
    inventory = build_inventory([[2, 1]], 1, node_loss_rate=[1.0, 1.5])
    assert place_gangs(problem, assignment, inventory).tolist() == [IDLE, IDLE, 0]


def test_a_gang_goes_to_the_node_without_slow_gpus_though_another_is_tighter():
    problem, assignment = one_type([2], [4, 2])
    inventory = build_inventory([[4, 2]], 1, gpu_slower_by=[0, 0, 0, 0, 0, 0.2])
    assert place(problem, assignment, inventory).tolist() == [0, 0, IDLE, IDLE, IDLE, IDLE]


def test_a_gang_takes_the_fastest_gpus_of_its_node():
    problem, assignment = one_type([2], [4])
    inventory = build_inventory([[4]], 1, gpu_slower_by=[0.3, 0, 0.1, 0])
    assert place(problem, assignment, inventory).tolist() == [IDLE, 0, IDLE, 0]


def test_the_largest_gang_has_the_fast_gpus_and_the_others_take_the_rest():
    problem, assignment = one_type([1, 2], [3])
    inventory = build_inventory([[3]], 2, gpu_slower_by=[0, 0.3, 0])
    assert place(problem, assignment, inventory).tolist() == [1, 0, 1]


def test_a_gang_with_a_node_set_avoids_slow_gpus_too():
    problem, assignment = one_type([2], [2, 2, 2])
    sets = {"node_set": [0], "node_sets": [[True, True, False]]}
    inventory = build_inventory([[2, 2, 2]], 1, gpu_slower_by=[0, 0.2, 0, 0, 0, 0], **sets)
    assert place(problem, assignment, inventory).tolist() == [IDLE, IDLE, 0, 0, IDLE, IDLE]


def test_a_job_stays_on_its_slow_gpu():
    problem, assignment = one_type([1], [2])
    inventory = build_inventory([[2]], 1, holder=[0, IDLE], gpu_slower_by=[0.4, 0])
    assert place(holding(problem, assignment, [0]), assignment, inventory).tolist() == [0, IDLE]


@given(clusters(max_jobs=20, busy=True), st.integers(0, 2**32 - 1))
@few
def test_gangs_are_placed_whole_whatever_gpus_are_slow(case, seed):
    slower_by = np.random.default_rng(seed).choice([0, 0, 0.1, 0.5], len(case.inventory.gpu_node))
    slow = replace(case.inventory, gpu_slower_by=slower_by)
    plan = plan_round(case.problem, slow, Quotas.none(len(case.problem.weight)), srtf, round_s=60)
    placed = np.bincount(plan.owner[plan.owner >= 0], minlength=len(case.problem.weight))
    wants = np.where(plan.assignment >= 0, case.problem.gpus[plan.assignment], 0)
    assert placed.tolist() == wants.tolist()
