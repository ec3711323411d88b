"""Accuracy of estimates, beside SciPy's and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from estimation.accuracy import FEWEST, accuracy_of
from tests.hypothesis_examples import examples


def test_errors_by_hand() -> None:
    found = accuracy_of(np.array([50.0, 200.0, 100.0]), np.array([100.0, 100.0, 100.0]))
    assert (found.n, found.mape, found.factor) == (3, pytest.approx(0.5), pytest.approx(2.0))


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=3, max_size=20))
def test_the_rank_correlation_is_spearmans_with_ties(pairs: list[tuple[int, int]]) -> None:
    estimated, true = np.array(pairs, dtype=float).T
    if len(set(estimated)) == 1 or len(set(true)) == 1:
        assert accuracy_of(estimated, true).rank_correlation is None
    else:
        assert accuracy_of(estimated, true).rank_correlation == pytest.approx(spearmanr(estimated, true).statistic)


def test_few_outcomes_are_chance_and_none_have_no_figures() -> None:
    ones = np.ones(FEWEST)
    assert accuracy_of(ones[1:], ones[1:]).is_chance
    assert not accuracy_of(ones, ones).is_chance
    assert np.isnan(accuracy_of(np.zeros(0), np.zeros(0)).mape)


def test_a_job_that_took_no_time_counts_as_a_second() -> None:
    assert accuracy_of(np.array([3.0]), np.array([0.0])).mape == pytest.approx(2.0)
