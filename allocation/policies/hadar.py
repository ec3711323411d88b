"""Admission at prices that grow exponentially, job by job (Hadar)."""

from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Literal

from numpy import arange, divide, full_like, inf, isfinite, lexsort, maximum, minimum, ones_like, where, zeros_like

from allocation.admission import Tariff, admit
from allocation.arrays import Floats, Ints
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.parameters import Choice, Within
from allocation.policies.makespan import steps_left
from allocation.policies.min_cost import dollars_per_hour
from allocation.prices import Market, best_prices
from allocation.problem import Problem
from allocation.solve import Status

LATE = 0.1
"""What a job that misses its deadline, or has none, is worth at most, where one that meets it is worth 1."""
APART = 1 + 1e-4
"""The highest price is at least so many times the lowest."""
NEAR = 1e-3
"""How near, relatively, the bound is to that of all prices."""
DAY_S = 86_400.0


def hadar(
    problem: Problem,
    *,
    objective: Annotated[
        Literal["jct", "slowdown", "makespan", "ftf", "deadline", "cost"], Choice("what a job is worth by")
    ] = "jct",
    beam: Annotated[int, Within(1, 4096, "ways of dealing with the jobs so far that go on from each job")] = 4,
    horizon_days: Annotated[
        float, Within(0.01, 365, "by when every job is taken to be done at the latest; sets the lowest prices")
    ] = 7.0,
) -> Decision:
    r"""Let in whom it pays: each job is worth what its end is worth, and GPUs cost the more the fewer are left.

    Choose it when jobs know how long they are, load is heavy, and one figure is to be as good as it can, which the
    objective names. The published one is that of makespan; it starves short jobs where the mean completion time counts.

    A job that is done t seconds after its submission, and alone on its best GPUs would be after C seconds, is worth

    .. math::
        V_{ik} = w_i \cdot \begin{cases}
        1 / t_{ik}                       & \text{jct} \\
        C_i / t_{ik}                     & \text{slowdown} \\
        g_i\, C_i / t_{ik}               & \text{makespan} \\
        (I_i + r_i / S_i) / t_{ik}       & \text{ftf} \\
        1, \text{ late } 0.1\, C_i / t_{ik} & \text{deadline} \\
        \min_k D_{ik} / D_{ik}           & \text{cost}
        \end{cases} \qquad
        t_{ik} = t_i + \frac{r_i}{T_{ik}} + R_i\, [k \text{ is not held}]

    with D the dollars that its end costs. Of a type of which :math:`\gamma` GPUs are given away, one more costs

    .. math::
        y_j(\gamma_j) = L_j \left(\frac{H_j}{L_j}\right)^{\gamma_j / c_j}, \qquad
        H_j = \max_{ik:\ u_{jk} > 0} \frac{V_{ik}}{|u_k|}, \qquad
        L_j = \frac{\min_i G_i}{4\, |c|}\ \min_{i:\ \text{can use } j} \frac{V_i(\text{horizon})}{G_i}

    with G the GPU-seconds of a job where it is slowest. By falling worth per GPU each job gets what pays it most:

    .. math::
        \mu_i = \max_k\ V_{ik} - \textstyle\sum_j y_j(\gamma_j)\, u_{jk}

    or nothing, where that is not more than 0, or where the payoffs of all come to more if others have the GPUs: of both
    ways the best few are followed up. GPUs that are left go to the next in turn for nothing, and who is locked keeps
    what he holds. A gang over several types is as fast as its configuration says. At the round's time limit those who
    were not looked at yet keep what they hold, if it is left.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), where unknown that of the longest; total_steps (m,), t =
        age_s (m,), I = isolated_s (m,), R = restart_s (m,), deadline_s (m,), held, locked (m,), w = weight (m,),
        u = usage (n, K), c = capacity (n,), g = base_gpus (m,) GPUs, p = base_rate (m,) which makes S, the rate on a
        1/m share; price_per_gpu_hour (n,).
    objective, beam, horizon_days : as said there.

    Returns
    -------
    Decision
        picks (m,); objective: what those who run are worth together; bound: what any picks could be; prices (n,) of one
        more GPU in the end, and worth (m, K) = V, which say why a job waits; status `limit` where time ran out
        before everybody was looked at.

    References
    ----------
    .. [1] Sultana et al., IPDPS 2024, "Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling for Deep
       Learning Cluster".
    .. [2] Bao et al., INFOCOM 2018, "Online Job Scheduling in Distributed Machine Learning Clusters" (the prices).
    """
    began, deadline = perf_counter(), Deadline.of(problem)
    T, u, c, held, locked = problem.rate, problem.usage, problem.capacity, problem.held, problem.locked
    worth = _worth(problem, objective)
    V = where(T > 0, worth(_left_s(problem)), 0)
    tariff = _tariff(problem, V, worth, horizon_days * DAY_S)
    turn = lexsort((-problem.age_s, -(V / problem.gpus).max(axis=1), locked))[: (~locked).sum()]
    kept = where(locked, held, -1)
    left = _left(problem, kept)
    picks = maximum(kept, admit(V, u, left, tariff, turn, beam=beam, deadline=deadline))
    rest = turn[picks[turn] < 0]
    picks = maximum(picks, admit(V, u, _left(problem, picks), Tariff.free(c), rest, beam=1, deadline=deadline))
    late = deadline.passed()
    if late:
        picks = maximum(picks, _kept_of_rest(problem, V, picks, rest))
    prices, value = tariff.at(_left(problem, picks)), _sum_of(V, picks)
    market = Market(where(locked[:, None], 0, V), u, left.astype(float), ones_like(held))
    most = _bound_at(market, prices) if late else best_prices(market, gap=NEAR, deadline=deadline).bound
    return Decision.of_picks(
        picks,
        prices=prices,
        objective=value,
        bound=max(_sum_of(V, kept) + most, value),
        status=Status.LIMIT if late else Status.RULE,
        solve_seconds=perf_counter() - began,
        worth=V,
    )


