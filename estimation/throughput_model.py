r"""How long a step takes in any configuration, fitted from steps that were timed.

.. math::
    T_c(b) &= \alpha_c + \beta_c b, \qquad
    T_s(d, k) = \begin{cases}
        \alpha_n + \beta_n (k - 2) & d > 1 \\ \alpha_r + \beta_r (k - 2) & d = 1,\ k > 1 \\ 0 & k = 1
    \end{cases} \\
    T_o(d, k, b) &= \left(T_c^\gamma + T_s^\gamma\right)^{1/\gamma}, \qquad
    T(d, k, b, a) = a\,T_c + T_o

with k GPUs on d nodes, b samples per GPU at once and a further passes of as many before the gradients are averaged:
computing and averaging overlap the more, the larger gamma is. A step takes k b (a + 1) samples.

References
----------
.. [1] Qiao et al., OSDI 2021, "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
   Learning", section 3.2.
.. [2] Jayaram Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling", 3.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, minimize

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = float | Floats | Ints

NOTHING = 1e-8
"""Seconds: what is not there, and yet has a logarithm."""
SPANNING_COSTS_MORE = 1.1
"""Nodes were never spanned: averaging over them is taken to be so many times as slow as within one."""
START = (0.1, 0.01) * 3 + (1.001,)
MOST_OVERLAP = 10.0
TOLERANCE = 1e-5


class ThroughputModel(NamedTuple):
    """The parameters: seconds (alpha), seconds per sample (beta_c) or per GPU (beta_n, beta_r), and gamma, 1 to 10."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def step_seconds(self, nodes: Numbers, gpus: Numbers, local_batch: Numbers, passes: Numbers = 0) -> Floats:
        """Seconds of a step with so many passes before the last; everything broadcasts."""
        compute, network = self._compute(local_batch), self._network(nodes, gpus)
        overlapped = np.exp(np.logaddexp(self.gamma * np.log(compute), self.gamma * np.log(network)) / self.gamma)
        seconds: Floats = passes * compute + overlapped
        return seconds

    def throughput(self, nodes: Numbers, gpus: Numbers, local_batch: Numbers, passes: Numbers = 0) -> Floats:
        """Samples per second."""
        samples = np.asarray(gpus * local_batch * (passes + 1), dtype=float)
        speed: Floats = samples / self.step_seconds(nodes, gpus, local_batch, passes)
        return speed

    def _compute(self, local_batch: Numbers) -> Floats:
        return self.alpha_c + self.beta_c * np.asarray(local_batch, dtype=float)

    def _network(self, nodes: Numbers, gpus: Numbers) -> Floats:
        more = np.maximum(np.asarray(gpus, dtype=float) - 2, NOTHING)
        near, far = self.alpha_r + self.beta_r * more, self.alpha_n + self.beta_n * more
        seconds: Floats = np.where(
            np.asarray(nodes) > 1, far, np.where(np.asarray(gpus) > 1, near, NOTHING + NOTHING * more)
        )
        return seconds


@dataclass(frozen=True, eq=False)
class Timings:
    """Steps that were timed, as columns (P,): on how many nodes and GPUs, with what batch, in how many seconds.

    compute_s is the time without averaging, NaN where only the whole step was timed; on one GPU there is none to tell.
    """

    nodes: Ints
    gpus: Ints
    local_batch: Floats
    step_s: Floats
    compute_s: Floats
    passes: Ints

    @classmethod
    def of_steps(
        cls,
        nodes: Sequence[int],
        gpus: Sequence[int],
        local_batch: Sequence[float],
        step_s: Sequence[float],
        passes: Sequence[int] | None = None,
    ) -> "Timings":
        """Whole steps, of which the time of averaging is not known."""
        k, whole, a = np.array(gpus), np.array(step_s, dtype=float), np.array(passes or [0] * len(gpus))
        compute = np.where(k == 1, whole / (a + 1), np.nan)
        return cls(np.array(nodes), k, np.array(local_batch, dtype=float), whole, compute, a)


def fit(timings: Timings) -> ThroughputModel:
    r"""Fit the parameters to the timings (at least one), from a fixed start, by L-BFGS-B.

    .. math::
        \min_\theta\ \mathrm{rms}(\ln T_c - \ln t_c) + \mathrm{rms}(\ln T - \ln t) + 10^{-3} (\gamma - 1)^2
        + 10^{-2} \left((\beta_n / \alpha_n)^2 + (\beta_r / \alpha_r)^2\right)

    What no timing can tell is held fixed: half of a step does not depend on the batch until two batches are known, and
    no time goes into averaging until several GPUs are.
    """
    lower, upper = _bounds(timings)
    start = np.clip(START, lower, upper)
    options = {"ftol": TOLERANCE, "gtol": TOLERANCE}
    best = minimize(  # type: ignore[call-overload]  # the stubs know functions of one argument
        _loss_and_slope,
        start,
        (_Logarithms.of(timings),),
        jac=True,
        bounds=Bounds(lower, upper, keep_feasible=True),
        method="L-BFGS-B",
        options=options,
    )
    model = ThroughputModel(*best.x.tolist())
    return model if (timings.nodes > 1).any() else _spanning_costs_more(model)


def loss(model: ThroughputModel, timings: Timings) -> float:
    """How badly the model fits: what `fit` minimises."""
    return _loss_and_slope(np.array(model), _Logarithms.of(timings))[0]


