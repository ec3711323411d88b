r"""Quantile regression by gradient-boosted trees: fitted by scikit-learn, kept and evaluated as plain arrays.

For a quantile level q, trees are added one after another such that the pinball loss falls,

.. math::
    L_q(y, f) = \max\big(q\,(y - f),\ (q - 1)(y - f)\big), \qquad f(x) = f_0 + \sum_t v_t(x)

with :math:`v_t(x)` the value of the leaf that x reaches in tree t. A fitted model is numbers alone: it is stored
without pickle, whose reading would run what it contains, and evaluated with NumPy, so that only the process that fits
loads scikit-learn.

References
----------
.. [1] Friedman, Annals of Statistics 2001, "Greedy Function Approximation: A Gradient Boosting Machine".
.. [2] Ke et al., NeurIPS 2017, "LightGBM: A Highly Efficient Gradient Boosting Decision Tree" (the histograms).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, Self

import numpy as np

from estimation.types import Floats, Ints

TREES = 100
LEARNING_RATE = 0.1
MOST_LEAVES = 15
MOST_DEPTH = 8
LEAST_PER_LEAF = 20
MOST_AT_ONCE = 4_096
"""Rows evaluated together: each needs a number per tree."""


@dataclass(frozen=True, eq=False)
class QuantileTrees:
    """Trees of all quantiles, their nodes (N,) one after another.

    A leaf's children are itself, so that rows can go down all trees by the same number of steps.
    """

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    value: Floats
    """Of leaves."""
    root: Ints
    """(Q, T): the first node of each quantile's trees."""
    base: Floats
    """f_0 (Q,)."""
    depth: int

    def predict(self, rows: Floats) -> Floats:
        """Quantiles (m, Q) of rows (m, F), sorted by level: trees of two levels may cross."""
        parts = [self._predict(rows[start : start + MOST_AT_ONCE]) for start in range(0, len(rows), MOST_AT_ONCE)]
        found: Floats = np.concatenate(parts) if parts else np.empty((0, len(self.base)))
        return found

    def _predict(self, rows: Floats) -> Floats:
        node = np.tile(self.root.ravel(), (len(rows), 1))
        for _ in range(self.depth):
            goes_left = np.take_along_axis(rows, self.feature[node], axis=1) <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        added = self.value[node].reshape(len(rows), *self.root.shape).sum(axis=2)
        quantiles: Floats = self.base + added
        return quantiles

    def to_bytes(self) -> bytes:
        file = BytesIO()
        np.savez_compressed(file, **{field.name: getattr(self, field.name) for field in fields(self)})
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` gave. `ValueError` or `KeyError` if it is something else."""
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            columns = {field.name: arrays[field.name] for field in fields(cls)}
        return cls(**columns | {"depth": int(columns["depth"])})


def fit_quantile_trees(rows: Floats, target: Floats, levels: Sequence[float]) -> QuantileTrees:
    """Fit trees to rows (m, F) of finite values and target (m,), for each level in (0, 1)."""
    # Loading scikit-learn takes a second, and only the process that fits needs it.
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    def fitted(level: float) -> Any:
        model = HistGradientBoostingRegressor(
            loss="quantile",
            quantile=level,
            max_iter=TREES,
            learning_rate=LEARNING_RATE,
            max_leaf_nodes=MOST_LEAVES,
            max_depth=MOST_DEPTH,
            min_samples_leaf=LEAST_PER_LEAF,
            early_stopping=False,
            random_state=0,
        )
        return model.fit(rows, target)

    with threadpool_limits(1):  # threads that wait for each other on busy cores took ten times as long
        return _as_arrays([fitted(level) for level in levels])


def _as_arrays(models: Sequence[Any]) -> QuantileTrees:
    """The trees of fitted regressors. scikit-learn has no public access to them; a test compares the predictions."""
    trees = [predictor.nodes for model in models for (predictor,) in model._predictors]
    first = np.concatenate([[0], np.cumsum([len(nodes) for nodes in trees])[:-1]]).astype(np.int64)
    nodes, offset = np.concatenate(trees), np.repeat(first, [len(nodes) for nodes in trees])
    leaf, own = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
    return QuantileTrees(
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
        threshold=np.where(leaf, 0.0, nodes["num_threshold"]),
        left=np.where(leaf, own, offset + nodes["left"]),
        right=np.where(leaf, own, offset + nodes["right"]),
        value=nodes["value"],
        root=first.reshape(len(models), -1),
        base=np.array([float(np.ravel(model._baseline_prediction)[0]) for model in models]),
        depth=int(nodes["depth"].max()),
    )