def _sum_of(V: Floats, picks: Ints) -> float:
    """What these picks are worth together."""
    return float(V[picks >= 0, picks[picks >= 0]].sum())


def _kept_of_rest(problem: Problem, V: Floats, picks: Ints, rest: Ints) -> Ints:
    """What those of the rest keep who hold something that is left."""
    stays = where(arange(V.shape[1]) == problem.held[:, None], V, 0)
    holding = rest[(picks[rest] < 0) & (stays[rest].max(axis=1) > 0)]
    return admit(stays, problem.usage, _left(problem, picks), Tariff.free(problem.capacity), holding, beam=1)


def _bound_at(market: Market, prices: Floats) -> float:
    """The bound that these prices prove."""
    best = market.best_at(prices)
    return market.worth(best) + float(prices @ (market.capacity - market.used(best)))


def _left(problem: Problem, picks: Ints) -> Ints:
    """The GPUs (n,) that these picks leave."""
    left: Ints = problem.capacity - problem.usage[:, picks[picks >= 0]].sum(axis=1)
    return left


def _left_s(problem: Problem) -> Floats:
    """Seconds (m, K) to the end of each job, with a restart where it would be moved."""
    T, held = problem.rate, problem.held[:, None]
    run_s = divide(steps_left(problem)[:, None], T, out=full_like(T, inf), where=T > 0)
    moved = (held >= 0) & (arange(T.shape[1]) != held)
    seconds: Floats = run_s + where(moved, problem.restart_s[:, None], 0)
    return seconds


def _worth(problem: Problem, objective: str) -> Callable[[Floats], Floats]:
    """What a job is worth that has so many seconds (m, K) to go."""
    T, p, g, t, d = (
        column[:, None]
        for column in (
            problem.rate.max(axis=1),
            problem.base_rate,
            problem.base_gpus,
            problem.age_s,
            problem.deadline_s,
        )
    )
    r, total = steps_left(problem)[:, None], problem.total_steps[:, None]
    C = where(isfinite(total), maximum(total, r), r) / T
    fair_s = problem.isolated_s[:, None] + r / (p * minimum(1, problem.capacity.sum() / (len(p) * g)))
    hourly = dollars_per_hour(problem)
    cheapest = where(problem.rate > 0, hourly / where(problem.rate > 0, problem.rate, 1), inf).min(axis=1)[:, None] * r
    worth: dict[str, Callable[[Floats], Floats]] = {
        "jct": lambda s: 1 / (t + s),
        "slowdown": lambda s: C / (t + s),
        "makespan": lambda s: g * C / (t + s),
        "ftf": lambda s: fair_s / (t + s),
        "deadline": lambda s: where(isfinite(d) & (s <= d), 1, LATE * minimum(1, C / (t + s))),
        "cost": lambda s: cheapest / (hourly * s),
    }
    return lambda s: problem.weight[:, None] * worth[objective](s)


def _tariff(problem: Problem, V: Floats, worth: Callable[[Floats], Floats], horizon_s: float) -> Tariff:
    """At the highest price nobody gets in; at the lowest everybody does, who is done by the horizon."""
    usable, gpus, c = V > 0, problem.gpus, problem.capacity
    uses = problem.usage > 0
    most = where(uses, (V / gpus).max(axis=0), 0).max(axis=1)
    run_s = where(usable, steps_left(problem)[:, None] / where(usable, problem.rate, 1), 0)
    G = (run_s * gpus).max(axis=1)
    last = worth(maximum(horizon_s, run_s.max(axis=1, keepdims=True)) + zeros_like(V))
    rate = where(usable, last, inf).min(axis=1) / G
    can_use = usable @ uses.T
    least = G.min() / (4 * c.sum()) * where(can_use, rate[:, None], inf).min(axis=0)
    return Tariff(minimum(least, most / APART), most, c)
