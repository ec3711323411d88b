"""A problem refuses what it cannot mean, and says which column, which row and why."""

import numpy as np
import pytest

from allocation.columns import InvalidProblem
from allocation.configurations import Configurations, gang_sizes
from allocation.problem import Problem, SpaceSharing, normaliser, runnable

USAGE = [[1, 4, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("columns", "column", "row"),
    [
        ({"rate": [[1, 1, 1], [1, np.nan, 1]]}, "rate", 1),
        ({"rate": [[1, 1, -1], [1, 1, 1]]}, "rate", 0),
        ({"rate": [[1, 1, 1], [0, 0, 0]]}, "base_gpus", 1),
        ({"weight": [1, 0]}, "weight", 1),
        ({"weight": [1, np.inf]}, "weight", 1),
        ({"age_s": [1]}, "age_s", None),
        ({"held": [0, 3]}, "held", 1),
        ({"held": [0, 0.5]}, "held", None),
        ({"held": [0, -1], "locked": [True, True]}, "held", 1),
        ({"deadline_s": [np.nan, 1]}, "deadline_s", 0),
        ({"team": ["a", "b"]}, "team", None),
        ({"nodes": [0, 1, 1]}, "nodes", 0),
        ({"gpus_per_replica": [[1, 1], [2, 0]]}, "gpus_per_replica", 1),
        ({"solve_limit_s": 0}, "solve_limit_s", None),
        ({"solve_limit_s": np.nan}, "solve_limit_s", None),
        ({"solve_limit_s": [1, 1]}, "solve_limit_s", None),
    ],
)
def test_a_bad_column_is_refused_by_name_and_row(columns, column, row):
    with pytest.raises(InvalidProblem) as refused:
        Problem.of(columns.pop("rate", np.ones((2, 3))), USAGE, [4, 1], **columns)
    assert (refused.value.column, refused.value.row) == (column, row)


@pytest.mark.parametrize(
    ("columns", "column", "row"),
    [
        ({"pairs": [[0, 2]]}, "pairs", 0),
        ({"pairs": [[0, 1], [1, 1]]}, "pairs", 1),
        ({"pairs": [0, 1]}, "pairs", None),
        ({"kept_rate": np.full((1, 1, 3), 1.5)}, "kept_rate", 0),
        ({"kept_rate": [[[0, 0, 0], [0.5, 0, 0]], [[0, 0, 0], [0, 0, 0]]]}, "kept_rate", 0),
        ({"kept_rate": np.ones((2, 1, 3))}, "kept_rate", None),
        ({"workload": [-1, 1], "kept_rate": np.ones((1, 1, 3))}, "workload", 1),
        ({"mate": [1, -1]}, "mate", 0),
        ({"mate": [-1, 1]}, "mate", 1),
        ({"mate": [1, 0]}, "mate", 0),
        ({"workload": [-1, -1, -1]}, "workload", None),
        ({"pair_received_s": np.ones((0, 3))}, "pair_received_s", None),
    ],
)
def test_a_bad_column_of_space_sharing_is_refused_by_name_and_row(columns, column, row):
    """Of two jobs, which hold different configurations."""
    given = {"workload": [-1, -1], "kept_rate": np.zeros((0, 0, 3))} | columns
    with pytest.raises(InvalidProblem) as refused:
        Problem.of(np.ones((2, 3)), USAGE, [4, 1], held=[0, 1], sharing=SpaceSharing.of(**given, types=2))
    assert (refused.value.column, refused.value.row) == (column, row)


def test_a_lock_does_not_touch_the_rates():
    """Shares are for many rounds, a lock is for this one."""
    problem = Problem.of(np.ones((2, 3)), USAGE, [4, 1], held=[1, -1], locked=[True, False])
    assert problem.rate.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_configuration_beyond_the_capacity_is_never_valid():
    assert Problem.of(np.ones((1, 3)), USAGE, [3, 1]).rate.tolist() == [[1, 0, 1]]


def test_a_job_that_only_an_impossible_configuration_would_hold_is_not_runnable():
    assert runnable([[0, 1, 0], [1, 1, 0]], USAGE, [3, 0]).tolist() == [False, True]


def test_arrays_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="read-only"):
        Problem.of(np.ones((1, 3)), USAGE, [4, 1]).rate[0, 0] = 2


