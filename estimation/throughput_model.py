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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from estimation.newton import Box, Evaluation, Iterate, minimize_within
from estimation.types import Bools, Floats, Ints

Numbers = float | Floats | Ints

NOTHING = 1e-8
"""Seconds: what is not there, and yet has a logarithm."""
SPANNING_COSTS_MORE = 1.1
"""Nodes were never spanned: averaging over them is taken to be so many times as slow as within one."""
MOST_AVERAGING = 0.5
"""Part of the shortest step that averaging takes at most, until a step without averaging was timed: else a fit may put
all of a step there, and none into computing."""
MOST_OVERLAP = 10.0
SMOOTHING = 1e-4
"""Of a step's time: the root of a mean square has a kink where the fit is exact, which is rounded off so far below."""
STARTS = ((0.05, 1.1), (0.05, 3.0))
"""Time of averaging, of a step's, and gamma: from little and from much overlap. Most losses have one minimum."""
ONLY_COMPUTE = np.array([1.0, 0.0, 0.0])
"""Slope by y = (ln T_c, ln T_s, gamma) of the passes before the last."""
TIE = 1e-7
"""Of two minima the first is taken, unless the second is lower by more than rounding."""


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
    r"""Fit the parameters to the timings (at least one), by Newton's method from fixed starts.

    .. math::
        \min_\theta\ \mathrm{rms}(\ln T_c - \ln t_c) + \mathrm{rms}(\ln T - \ln t) + 10^{-3} (\gamma - 1)^2
        + 10^{-2} \left((\beta_n / \alpha_n)^2 + (\beta_r / \alpha_r)^2\right)

    What no timing can tell is held fixed: half of a step does not depend on the batch until two batches are known, and
    no time goes into averaging until several GPUs are; or bounded: until a step without averaging was timed, averaging
    takes half of one at most. The published code stops where the loss changes by less than
    1e-5, at a point that depends on the processor's rounding; this is the minimum itself.
    """
    seen, box = _Logarithms.of(timings), Box(*_bounds(timings), _scale(timings))
    best: Iterate | None = None
    for start in _starts(box):
        found = minimize_within(lambda theta: _loss(theta, seen, SMOOTHING), start, box)
        best = found if best is None or found.value < best.value - TIE else best
    assert best is not None  # noqa: S101 - there are starts
    model = ThroughputModel(*best.x.tolist())
    return model if (timings.nodes > 1).any() else _spanning_costs_more(model)


def loss(model: ThroughputModel, timings: Timings) -> float:
    """How badly the model fits: what `fit` minimises."""
    return _loss(np.array(model), _Logarithms.of(timings))[0]


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
    if not np.isfinite(timings.compute_s).any():
        upper[2:6] = np.minimum(upper[2:6], _most_averaging(timings))
    return lower, upper


def _most_averaging(timings: Timings) -> Floats:
    """Bounds (4,) of averaging: in the largest gang alpha and beta take half of what it may take each."""
    half_s, more = MOST_AVERAGING * float(timings.step_s.min()) / 2, max(int(timings.gpus.max()) - 2, 1)
    return np.array([half_s, half_s / more, half_s, half_s / more])


def _scale(timings: Timings) -> Floats:
    """The usual size (7,) of each parameter."""
    step_s, batch = float(np.median(timings.step_s)), float(np.median(timings.local_batch))
    return np.array([step_s, step_s / batch, step_s, step_s, step_s, step_s, 1.0])


def _starts(box: Box) -> Iterator[Floats]:
    for averaging, gamma in STARTS:
        start = np.array([0.5, 0.5] + [averaging, averaging / 10] * 2 + [gamma]) * box.scale
        yield np.clip(start, box.lower, box.upper)


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


def _loss(theta: Floats, seen: _Logarithms, smoothing: float = 0.0) -> Evaluation:
    """The loss at theta (7,), and its gradient (7,) and Hessian (7, 7), which are worked out if they are asked for."""
    predicted = _Predicted.of(theta, seen)
    step, compute = predicted.log_step - seen.step, predicted.log_compute[seen.computed] - seen.compute
    whole, part = _rms(step, smoothing), _rms(compute, smoothing)

    def derivatives() -> tuple[Floats, Floats]:
        B = predicted.by_theta(seen)
        whole_slope, whole_bend = _rms_derivatives(step, whole, *predicted.step_derivatives(step, B))
        part_slope, part_bend = _rms_derivatives(compute, part, *_compute_derivatives(compute, B[seen.computed, 0, :]))
        usual_slope, usual_bend = _usual_derivatives(theta)
        return whole_slope + part_slope + usual_slope, whole_bend + part_bend + usual_bend

    return whole + part + _usual(theta), derivatives


