"""Primal-dual admission, job by job, at exponentially increasing prices (Hadar)."""

from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Literal

from numpy import (
    arange,
    divide,
    full_like,
    inf,
    isfinite,
    lexsort,
    maximum,
    minimum,
    ones,
    ones_like,
    where,
    zeros_like,
)

from allocation.decision import Decision, Status
from allocation.policies._shared import dollars_per_hour, steps_left
from allocation.policies.parameters import Choice, Range
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_integer
from allocation.problem import Problem, isolated_rate
from allocation.restart_cost import restart_seconds
from allocation.solvers.lagrangian_dual import SeparableProblem, solve_dual
from allocation.solvers.primal_dual import ExponentialPrices, admit
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats, Ints

LATE = 0.1
"""Highest value of a job that misses its deadline or has none; one that meets it has value 1."""
APART = 1 + 1e-4
"""Least ratio of the highest to the lowest price."""
NEAR = 1e-3
"""Relative tolerance of the dual bound."""
DAY_S = 86_400.0


def hadar(
    problem: Problem,
    *,
    objective: Annotated[
        Literal["jct", "slowdown", "makespan", "ftf", "deadline", "cost"],
        Choice("objective from which a job's value follows"),
    ] = "jct",
    beam: Annotated[int, Range(1, 4096, "width of the beam search: partial assignments kept after each job")] = 4,
    horizon_days: Annotated[
        float, Range(0.01, 365, "days by which every job is assumed to be complete; sets the lowest prices")
    ] = 7.0,
) -> Decision:
    r"""Admit jobs by payoff: the value of their completion less the price of GPUs, which rises as GPUs are used up.

    Choose it when job lengths are known, load is heavy, and one figure, named by `objective`, should be as good as
    possible. The published objective is makespan; it starves short jobs.

    A job that completes t seconds after its submission, and after C seconds alone on its best GPUs, has the value

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

    with D its cost in dollars. The next GPU of a type of which :math:`\gamma` are allocated costs

    .. math::
        y_j(\gamma_j) = L_j \left(\frac{H_j}{L_j}\right)^{\gamma_j / c_j}, \qquad
        H_j = \max_{ik:\ u_{jk} > 0} \frac{V_{ik}}{|u_k|}, \qquad
        L_j = \frac{\min_i G_i}{4\, |c|}\ \min_{i:\ \text{can use } j} \frac{V_i(\text{horizon})}{G_i}

    with G a job's GPU-seconds where it is slowest. In order of falling value per GPU each job gets its best payoff:

    .. math::
        \mu_i = \max_k\ V_{ik} - \textstyle\sum_j y_j(\gamma_j)\, u_{jk}

    or nothing if that is not positive, or if the total payoff is higher when other jobs get the GPUs (beam search
    over both branches). GPUs that are left go to the next jobs in order, free of charge; a locked job keeps
    its GPUs. A gang over several types is as fast as its configuration says. At the round's time limit jobs that
    were not considered yet keep their GPUs if these are left.

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
        assignment (m,); objective: the total value of the jobs that run; bound: that of any assignment; prices (n,) of
        one more GPU in the end, and value (m, K) = V, which say why a job waits; status `limit` where time ran out
        before all jobs were considered.

    References
    ----------
    .. [1] Sultana et al., IPDPS 2024, "Hadar: Heterogeneity-Aware Optimization-Based Online Scheduling for Deep
       Learning Cluster".
    .. [2] Bao et al., INFOCOM 2018, "Online Job Scheduling in Distributed Machine Learning Clusters" (the prices).
    """
    began, budget = perf_counter(), TimeBudget.of(problem)
    T, u, c, held, locked = problem.rate, problem.usage, problem.capacity, problem.held, problem.locked
    worth = _worth(problem, objective)
    V = where(T > 0, worth(_left_s(problem)), 0)
    pricing = _tariff(problem, V, worth, horizon_days * DAY_S)
    turn = lexsort((-problem.age_s, -(V / problem.gpus).max(axis=1), locked))[: (~locked).sum()]
    kept = where(locked, held, -1)
    left = _left(problem, kept)
    assignment = maximum(kept, admit(V, u, left, pricing, turn, beam=beam, budget=budget))
    rest = turn[assignment[turn] < 0]
    assignment = maximum(
        assignment, admit(V, u, _left(problem, assignment), ExponentialPrices.free(c), rest, beam=1, budget=budget)
    )
    late = budget.passed()
    if late:
        assignment = maximum(assignment, _kept_of_rest(problem, V, assignment, rest))
    prices, value = pricing.at(_left(problem, assignment)), _sum_of(V, assignment)
    separable = SeparableProblem(where(locked[:, None], 0, V), u, left.astype(float), ones_like(held))
    most = _bound_at(separable, prices) if late else solve_dual(separable, gap=NEAR, budget=budget).bound
    return Decision.of_assignment(
        assignment,
        prices=prices,
        objective=value,
        bound=max(_sum_of(V, kept) + most, value),
        status=Status.LIMIT if late else Status.RULE,
        solve_seconds=perf_counter() - began,
        value=V,
    )


