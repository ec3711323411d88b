r"""Profiling by choice: the cell whose measurement the choices of a workload gain most from (knowledge gradient).

Each choice is between cells, by the rate for its price; the logarithms of the rates are believed normal
(`estimation.completion`). A measurement of cell c moves the means along one direction, by a standard normal Z, and is
worth what the best cells of the choices gain by it in expectation:

.. math::
    \nu(c) = \sum_D \Big( \mathrm{E} \max_{k \in D} (\mu_k + \tilde\sigma_k(c) Z) - \max_{k \in D} \mu_k \Big), \qquad
    \tilde\sigma(c) = \Sigma_{\cdot c} / \sqrt{\Sigma_{cc}}

A measurement that could not change any choice is worth nothing, however uncertain the cell is.

References
----------
.. [1] Frazier, Powell and Dayanik, INFORMS Journal on Computing 2009, "The Knowledge-Gradient Policy for Correlated
   Normal Beliefs".
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from estimation.completion import Cells, Posterior
from estimation.types import Bools, Floats, Ints

LEAST_GAIN = 1e-3
"""Relative: what gains less is not worth a start."""
CERTAIN = 1e-9
"""A variance up to this is rounding: the cell was measured."""
MEASUREMENT_S = 120.0
"""Seconds that a measurement may take."""
POINTS = 64
"""Of the quadrature over Z."""


@dataclass(frozen=True)
class ProbeBudget:
    """What may be spent on measurements of a workload before it runs where it runs best."""

    seconds: float = MEASUREMENT_S
    """Of one measurement."""
    gpu_s: float = np.inf
    """Of all measurements that are still to come, for example 1 % of the cluster's GPU time."""
    types: int = 2


def choose_cell(
    beliefs: Posterior,
    cells: Cells,
    choices: Sequence[Ints],
    price: Floats,
    *,
    budget: ProbeBudget,
    types_tried: Collection[int] = (),
) -> int | None:
    """The cell to measure next; None: no measurement within the budget gains anything.

    choices: the cells among which a gang of the workload has to be placed, one array of indices for each gang; price
    (C,): what a cell costs, in any unit.
    """
    open_to_it = _within(cells, budget, types_tried)
    gain = np.where(open_to_it, knowledge_gradient(beliefs, choices, price), 0)
    best = int(gain.argmax()) if gain.size else 0
    return best if gain.size and gain[best] >= LEAST_GAIN else None


def _within(cells: Cells, budget: ProbeBudget, types_tried: Collection[int]) -> Bools:
    on_tried = np.isin(cells.gpu_type, list(types_tried))
    on_tried_or_new = on_tried | (len(set(types_tried)) < budget.types)
    within: Bools = on_tried_or_new & (cells.gpus * budget.seconds <= budget.gpu_s)
    return within


def knowledge_gradient(beliefs: Posterior, choices: Sequence[Ints], price: Floats) -> Floats:
    """What a measurement of each cell gains, nu (C,); 0.01 is about a percent of the rate of one gang."""
    mean = beliefs.mean - np.log(price)
    variance = np.diag(beliefs.covariance)
    uncertain = np.flatnonzero(variance > CERTAIN)
    sigma = beliefs.covariance[:, uncertain] / np.sqrt(variance[uncertain])
    z, weight = _normal_quadrature()
    gain = np.zeros(len(mean))
    for among in choices:
        best = (mean[among, None, None] + sigma[among][:, :, None] * z).max(axis=0)
        gain[uncertain] += best @ weight - mean[among].max()
    return gain


@cache
def _normal_quadrature() -> tuple[Floats, Floats]:
    points, weight = np.polynomial.hermite_e.hermegauss(POINTS)
    return points, weight / weight.sum()
