"""Which cell is measured first: the one that may change where a workload runs, within the budget."""

import numpy as np
import pytest

from estimation.completion import Cells, Posterior
from estimation.profiling import ProbeBudget, choose_cell, knowledge_gradient

V100, A100, T4 = 0, 1, 2
CELLS = Cells.of([(V100, 1, 1), (A100, 1, 1), (T4, 1, 1)])
ALIKE = np.ones(3)
WIDE = ProbeBudget()
ONE_CHOICE = [np.array([V100, A100, T4])]


def believed(means: list[float], spreads: list[float], together: float = 0.0) -> Posterior:
    """Rates whose logarithms have these spreads, all pairs correlated alike."""
    correlation = np.full((3, 3), together) + (1 - together) * np.eye(3)
    return Posterior(np.log(means), correlation * np.outer(spreads, spreads))


def test_of_two_equally_fast_types_the_less_certain_one_is_measured() -> None:
    assert choose_cell(believed([5, 5, 0.01], [0.1, 0.5, 0.1]), CELLS, ONE_CHOICE, ALIKE, budget=WIDE) == A100


def test_a_cell_that_can_change_no_choice_is_not_measured_however_uncertain_it_is() -> None:
    beliefs = believed([5, 6, 0.001], [0.3, 0.2, 1.0])
    assert choose_cell(beliefs, CELLS, ONE_CHOICE, ALIKE, budget=WIDE) == V100


def test_nothing_is_measured_where_the_choice_is_certain() -> None:
    assert choose_cell(believed([1, 100, 1], [0.1, 0.1, 0.1]), CELLS, ONE_CHOICE, ALIKE, budget=WIDE) is None


def test_a_rate_that_moves_all_rates_alike_changes_no_choice() -> None:
    beliefs = believed([5, 4, 3], [1, 1, 1], together=1.0)
    assert choose_cell(beliefs, CELLS, ONE_CHOICE, ALIKE, budget=WIDE) is None


def test_a_type_whose_price_rules_it_out_is_not_measured() -> None:
    beliefs, price = believed([5, 5, 4.9], [0.1, 0.5, 0.2]), np.array([1, 1000, 1])
    assert choose_cell(beliefs, CELLS, ONE_CHOICE, price, budget=WIDE) == T4


def test_a_third_type_is_not_tried() -> None:
    beliefs = believed([5, 5, 4.9], [0.1, 0.5, 0.2])
    assert choose_cell(beliefs, CELLS, ONE_CHOICE, ALIKE, budget=WIDE, types_tried=(V100, T4)) == T4


def test_a_gang_that_the_budget_has_not_the_gpu_time_for_is_not_measured() -> None:
    cells, beliefs = Cells.of([(V100, 1, 1), (A100, 8, 1), (T4, 1, 1)]), believed([5, 5, 4.9], [0.1, 0.5, 0.2])
    assert choose_cell(beliefs, cells, ONE_CHOICE, ALIKE, budget=ProbeBudget(gpu_s=500)) == T4
    assert choose_cell(beliefs, cells, ONE_CHOICE, ALIKE, budget=ProbeBudget(gpu_s=100)) is None


def test_a_workload_without_cells_has_none_to_measure() -> None:
    nothing = Posterior(np.zeros(0), np.zeros((0, 0)))
    assert choose_cell(nothing, Cells.of([]), [], np.zeros(0), budget=WIDE) is None


def test_the_gain_is_that_of_the_closed_form_for_two_cells() -> None:
    """E max(0, sigma Z) is sigma / sqrt(2 pi) where both cells are believed equal, and one of them is certain."""
    beliefs = Posterior(np.zeros(2), np.diag([1e-12, 0.25]))
    gain = knowledge_gradient(beliefs, [np.array([0, 1])], np.ones(2))
    assert gain[1] == pytest.approx(0.5 / np.sqrt(2 * np.pi), rel=0.02)
