"""Plain programs: the formulas of policies as they stand, which decide where the structured solver fails."""

import sys

import numpy as np
import pytest
from hypothesis import given

from allocation.decision import Status
from allocation.plan_round import plan_round
from allocation.policies import PLAIN_PROGRAMS, POLICIES
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.solvers.linear_program import SolverFailed
from tests.allocation import formulas
from tests.allocation.allocation_cases import build_inventory, clusters
from tests.hypothesis_examples import examples

many = examples(60)

SOLVER = {
    "max_min_fairness": "fill_evenly",
    "max_min_fairness_agnostic": "fill_evenly",
    "makespan": "fill_evenly",
    "finish_time_fairness": "fill_levels",
    "hierarchical_fairness": "fill_levels",
    "max_sum_throughput": "maximize_weighted_sum",
    "min_cost": "maximize_weighted_sum",
    "min_cost_slo": "maximize_weighted_sum",
    "motley": "assign_with_incumbents",
    "motley_static": "assign_with_incumbents",
    "sia": "assign_with_incumbents",
}
"""By which function a policy solves."""
SOLVES = {"motley": "_motley_terms", "motley_static": "_motley_terms"}
"""Module that calls it, where it is not the policy's own."""


@pytest.fixture(params=SOLVER)
def broken(request, monkeypatch):
    """The name of a policy whose structured solver fails."""

    def fail(*_, **__):
        raise SolverFailed("it stopped.")

    module = sys.modules[f"allocation.policies.{SOLVES.get(request.param, request.param)}"]
    monkeypatch.setattr(module, SOLVER[request.param], fail)
    return request.param


@pytest.fixture
def problem():
    rng = np.random.default_rng(1)
    usage = np.kron([1, 2], np.eye(2, dtype=int))
    columns = {"remaining_steps": rng.uniform(1e3, 1e5, 6), "team": np.arange(6) % 2, "weight": rng.uniform(1, 2, 6)}
    return Problem.of(rng.uniform(1, 3, (6, 4)), usage, [2, 3], **columns)


def test_where_the_structured_solver_fails_the_plain_program_decides_and_says_so(broken, problem):
    decision = POLICIES[broken](problem)
    assert decision.objective == pytest.approx(PLAIN_PROGRAMS[broken](problem).objective)
    assert decision.status == Status.FALLBACK
    assert decision.message == "it stopped. The plain program decided instead."


def test_a_round_is_then_planned_by_the_plain_program_and_not_by_a_queue(broken, problem):
    plan = plan_round(problem, build_inventory([[2], [3]], 6), Quotas.none(6), POLICIES[broken], round_s=60)
    assert plan.decision.message.endswith("The plain program decided instead.")


@many
@given(clusters())
@pytest.mark.parametrize(
    "name", ["max_min_fairness", "max_min_fairness_agnostic", "makespan", "max_sum_throughput", "min_cost"]
)
def test_a_plain_program_is_worth_what_the_papers_formula_says(name, cluster):
    expected = getattr(formulas, name)(cluster.problem)
    assert PLAIN_PROGRAMS[name](cluster.problem).objective == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("weight", "expected"), [(1e-12, [0, 1, 1]), (1e12, [1, 0.25, 0.75])])
def test_levels_are_found_whatever_the_weight_of_one_job(weight, expected):
    problem = Problem.of([[1.0], [1.0], [1.0]], [[1]], [2], weight=[weight, 1, 3])
    assert PLAIN_PROGRAMS["max_min_fairness"](problem).shares[:, 0] == pytest.approx(expected, abs=1e-6)