def test_a_changed_column_is_checked_and_the_others_are_those_there_were():
    problem = Problem.of(np.ones((2, 3)), USAGE, [4, 1], age_s=[1, 2])
    changed = problem.changed(held=[0, 2], locked=[True, False], solve_limit_s=5)
    assert (changed.held.tolist(), changed.locked.tolist(), changed.solve_limit_s) == ([0, 2], [True, False], 5.0)
    assert (changed.age_s is problem.age_s, problem.held.tolist()) == (True, [-1, -1])
    with pytest.raises(InvalidProblem, match="held, row 1: names no configuration"):
        problem.changed(held=[0, 3])
    with pytest.raises(InvalidProblem, match="held, row 0: is locked and holds nothing"):
        problem.changed(locked=[True, False])


def test_the_time_limit_is_a_number_that_a_subset_keeps():
    problem = Problem.of(np.ones((2, 3)), USAGE, [4, 1], solve_limit_s=30)
    assert (problem.solve_limit_s, problem.subset(np.array([1])).solve_limit_s) == (30.0, 30.0)
    assert Problem.of(np.ones((2, 3)), USAGE, [4, 1]).solve_limit_s == np.inf


def test_the_normaliser_is_the_rate_of_the_smallest_gang_on_the_average_gpu():
    """Rates 6 on four GPUs of the first type and 3 on four of the second, of 4 and 12 GPUs: 6/4 + 9/4."""
    gpus, rate = normaliser([[6, 9, 3]], [[4, 8, 0], [0, 0, 4]], [4, 12])
    assert (gpus.tolist(), rate.tolist()) == ([4], [3.75])


def test_a_hybrid_parallel_job_is_normalised_by_its_rate_per_gpu_of_each_type():
    """A replica of two GPUs of the first type does 6 steps/s, of four of the second 8: 3 and 2 per GPU, of 4 and 12."""
    gpus, rate = normaliser([[6, 11, 8]], [[2, 4, 0], [0, 0, 4]], [4, 12], [[2, 4]])
    assert (gpus.tolist(), rate.tolist()) == ([2], [2 * (3 * 4 + 2 * 12) / 16])


def test_replicas_are_gpus_unless_one_takes_several_and_a_mixed_gang_has_parts_of_both_types():
    usage = [[2, 4, 0, 2], [0, 0, 4, 4]]
    plain = Problem.of(np.ones((2, 4)), usage, [4, 8])
    hybrid = Problem.of(np.ones((2, 4)), usage, [4, 8], gpus_per_replica=[[2, 4], [1, 1]])
    assert plain.replicas.tolist() == [[2, 4, 4, 6]]
    assert hybrid.replicas.tolist() == [[1, 2, 1, 2], [2, 4, 4, 6]]
    assert (plain.base_replicas.tolist(), hybrid.base_replicas.tolist()) == ([2, 2], [1, 2])
    assert hybrid.subset([1]).replicas.tolist() == [[2, 4, 4, 6]]


def test_a_subset_keeps_the_pairs_that_are_whole():
    sharing = SpaceSharing.of([0, 0, 0], np.ones((1, 1, 3)), types=2, pairs=[[0, 1], [1, 2]], mate=[-1, 2, 1])
    problem = Problem.of(np.ones((3, 3)), USAGE, [4, 1], team=[7, 8, 9], held=[-1, 0, 0], sharing=sharing)
    part = problem.subset(np.array([2, 1]))
    kept = part.sharing
    assert (part.team.tolist(), kept.pairs.tolist(), kept.mate.tolist()) == ([9, 8], [[1, 0]], [1, 0])
    assert problem.subset(np.array([0, 1])).sharing.mate.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("node_gpus", "gang", "nodes"),
    [([4, 4], 4, 1), ([4, 4], 8, 2), ([4, 4, 4], 6, 2), ([4, 1], 8, None), ([8, 1], 3, 1)],
)
def test_a_gang_takes_the_fewest_nodes_that_hold_it_in_equal_parts(node_gpus, gang, nodes):
    assert Configurations.of([node_gpus], [gang]).nodes.tolist() == ([] if nodes is None else [nodes])


def test_a_mixed_gang_is_parted_between_two_types_in_every_way_on_the_fewest_nodes_of_equal_parts():
    """One node of 4 GPUs and two of 2 hold pairs of them, but no single ones of three; four nodes of 1 hold these."""
    offered = Configurations.of([[4], [2, 2]], [], mixed=[4, 6])
    assert (offered.usage.T.tolist(), offered.nodes.tolist()) == ([[2, 2], [2, 4]], [2, 3])
    offered = Configurations.of([[1] * 4, [1] * 4], [], mixed=[4])
    assert (offered.usage.T.tolist(), offered.nodes.tolist()) == ([[1, 3], [2, 2], [3, 1]], [4, 4, 4])


def test_an_elastic_job_may_take_its_least_gang_doubled_up_to_its_largest():
    assert gang_sizes(3, 18) == (3, 6, 12, 18)
