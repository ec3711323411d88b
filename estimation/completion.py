r"""Completion of a workload's rates from the workloads known: a Gaussian factor model of log rates, fitted by EM.

The logarithm of workload w's rate in a cell c, GPUs g_c of type j_c on nodes d_c, is completed as a residual against
what the specification says of it, speed v and law of scaling s (`estimation.scaling`):

.. math::
    \log T_{wc} = \log v_{j(c)} + \log s(g_c, d_c) + \phi_c^\top \theta_w + \varepsilon_{wc}, \qquad
    \theta_w \sim N(m, S), \quad \varepsilon_{wc} \sim N(0, \sigma^2)

with :math:`\phi_c = e_{j(c)} \otimes (1, \log g_c, [d_c > 1])`: on each type, how much faster than specified the
workload is, and how it scales over GPUs and nodes. m, S and sigma are estimated from the workloads known, by
expectation maximisation with a normal inverse Wishart prior: without data m = 0, and rates are those of the
specification, scaled to what was measured. Given the measured cells of a workload, its other cells are normal with a
mean and a variance in closed form, in the unit of what was measured. `python -m benchmarks.completion` shows the errors
on published tables.

References
----------
.. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
   section 6 (the completion of throughputs by the factors of a matrix).
.. [2] Laird and Ware, Biometrics 1982, "Random-Effects Models for Longitudinal Data" (the model, EM).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np

from estimation.fitted_models import rounded
from estimation.profile import Place
from estimation.scaling import scaling_law
from estimation.types import Bools, Floats, Ints

LEAST_WORKLOADS = 3
"""A type is completed once so many workloads were measured on it and elsewhere, too."""
SPREADS = ((4.0, 0.4), (0.2, 0.1), (0.4, 0.2))
"""Standard deviations before anything is known, of rate, exponent and loss over several nodes: what the types of a
workload have in common, and what each has to itself. How many steps a second a workload makes may be anything."""
ANY_SCALE = 100.0
"""Added to the spread that all types have in common once it is fitted: a step may be of any size, so how many of them a
workload makes a second says nothing of which type is faster, though among few workloads it seems to."""
NOISE = 0.1
PRIOR_WORKLOADS = 2.0
"""The prior of S counts as so many workloads, that of m as `PRIOR_MEAN`."""
PRIOR_MEAN = 0.5
GRAIN = 0.05
ITERATIONS = 15
"""More change no error of `python -m benchmarks.completion` by a tenth of a percent."""


class Cells(NamedTuple):
    """GPU type, GPUs and nodes of each cell (C,)."""

    gpu_type: Ints
    gpus: Ints
    nodes: Ints

    @classmethod
    def of(cls, places: Sequence[Place]) -> Self:
        return cls(*np.array(places, dtype=np.int64).reshape(-1, 3).T)


class Completed(NamedTuple):
    """Rates (W, K) in steps/s, and the standard deviation (K,) of their logarithms."""

    rate: Floats
    spread: Floats


class Posterior(NamedTuple):
    """A normal distribution of the logarithms of a workload's rates: mean (C,) and covariance (C, C)."""

    mean: Floats
    covariance: Floats


@dataclass(frozen=True, eq=False)
class RateFactors:
    """Mean (D,) and covariance (D, D) of the workloads' factors, D = 3 n, and the noise of a cell."""

    speed: Floats
    mean: Floats
    covariance: Floats
    noise: float
    supported: Bools
    """The types (n,) on which enough workloads were measured."""

    def complete(self, at: Cells, known: Floats, cells: Cells) -> Completed:
        """Rates in these cells of W workloads whose rates (W, P) are known at the same places."""
        mean, left = self._given(at, known)
        phi = _loadings(cells, len(self.speed))
        log_rate = _specified(cells, self.speed) + mean @ phi.T
        variance = np.einsum("kd,de,ke->k", phi, left, phi) + self.noise**2
        return Completed(np.exp(log_rate), np.sqrt(variance))

    def beliefs(self, at: Cells, known: Floats, cells: Cells) -> Posterior:
        """Posterior in these cells of one workload whose rates (P,) are known at some places, exactly so there."""
        phi, known_phi = _loadings(cells, len(self.speed)), _loadings(at, len(self.speed))
        same = (np.stack(cells, axis=1)[:, None] == np.stack(at, axis=1)).all(axis=2)
        shared = phi @ self.covariance @ known_phi.T + self.noise**2 * same
        inner = known_phi @ self.covariance @ known_phi.T + self.noise**2 * np.eye(len(known_phi))
        gain = np.linalg.solve(inner, shared.T).T
        residual = np.log(known) - _specified(at, self.speed) - known_phi @ self.mean
        prior = phi @ self.covariance @ phi.T + self.noise**2 * np.eye(len(phi))
        mean = _specified(cells, self.speed) + phi @ self.mean + gain @ residual
        return Posterior(mean, prior - gain @ shared.T)

    def _given(self, at: Cells, known: Floats) -> tuple[Floats, Floats]:
        """Mean (W, D) and covariance (D, D) of the factors, given rates (W, P) at the same places."""
        phi = _loadings(at, len(self.speed))
        shared = self.covariance @ phi.T
        gain = np.linalg.solve(phi @ shared + self.noise**2 * np.eye(len(phi)), shared.T).T
        residual = np.log(known) - _specified(at, self.speed) - phi @ self.mean
        return self.mean + residual @ gain.T, self.covariance - gain @ shared.T