def plain_program(
    problem: Problem, *, objective: str = "jct", gap: float = 1e-3, budget: TimeBudget = UNLIMITED
) -> Decision:
    """Integer program of the assignment with the highest total value, which the greedy rule may miss."""
    T, u, c = problem.rate, problem.usage, problem.capacity
    V = where(T > 0, _worth(problem, objective)(_left_s(problem)), 0)
    return solve_integer(
        problem,
        V,
        [
            [each_jobs_sum(ones_like(T))],  # one configuration
            [all_jobs_sum(u, len(T))],  # capacity
        ],
        [ones(len(T)), c],
        usable=T > 0,
        gap=gap,
        budget=budget,
    )


def _sum_of(V: Floats, assignment: Ints) -> float:
    """Total value of an assignment."""
    return float(V[assignment >= 0, assignment[assignment >= 0]].sum())


def _kept_of_rest(problem: Problem, V: Floats, assignment: Ints, rest: Ints) -> Ints:
    """Assignment of the remaining jobs that keep what they hold, if it is left."""
    stays = where(arange(V.shape[1]) == problem.held[:, None], V, 0)
    holding = rest[(assignment[rest] < 0) & (stays[rest].max(axis=1) > 0)]
    return admit(
        stays, problem.usage, _left(problem, assignment), ExponentialPrices.free(problem.capacity), holding, beam=1
    )


def _bound_at(separable: SeparableProblem, prices: Floats) -> float:
    """Dual bound at these prices."""
    best = separable.best_at(prices)
    return separable.weighted_sum(best) + float(prices @ (separable.capacity - separable.used(best)))


def _left(problem: Problem, assignment: Ints) -> Ints:
    """GPUs (n,) left by an assignment."""
    left: Ints = problem.capacity - problem.usage[:, assignment[assignment >= 0]].sum(axis=1)
    return left


def _left_s(problem: Problem) -> Floats:
    """Seconds (m, K) until each job completes, including a restart if it is moved."""
    T = problem.rate
    run_s = divide(steps_left(problem)[:, None], T, out=full_like(T, inf), where=T > 0)
    seconds: Floats = run_s + restart_seconds(problem)
    return seconds


def _worth(problem: Problem, objective: str) -> Callable[[Floats], Floats]:
    """Value of a job that completes in so many seconds (m, K)."""
    T, S, g, t, d = (
        column[:, None]
        for column in (
            problem.rate.max(axis=1),
            isolated_rate(problem.base_gpus, problem.base_rate, problem.capacity),
            problem.base_gpus,
            problem.age_s,
            problem.deadline_s,
        )
    )
    r, total = steps_left(problem)[:, None], problem.total_steps[:, None]
    C = where(isfinite(total), maximum(total, r), r) / T
    fair_s = problem.isolated_s[:, None] + r / S
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


def _tariff(problem: Problem, V: Floats, worth: Callable[[Floats], Floats], horizon_s: float) -> ExponentialPrices:
    """Price range: no job is admitted at the highest; every job that ends by the horizon is at the lowest."""
    usable, gpus, c = V > 0, problem.gpus, problem.capacity
    uses = problem.usage > 0
    most = where(uses, (V / gpus).max(axis=0), 0).max(axis=1)
    run_s = where(usable, steps_left(problem)[:, None] / where(usable, problem.rate, 1), 0)
    G = (run_s * gpus).max(axis=1)
    last = worth(maximum(horizon_s, run_s.max(axis=1, keepdims=True)) + zeros_like(V))
    rate = where(usable, last, inf).min(axis=1) / G
    can_use = usable @ uses.T
    least = G.min() / (4 * c.sum()) * where(can_use, rate[:, None], inf).min(axis=0)
    return ExponentialPrices(minimum(least, most / APART), most, c)
