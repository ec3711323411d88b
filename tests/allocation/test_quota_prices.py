"""Shadow prices of quotas: examples to check by hand, and the value of the program with one more GPU as an oracle."""

from dataclasses import replace

import cvxpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.problem import Problem
from allocation.quota_prices import known_prices, quota_prices
from allocation.solvers import linear_program
from tests.allocation.allocation_cases import clusters
from tests.allocation.test_type_quotas import quotas_of
from tests.hypothesis_examples import examples


def prices(rate, usage, capacity, team, nominal, **columns):
    return quota_prices(Problem.of(rate, usage, capacity), quotas_of(team, nominal, **columns).by_type).tolist()


def test_a_quota_that_keeps_a_job_waiting_beside_idle_gpus_costs_its_waiting():
    assert prices([[1]] * 3, [[1]], [8], [0] * 3, [[2]], borrowing=[[0]]) == [[pytest.approx(1)]]


def test_of_a_gang_one_gpu_is_a_part():
    assert prices([[1]] * 3, [[4]], [16], [0] * 3, [[4]], borrowing=[[0]]) == [[pytest.approx(1 / 4)]]


@pytest.mark.parametrize(
    ("capacity", "columns"),
    [(8, {"borrowing": [[1]]}), (8, {}), (2, {"borrowing": [[0]]})],
    ids=["borrows enough", "borrows all", "no GPU is left"],
)
def test_a_quota_that_keeps_no_gpu_idle_costs_nothing(capacity, columns):
    assert prices([[1]] * 3, [[1]], [capacity], [0] * 3, [[2]], **columns) == [[0]]


def test_jobs_that_find_another_type_cost_nothing():
    assert prices([[1, 1]] * 3, np.eye(2, dtype=int), [4, 4], [0] * 3, [[2, 0]], borrowing=[[0, 9]]) == [[0, 0]]


def test_gpus_that_are_not_lent_are_none_that_one_more_of_a_quota_would_give():
    columns = {"borrowing": [[0], [0]], "withheld": [[2], [0]]}
    assert prices([[1]] * 3, [[1]], [4], [1] * 3, [[2], [2]], **columns) == [[0], [0]]


def test_a_solver_that_ran_out_of_time_leaves_the_prices_unknown(monkeypatch):
    def failed(*_, **__):
        raise linear_program.SolverFailed("time")

    monkeypatch.setattr("allocation.quota_prices.maximize", failed)
    assert known_prices(Problem.of([[1]], [[1]], [1]), quotas_of([0], [[1]]).by_type) is None


def jobs_at_once(problem, quotas):
    """V by the plain program over all jobs and all configurations, in cvxpy."""
    (m, K), T = problem.rate.shape, len(quotas.nominal)
    X, e = cvxpy.Variable((m, K), nonneg=True), cvxpy.Variable((T + 1, len(problem.capacity)), nonneg=True)
    in_team = np.array([quotas.team == t for t in [*range(T), -1]], dtype=float)
    used = in_team @ X @ problem.usage.T
    withheld = np.vstack([quotas.withheld, 0 * quotas.withheld[:1]])
    rules = [
        X - (problem.rate > 0) <= 0,
        cvxpy.sum(X, axis=1) <= 1,
        cvxpy.sum(used, axis=0) <= problem.capacity,
        used[:T] <= np.minimum(quotas.most, 1e3),
        used - e <= withheld,
        cvxpy.sum(e, axis=0) <= np.maximum(problem.capacity - withheld.sum(axis=0), 0),
    ]
    return cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(X)), rules).solve(solver="CLARABEL")


@examples(30)
@given(cluster=clusters(max_jobs=8), seed=st.integers(0, 2**16))
def test_a_price_is_what_one_more_gpu_adds_to_the_program(cluster, seed):
    rng, problem = np.random.default_rng(seed), cluster.problem
    n = len(problem.capacity)
    nominal = rng.integers(0, 6, (2, n))
    withheld = np.where(rng.random((2, n)) < 0.3, nominal // 2, 0)
    borrowing = rng.integers(0, 2, (2, n))
    quotas = quotas_of(problem.team - 1, nominal, borrowing=borrowing, withheld=withheld).by_type
    before = jobs_at_once(problem, quotas)
    for t, j in np.argwhere(quota_prices(problem, quotas) >= 0):
        more = quotas.most.copy()
        more[t, j] += 1
        gain = jobs_at_once(problem, replace(quotas, most=more)) - before
        assert quota_prices(problem, quotas)[t, j] == pytest.approx(gain, abs=1e-4)