def prior_factors(speed: Floats) -> RateFactors:
    """The factors before any workload is known: those of the specification, as uncertain as it is."""
    types = len(speed)
    return RateFactors(speed, np.zeros(len(SPREADS) * types), _prior(types), NOISE, np.ones(types, dtype=np.bool_))


def factors_of(speed: Floats, known: Iterable[Mapping[Place, float]]) -> RateFactors | None:
    """As `fit_factors`, and kept while no rate changes by more than a few percent."""
    rows = (tuple((place, rounded(rate, GRAIN)) for place, rate in sorted(rates.items())) for rates in known)
    return _fitted(tuple(speed.tolist()), tuple(sorted(row for row in rows if len(row) > 1)))


@lru_cache(maxsize=16)
def _fitted(speed: tuple[float, ...], known: tuple[tuple[tuple[Place, float], ...], ...]) -> RateFactors | None:
    return fit_factors(np.array(speed), [dict(row) for row in known])


def fit_factors(speed: Floats, known: Sequence[Mapping[Place, float]]) -> RateFactors | None:
    """The factors of the workloads known by their measured rates; None: too few were measured in two cells or more."""
    informative = [rates for rates in known if len(rates) > 1]
    on_type = np.array([[j in {place[0] for place in rates} for j in range(len(speed))] for rates in informative])
    supported = on_type.sum(axis=0) >= LEAST_WORKLOADS if informative else np.zeros(len(speed), dtype=np.bool_)
    if not supported.any():
        return None
    moments = [_moments(rates, speed) for rates in informative]
    gram, projected, squares, count = (np.array(column) for column in zip(*moments, strict=True))
    mean, covariance, noise = _expectation_maximisation(_prior(len(speed)), gram, projected, squares, count)
    covariance[: len(speed), : len(speed)] += ANY_SCALE**2
    return RateFactors(speed, mean, covariance, noise, supported)


def _specified(cells: Cells, speed: Floats) -> Floats:
    log: Floats = np.log(speed[cells.gpu_type] * scaling_law(cells.gpus, cells.nodes))
    return log


def _loadings(cells: Cells, types: int) -> Floats:
    """phi (C, D)."""
    of_type = np.eye(types)[cells.gpu_type]
    scaled, spans = np.log(cells.gpus)[:, None] * of_type, (cells.nodes > 1)[:, None] * of_type
    return np.hstack([of_type, scaled, spans])


def _prior(types: int) -> Floats:
    """The prior of S (D, D)."""
    prior = np.zeros((len(SPREADS), types, len(SPREADS), types))
    for part, (common, own) in enumerate(SPREADS):
        prior[part, :, part] = common**2 + own**2 * np.eye(types)
    return prior.reshape(len(SPREADS) * types, -1)


def _moments(rates: Mapping[Place, float], speed: Floats) -> tuple[Floats, Floats, float, int]:
    cells = Cells.of(list(rates))
    phi, residual = _loadings(cells, len(speed)), np.log(list(rates.values())) - _specified(cells, speed)
    return phi.T @ phi, phi.T @ residual, float(residual @ residual), len(residual)


def _expectation_maximisation(
    prior: Floats, gram: Floats, projected: Floats, squares: Floats, count: Ints
) -> tuple[Floats, Floats, float]:
    W = len(count)
    mean, covariance, variance = np.zeros(len(prior)), prior, NOISE**2
    for _ in range(ITERATIONS):
        precision = np.linalg.inv(covariance)
        left = np.linalg.inv(precision + gram / variance)
        theta = np.einsum("wde,we->wd", left, precision @ mean + projected / variance)
        mean = theta.sum(axis=0) / (W + PRIOR_MEAN)
        off = theta - mean
        total = left.sum(axis=0) + off.T @ off + PRIOR_MEAN * np.outer(mean, mean)
        covariance = (total + PRIOR_WORKLOADS * prior) / (W + PRIOR_WORKLOADS)
        misfit = squares - 2 * (projected * theta).sum(axis=1) + np.einsum("wd,wde,we->w", theta, gram, theta)
        expected = misfit + np.einsum("wde,wed->w", gram, left)
        variance = (expected.sum() + PRIOR_WORKLOADS * NOISE**2) / (count.sum() + PRIOR_WORKLOADS)
    return mean, covariance, float(np.sqrt(variance))