class _Predicted(NamedTuple):
    """Logarithms of predicted times (P,): of computing T_c, of averaging T_s, of the last pass and of the whole step.

    Derivatives are by y = (ln T_c, ln T_s, gamma), and of y by theta. As T_c and T_s are linear in theta, the second
    derivatives of their logarithms are minus the squares of the first.
    """

    compute: Floats
    network: Floats
    gamma: float
    log_compute: Floats
    log_network: Floats
    log_pass: Floats
    last: Floats
    """The last pass's part of the step."""

    @classmethod
    def of(cls, theta: Floats, seen: _Logarithms) -> "_Predicted":
        compute, network, gamma = theta[0] + theta[1] * seen.local_batch, _network(theta, seen), theta[6]
        c, n = np.log(compute), np.log(network)
        o = np.logaddexp(gamma * c, gamma * n) / gamma
        return cls(compute, network, gamma, c, n, o, 1 / (1 + seen.passes * np.exp(c - o)))

    @property
    def log_step(self) -> Floats:
        logarithm: Floats = self.log_pass - np.log(self.last)
        return logarithm

    def by_theta(self, seen: _Logarithms) -> Floats:
        """Slopes (P, 3, 7) of y by theta."""
        return _by_theta(self.compute, self.network, seen)

    def step_derivatives(self, residual: Floats, B: Floats) -> tuple[Floats, Floats]:
        """Slopes (P, 7) of the logarithms of the steps, and their second derivatives (7, 7), summed by residual."""
        slope, bend = self._by_y()
        weighted = np.matmul(bend, B) * residual[:, None, None]
        bent = weighted.transpose(2, 0, 1).reshape(7, -1) @ B.reshape(-1, 7)
        return np.matmul(slope[:, None, :], B)[:, 0, :], bent

    def _by_y(self) -> tuple[Floats, Floats]:
        """Slope by y (P, 3), and second derivatives (P, 3, 3), less the slope by both logarithms where these bend."""
        last = self.last
        overlapped, bend = _overlap(self.log_compute, self.log_network, self.log_pass, self.gamma)
        slope, earlier = last[:, None] * overlapped, overlapped - ONLY_COMPUTE
        slope[:, 0] += 1 - last
        bend *= last[:, None, None]
        bend += (last * (1 - last))[:, None, None] * earlier[:, :, None] * earlier[:, None, :]
        bend[:, 0, 0] -= slope[:, 0]
        bend[:, 1, 1] -= slope[:, 1]
        return slope, bend


def _compute_derivatives(residual: Floats, J: Floats) -> tuple[Floats, Floats]:
    """The same of the times without averaging (Q,), where those are known; J (Q, 7) are their slopes."""
    return J, -(J * residual[:, None]).T @ J


def _overlap(c: Floats, n: Floats, o: Floats, gamma: float) -> tuple[Floats, Floats]:
    """The slopes (P, 3) of o, the logarithm of the last pass, by c, n and gamma; second derivatives (P, 3, 3)."""
    p, q, apart = np.exp(gamma * (c - o)), np.exp(gamma * (n - o)), c - n
    by_gamma, pq = (p * c + q * n - o) / gamma, p * q
    bend = np.empty((len(c), 3, 3))
    bend[:, 0, 0] = bend[:, 1, 1] = gamma * pq
    bend[:, 0, 1] = bend[:, 1, 0] = -gamma * pq
    bend[:, 0, 2] = bend[:, 2, 0] = pq * apart
    bend[:, 1, 2] = bend[:, 2, 1] = -pq * apart
    bend[:, 2, 2] = (pq * apart**2 - 2 * by_gamma) / gamma
    return np.array([p, q, by_gamma]).T, bend


def _by_theta(compute: Floats, network: Floats, seen: _Logarithms) -> Floats:
    """The slopes (P, 3, 7) of ln T_c, ln T_s and gamma by theta."""
    B = np.zeros((len(compute), 3, 7))
    B[:, 0, 0], B[:, 0, 1] = 1 / compute, seen.local_batch / compute
    far, near = seen.spans / network, seen.shares / network
    B[:, 1, 2], B[:, 1, 3], B[:, 1, 4], B[:, 1, 5] = far, far * seen.more, near, near * seen.more
    B[:, 2, 6] = 1
    return B


def _network(theta: Floats, seen: _Logarithms) -> Floats:
    far, near = theta[2] + theta[3] * seen.more, theta[4] + theta[5] * seen.more
    alone = 1 - seen.spans - seen.shares
    seconds: Floats = seen.spans * far + seen.shares * near + alone * NOTHING * (1 + seen.more)
    return seconds


def _rms(residual: Floats, smoothing: float) -> float:
    """The root of the mean square; 0 of none."""
    return sqrt(float((residual**2).sum()) / residual.size + smoothing**2) if residual.size else 0.0


def _rms_derivatives(residual: Floats, rms: float, J: Floats, bent: Floats) -> tuple[Floats, Floats]:
    """Gradient (7,) of a root mean square by the residuals' slopes (P, 7), and its Hessian (7, 7)."""
    if rms == 0:
        return np.zeros(7), np.zeros((7, 7))
    many = residual.size
    gradient = residual @ J / (many * rms)
    return gradient, (J.T @ J + bent) / (many * rms) - gradient[:, None] * gradient / rms


def _usual(theta: Floats) -> float:
    """What keeps the parameters at usual values where the timings leave them free."""
    _, _, alpha_n, beta_n, alpha_r, beta_r, gamma = theta.tolist()
    value: float = 1e-3 * (gamma - 1) ** 2
    for ratio in (beta_n / alpha_n, beta_r / alpha_r):
        value += 1e-2 * ratio**2
    return value


def _usual_derivatives(theta: Floats) -> tuple[Floats, Floats]:
    """The gradient (7,) and the Hessian (7, 7) of the same."""
    parameters, gradient, hessian = theta.tolist(), np.zeros(7), np.zeros((7, 7))
    gradient[6], hessian[6, 6] = 2e-3 * (parameters[6] - 1), 2e-3
    for alpha, beta in ((2, 3), (4, 5)):
        ratio, unit = parameters[beta] / parameters[alpha], 2e-2 / parameters[alpha]
        gradient[alpha], gradient[beta] = -unit * ratio**2, unit * ratio
        scale = unit / parameters[alpha]
        hessian[alpha, alpha], hessian[beta, beta] = scale * (3 * ratio**2), scale
        hessian[alpha, beta] = hessian[beta, alpha] = scale * (-2 * ratio)
    return gradient, hessian
