"""Synergy: what more CPUs and memory are worth to a job, and that tuning takes from nobody its proportional share."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.cpu_memory.opt import best_shares, fractional_spread, split_jobs
from allocation.cpu_memory.sensitivity import (
    DataSet,
    InvalidSensitivity,
    Sensitivity,
    Storage,
    best_case_demand,
    sensitivity_of_curve,
    storage_bound,
)
from allocation.cpu_memory.tune import (
    FloorsDoNotFit,
    floors,
    largest_amounts,
    largest_demand_first,
    place_and_tune,
    proportional_shares,
    tune,
)
from tests.hypothesis_examples import examples
from tests.reference import reference

FLOOR = np.array([3.0, 62.5])


def published():
    data = json.loads((reference("traces") / "synergy_sensitivity_1gpu.json").read_text())
    cpus, memory = (np.array(data["_axes"][name], float) for name in ("rows_cpu_per_gpu", "cols_mem_gb_per_gpu"))
    return {
        name: (Sensitivity(cpus, memory, np.array(model["tput_matrix_rel_to_proportional"], float)), model)
        for name, model in data["models"].items()
    }


def test_the_published_models_demand_what_the_source_says():
    for name, (sensitivity, model) in published().items():
        best = max(model["best_cpu_per_gpu"], 1), max(model["best_mem_gb_per_gpu"], 20.83)
        assert best_case_demand(sensitivity, FLOOR) == pytest.approx(best), name


def test_a_demand_is_never_worth_less_than_the_floor():
    """Within 1 % of the best is not enough where the floor gives the best."""
    almost = Sensitivity(np.array([1.0, 3.0]), np.array([1.0]), np.array([[0.995], [1.0]]))
    assert best_case_demand(almost, np.array([3.0, 1.0])).tolist() == [3, 1]
    assert best_case_demand(almost, np.array([1.0, 1.0])).tolist() == [1, 1]


def test_an_amount_between_two_points_is_worth_the_smaller():
    one = Sensitivity(np.array([1.0, 4.0]), np.array([10.0]), np.array([[0.5], [1.0]]))
    assert [one.at(np.array(amount)) for amount in ((0.5, 10), (3.9, 99), (4, 10), (4, 9))] == [0, 0.5, 1, 0]


def test_more_cpus_that_make_a_job_slower_are_left_unused():
    curve = sensitivity_of_curve({2: 1.0, 4: 2.0, 8: 1.5}, np.array([3.0, 16.0]))
    assert (curve.cpus.tolist(), curve.throughput[:, 0].tolist()) == ([2, 3, 4, 8], [1, 1.5, 2, 2])
    assert best_case_demand(curve, np.array([3.0, 16.0])).tolist() == [4, 16]


def test_no_job_demands_more_than_its_nodes_have():
    floor, data = np.array([3.0, 16.0]), DataSet(size_gib=500, bytes_per_sample=100_000, samples_per_s=10_000)
    one = sensitivity_of_curve({3: 1.0, 20: 18.0}, floor, data, Storage(1e9, 1), most=np.array([12.0, 64.0]))
    assert (one.cpus.tolist(), one.throughput[:, 0].max()) == ([3, 12], 10)
    assert one.memory_gib.max() == 64
    assert best_case_demand(one, floor)[0] == 12


def test_the_largest_amount_of_a_gang_is_that_of_its_poorest_node():
    gpus, capacity = np.array([[2, 2], [1, 0]]), np.array([[12.0, 100.0], [40.0, 50.0]])
    assert largest_amounts(gpus, capacity).tolist() == [[6, 25], [12, 100]]


def test_data_in_memory_spares_the_storage():
    """Half of 100 GiB in memory: 500 MB/s are enough for 10,000 samples/s of 100 kB, and twice that for two GPUs."""
    data = DataSet(size_gib=100, bytes_per_sample=100_000, samples_per_s=10_000)
    bounds = storage_bound(np.array([0.0, 50, 100, 200]), data, Storage(500e6, gpus=1))
    assert bounds.tolist() == [0.5, 1, np.inf, np.inf]
    assert storage_bound(np.array([25.0]), data, Storage(500e6, gpus=2)).tolist() == [0.5]


def test_a_job_that_waits_for_storage_demands_memory_and_one_that_does_not_demands_none():
    data = DataSet(size_gib=160, bytes_per_sample=100_000, samples_per_s=10_000)
    floor = np.array([3.0, 16.0])
    slow, fast = (sensitivity_of_curve({3: 1.0, 6: 2.0}, floor, data, Storage(rate, 1)) for rate in (500e6, 1e9))
    assert best_case_demand(slow, floor).tolist() == [6, 88]  # of 17 steps of 9 GiB the first with at least 80
    assert best_case_demand(fast, floor).tolist() == [6, 16]


@pytest.mark.parametrize(
    ("cpus", "throughput"), [([1, 2], [[1.0]]), ([2, 1], [[1.0], [2.0]]), ([1, 2], [[2.0], [1.0]]), ([1], [[-1.0]])]
)
def test_a_matrix_that_makes_no_sense_is_refused(cpus, throughput):
    with pytest.raises(InvalidSensitivity):
        Sensitivity(np.array(cpus, float), np.array([1.0]), np.array(throughput))


def test_proportional_shares_are_those_of_a_node_over_its_gpus():
    shares = proportional_shares(np.array([[24, 500], [8, 64], [4, 4]]), np.array([8, 2, 0]))
    assert shares.tolist() == [[3, 62.5], [4, 32], [4, 4]]


def one_node(demands):
    m = len(demands)
    floor = np.tile([3.0, 10.0], (m, 1))
    return tune(np.ones((m, 1), int), floor, np.array(demands, float), np.array([[3.0 * m, 10.0 * m]]), np.arange(m))


def test_a_job_takes_what_another_does_not_need():
    shares = one_node([[1, 10], [5, 10]])
    assert (shares.amount.tolist(), shares.reverted.tolist()) == ([[1, 10], [5, 10]], [False, False])


def test_a_demand_that_does_not_fit_is_reverted_to_the_proportional_share():
    shares = one_node([[3, 10], [5, 10]])
    assert (shares.amount.tolist(), shares.reverted.tolist()) == ([[3, 10], [3, 10]], [False, True])


def test_a_job_that_needs_less_than_its_share_keeps_its_demand_when_others_are_lowered():
    shares = one_node([[5, 10], [2, 10]])
    assert (shares.amount.tolist(), shares.reverted.tolist()) == ([[3, 10], [2, 10]], [True, False])


def test_a_job_with_more_than_its_share_is_lowered_for_one_that_lacks_it():
    shares = one_node([[6, 10], [3, 10]])
    assert (shares.amount.tolist(), shares.reverted.tolist()) == ([[3, 10], [3, 10]], [True, False])


def test_a_job_is_placed_where_its_demand_fits_and_else_on_the_fullest_node():
    floor, demand = np.tile([3.0, 10.0], (4, 1)), np.array([[9.0, 10], [9, 10], [9, 10], [3, 10]])
    capacity, node_gpus = np.array([[12.0, 40.0], [12.0, 40.0]]), np.array([4, 4])
    gpus, shares = place_and_tune(
        np.ones(4, int), floor, demand, capacity=capacity, node_gpus=node_gpus, order=np.arange(4)
    )
    assert gpus.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert shares.reverted.tolist() == [False, False, True, False]


def test_a_gang_that_fits_on_no_node_is_split_over_the_fullest():
    one, two = np.ones((2, 2)), np.array([2, 2])
    gpus, _ = place_and_tune(
        np.array([1, 3]), one, one, capacity=np.full((2, 2), 2.0), node_gpus=two, order=np.arange(2)
    )
    assert gpus.tolist() == [[1, 0], [1, 2]]


def test_the_largest_demand_comes_first():
    demand = np.array([[1.0, 1], [3, 1], [3, 2], [1, 1]])
    assert largest_demand_first(np.array([1, 1, 1, 4]), demand).tolist() == [3, 2, 1, 0]


def test_floors_beyond_a_node_are_refused():
    with pytest.raises(FloorsDoNotFit):
        tune(np.array([[2]]), np.array([[3.0, 1]]), np.array([[4.0, 1]]), np.array([[4.0, 8]]), np.arange(1))


@st.composite
def clusters(draw):
    """Nodes of several sizes, jobs on them that are spread in any way, each with a matrix that ascends."""
    node_gpus = np.array(draw(st.lists(st.integers(1, 8), min_size=1, max_size=4)))
    capacity = np.array([[draw(st.integers(1, 48)), draw(st.integers(1, 500))] for _ in node_gpus], float)
    free, rows = node_gpus.copy(), []
    for _ in range(draw(st.integers(1, 8))):
        row = np.array([draw(st.integers(0, int(gpus))) for gpus in free])
        free = free - row
        rows += [row] if row.any() else []
    jobs = [draw(matrices()) for _ in rows]
    return np.array(rows, dtype=int).reshape(len(rows), len(node_gpus)), jobs, capacity, node_gpus


@st.composite
def matrices(draw):
    axes = [np.cumsum(draw(st.lists(st.floats(0.25, 20), min_size=1, max_size=4))) for _ in range(2)]
    steps = draw(st.lists(st.floats(0, 2), min_size=axes[0].size * axes[1].size, max_size=axes[0].size * axes[1].size))
    return axes, np.array(steps).reshape(axes[0].size, axes[1].size).cumsum(0).cumsum(1)


def with_floor(matrix, floor):
    """The matrix with the floor among its points, as those of the service are made."""
    axes, throughput = matrix
    cpus, memory = (np.unique([*axis, amount]) for axis, amount in zip(axes, floor, strict=True))
    coarse = Sensitivity(axes[0], axes[1], throughput)
    values = [coarse.at(np.array(point)) for point in product(cpus, memory)]
    return Sensitivity(cpus, memory, np.array(values).reshape(cpus.size, memory.size))


@given(clusters())
@examples(300)
def test_no_job_is_slower_than_with_its_proportional_share_and_no_node_gives_more_than_it_has(cluster):
    gpus, matrices, capacity, node_gpus = cluster
    share = proportional_shares(capacity, node_gpus)
    floor = np.array([share[row > 0].min(axis=0) for row in gpus]).reshape(-1, 2)
    jobs = [with_floor(matrix, amount) for matrix, amount in zip(matrices, floor, strict=True)]
    demand = np.array([best_case_demand(job, amount) for job, amount in zip(jobs, floor, strict=True)]).reshape(-1, 2)
    shares = tune(gpus, floor, demand, capacity, largest_demand_first(gpus.sum(axis=1), demand))
    for job, least, amount in zip(jobs, floor, shares.amount, strict=True):
        assert job.at(amount) >= job.at(least)
    assert (gpus.T @ shares.amount <= capacity + 1e-5).all()
    assert (shares.amount == np.where(shares.reverted[:, None], floor, demand)).all()


@given(clusters(), st.data())
@examples(200)
def test_floors_beside_what_jobs_fix_always_fit_and_are_proportional_where_nothing_is_fixed(cluster, data):
    gpus, _, capacity, node_gpus = cluster
    amounts = st.one_of(st.just(0.0), st.floats(0.5, 20))
    fixed = np.array([[data.draw(amounts), data.draw(amounts)] for _ in gpus]).reshape(-1, 2)
    capacity = np.maximum(capacity, gpus.T @ fixed)
    floor = floors(gpus, fixed, capacity, node_gpus)
    assert (gpus.T @ floor <= capacity + 1e-6).all()
    assert (floor == np.where(fixed > 0, fixed, floor)).all()
    share = proportional_shares(capacity, node_gpus)
    for row, one in zip(gpus, floors(gpus, np.zeros_like(fixed), capacity, node_gpus), strict=True):
        assert (one <= share[row > 0].min(axis=0)).all()
        assert (one > share[row > 0].min(axis=0) - [1, 1 / 1024] - 1e-9).all()


def test_the_linear_bound_is_above_the_best_whole_shares_and_these_above_the_greedy_ones():
    models, rng = list(published().values()), np.random.default_rng(4)
    jobs = [models[i][0] for i in rng.integers(len(models), size=16)]
    floor, size = np.tile(FLOOR, (16, 1)), np.ones(16, int)
    whole = best_shares(jobs, size, floor, np.array([48.0, 1000.0]))
    bound = best_shares(jobs, size, floor, np.array([48.0, 1000.0]), whole=False)
    demand = np.array([best_case_demand(job, FLOOR) for job in jobs])
    _, greedy = place_and_tune(
        size,
        floor,
        demand,
        capacity=np.array([[24.0, 500.0]] * 2),
        node_gpus=np.array([8, 8]),
        order=largest_demand_first(size, demand),
    )
    reached = sum(job.at(amount) for job, amount in zip(jobs, greedy.amount, strict=True))
    assert 16 <= reached <= whole.value + 1e-6 <= bound.value + 2e-6
    assert (whole.throughput >= 1 - 1e-6).all()
    assert (whole.amount.sum(axis=0) <= [48.001, 1000.001]).all()


def test_a_fractional_spread_uses_every_job_once_and_splits_few():
    size, amount = np.array([2, 2, 2]), np.tile([3.0, 10.0], (3, 1))
    parts = fractional_spread(size, amount, np.array([3, 3]), np.array([[9.0, 30.0], [9.0, 30.0]]))
    assert parts.sum(axis=1) == pytest.approx(np.ones(3))
    assert split_jobs(parts) == 1
    assert ((size[:, None] * parts).sum(axis=0) <= 3 + 1e-6).all()
