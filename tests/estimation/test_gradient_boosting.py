"""Trees as arrays: what scikit-learn would predict, kept without pickle."""

import pickle
from io import BytesIO

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from estimation.gradient_boosting import (
    LEARNING_RATE,
    LEAST_PER_LEAF,
    MOST_DEPTH,
    MOST_LEAVES,
    TREES,
    QuantileTrees,
    fit_quantile_trees,
)
from estimation.types import Floats


@pytest.fixture(scope="module")
def data() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 4))
    return rows, rows[:, 0] ** 2 + rows[:, 1] + rng.normal(size=600)


@pytest.fixture(scope="module")
def trees(data: tuple[Floats, Floats]) -> QuantileTrees:
    return fit_quantile_trees(*data, levels=(0.25, 0.75))


def test_the_arrays_predict_as_scikit_learn_does(trees: QuantileTrees, data: tuple[Floats, Floats]) -> None:
    rows, target = data
    model = HistGradientBoostingRegressor(
        loss="quantile",
        quantile=0.75,
        max_iter=TREES,
        learning_rate=LEARNING_RATE,
        max_leaf_nodes=MOST_LEAVES,
        max_depth=MOST_DEPTH,
        min_samples_leaf=LEAST_PER_LEAF,
        early_stopping=False,
        random_state=0,
    )
    elsewhere = np.vstack([rows, 10 * rows[:50]])
    assert trees.predict(elsewhere)[:, 1] == pytest.approx(model.fit(rows, target).predict(elsewhere))


def test_a_quarter_of_the_targets_lies_below_the_lower_quartile(
    trees: QuantileTrees, data: tuple[Floats, Floats]
) -> None:
    rows, target = data
    below = (target[:, None] < trees.predict(rows)).mean(axis=0)
    assert below == pytest.approx([0.25, 0.75], abs=0.08)


def test_rows_in_several_parts_are_predicted_as_in_one(
    trees: QuantileTrees, data: tuple[Floats, Floats], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _ = data
    together = trees.predict(rows)
    monkeypatch.setattr("estimation.gradient_boosting.MOST_AT_ONCE", 7)
    assert (trees.predict(rows) == together).all()
    assert trees.predict(rows[:0]).shape == (0, 2)


def test_what_was_stored_predicts_the_same(trees: QuantileTrees, data: tuple[Floats, Floats]) -> None:
    again = QuantileTrees.from_bytes(trees.to_bytes())
    assert (again.predict(data[0]) == trees.predict(data[0])).all()


class Runs:
    """An object whose pickle runs a function when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("what was stored has been run",)


@pytest.mark.parametrize("as_array", [True, False])
def test_what_would_run_when_it_is_read_is_refused(as_array: bool) -> None:
    file = BytesIO()
    if as_array:
        np.savez(file, feature=np.array([Runs()], dtype=object))
    else:
        pickle.dump(Runs(), file)
    with pytest.raises(ValueError, match="allow_pickle"):
        QuantileTrees.from_bytes(file.getvalue())