def _bounds(timings: Timings) -> tuple[Floats, Floats]:
    """The least and the largest value of each parameter; the same where it is fixed."""
    lower, upper = np.array([NOTHING] * 6 + [1.0]), np.array([np.inf] * 6 + [MOST_OVERLAP])
    if len(np.unique(timings.local_batch)) == 1:
        lower[0] = upper[0] = _mean_compute_s(timings) / 2
    if not (timings.nodes > 1).any():
        upper[[2, 3]] = NOTHING
    if not ((timings.nodes == 1) & (timings.gpus > 1)).any():
        upper[[4, 5]] = NOTHING
    if not (timings.gpus > 2).any():
        upper[[3, 5]] = NOTHING
    return lower, upper


def _mean_compute_s(timings: Timings) -> float:
    known = timings.compute_s[np.isfinite(timings.compute_s)]
    return float(known.mean()) if known.size else float((timings.step_s / (timings.passes + 1)).min())


def _spanning_costs_more(model: ThroughputModel) -> ThroughputModel:
    return model._replace(
        alpha_n=max(model.alpha_n, SPANNING_COSTS_MORE * model.alpha_r),
        beta_n=max(model.beta_n, SPANNING_COSTS_MORE * model.beta_r),
    )


class _Logarithms(NamedTuple):
    """What the loss needs of the timings, worked out once."""

    local_batch: Floats
    passes: Ints
    more: Floats
    spans: Floats
    shares: Floats
    compute: Floats
    computed: Bools
    step: Floats

    @classmethod
    def of(cls, timings: Timings) -> "_Logarithms":
        computed = np.isfinite(timings.compute_s)
        return cls(
            local_batch=timings.local_batch,
            passes=timings.passes,
            more=np.maximum(timings.gpus - 2.0, NOTHING),
            spans=(timings.nodes > 1).astype(float),
            shares=((timings.nodes == 1) & (timings.gpus > 1)).astype(float),
            compute=np.log(timings.compute_s[computed]),
            computed=computed,
            step=np.log(timings.step_s),
        )


def _loss_and_slope(theta: Floats, seen: _Logarithms) -> tuple[float, Floats]:
    """The loss at theta (7,), and its gradient (7,)."""
    whole, whole_slope = _rms(*_of_steps(theta, seen))
    part, part_slope = _rms(*_of_computing(theta, seen))
    usual, usual_slope = _usual(theta)
    return whole + part + usual, whole_slope + part_slope + usual_slope


def _of_steps(theta: Floats, seen: _Logarithms) -> tuple[Floats, Floats]:
    """The logarithms of predicted over timed steps (P,), and their slopes (7, P)."""
    compute, network, gamma = theta[0] + theta[1] * seen.local_batch, _network(theta, seen), theta[6]
    log_c, log_n = np.log(compute), np.log(network)
    log_o = np.logaddexp(gamma * log_c, gamma * log_n) / gamma
    part_c, part_n = np.exp(gamma * (log_c - log_o)), np.exp(gamma * (log_n - log_o))
    overlapped = np.exp(log_o)
    step = seen.passes * compute + overlapped
    by_compute = (seen.passes + overlapped * part_c / compute) / step
    by_network = overlapped * part_n / network / step
    by_gamma = overlapped / step * (part_c * log_c + part_n * log_n - log_o) / gamma
    far, near = by_network * seen.spans, by_network * seen.shares
    slopes = [by_compute, by_compute * seen.local_batch, far, far * seen.more, near, near * seen.more, by_gamma]
    return np.log(step) - seen.step, np.stack(slopes)


def _network(theta: Floats, seen: _Logarithms) -> Floats:
    far, near = theta[2] + theta[3] * seen.more, theta[4] + theta[5] * seen.more
    alone = 1 - seen.spans - seen.shares
    seconds: Floats = seen.spans * far + seen.shares * near + alone * NOTHING * (1 + seen.more)
    return seconds


def _of_computing(theta: Floats, seen: _Logarithms) -> tuple[Floats, Floats]:
    """The same (Q,) and (7, Q) of the time without averaging, where that is known."""
    batch = seen.local_batch[seen.computed]
    compute = theta[0] + theta[1] * batch
    slopes = np.zeros((7, len(batch)))
    slopes[0], slopes[1] = 1 / compute, batch / compute
    return np.log(compute) - seen.compute, slopes


def _rms(residual: Floats, J: Floats) -> tuple[float, Floats]:
    """The root of the mean square, and its gradient (7,) by the residuals' (7, P); 0 of none."""
    if not residual.size:
        return 0.0, np.zeros(len(J))
    rms = float(np.sqrt((residual**2).mean()))
    return rms, J @ residual / (residual.size * rms) if rms > 0 else np.zeros(len(J))


def _usual(theta: Floats) -> tuple[float, Floats]:
    """What keeps the parameters at usual values where the timings leave them free, and its gradient."""
    _, _, alpha_n, beta_n, alpha_r, beta_r, gamma = theta
    far, near = beta_n / alpha_n, beta_r / alpha_r
    slope = np.zeros(7)
    slope[2:6] = 2e-2 * np.array([-(far**2) / alpha_n, far / alpha_n, -(near**2) / alpha_r, near / alpha_r])
    slope[6] = 2e-3 * (gamma - 1)
    return 1e-3 * (gamma - 1) ** 2 + 1e-2 * (far**2 + near**2), slope
