"""Minimum mean completion time, fair to teams over time, from the present alone: integer assignment, virtual queues."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from numpy import arange, maximum, where

from allocation.decision import Decision
from allocation.policies._motley_terms import (
    HOUR_S,
    LEAST_S,
    Gap,
    HorizonS,
    LeaseGrowth,
    Patience,
    Repaid,
    RhoMax,
    ScaleUp,
    TimeLimitS,
    assign_beside_reservations,
    left_s,
    plain_assignment,
    queues_h,
    spared_by_staying,
)
from allocation.policies.parameters import Range
from allocation.problem import Problem
from allocation.reservations import ReservationRules
from allocation.restart_cost import part_lost_to_restart
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats


def motley_static(
    problem: Problem,
    *,
    short_first: Annotated[
        float, Range(0, 1, "how much more short remaining jobs count; 0: all jobs count the same")
    ] = 0.2,
    first_run: Annotated[float, Range(0, 10, "how much more a job counts that has not run yet")] = 0.2,
    horizon_s: HorizonS = 900.0,
    repaid: Repaid = 2.0,
    begin: Annotated[float, Range(0, 10, "value of running at all, relative to the value of full speed (1)")] = 1.0,
    fairness: Annotated[
        float,
        Range(0, 1000, "weight of a team's backlog, in values of full speed per GPU and cluster-hour; 0: no teams"),
    ] = 2.0,
    rho_max: RhoMax = 4.0,
    scale_up: ScaleUp = 0.0,
    patience: Patience = 1.0,
    lease_growth: LeaseGrowth = 2.0,
    gap: Gap = 1e-3,
    time_limit_s: TimeLimitS = 20.0,
) -> Decision:
    r"""Assign the configurations that save the most time and serve the teams furthest behind their shares.

    Choose it in place of `motley` where short jobs matter most, or where planning takes too long: it values the time
    that a configuration saves now, and does not ask what GPUs will be worth later.

    .. math::
        \max_{X \in \{0,1\}}\ \textstyle\sum_{ik} \left[\omega_i\, \phi_i \left(\frac{r_i}{1\,\mathrm{h}}\right)^{-q}
        (a + s_i + v_{ik}) + \beta\, (Q_{ik} + Z_i)\, d_{ik}\right] X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(one configuration)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    **Time saved.** A second in configuration k saves job i the time of the same steps at its best rate; a restart
    costs its part of the time until the job completes or the horizon H is reached, and counts b times where a running
    job changes its configuration. A job that holds GPUs would pay it later if it were stopped (s). A job that has not
    run yet counts more (phi): its owner learns soon whether it works, and turns go round before anyone's third.

    .. math::
        r_i = \frac{S_i}{\max_k T_{ik}}, \qquad
        l_{ik} = \frac{R_{ik}}{\min(H,\ R_{ik} + S_i / T_{ik})}, \qquad
        v_{ik} = \frac{T_{ik}}{\max_k T_{ik}} (1 - l_{ik}), \qquad
        R_{ik} = \begin{cases} 0 & k \text{ is held} \\ b R_i & \text{another is} \\ R_i & \text{else} \end{cases}

    **Queues** Q and Z, the work d, the leases and the reservations are those of `motley`.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) goodput, u = usage (n, K) GPUs, c = capacity (n,) GPUs, omega = job_weight (m,), held, held_s,
        locked (m,), S = remaining_steps (m,), R = restart_s (m,) seconds, attained_gpu_s, g = base_gpus, p = base_rate
        (m,), A = age_s, isolated_s (m,), Q = team_backlog_s (m,), most_replicas (m,) that jobs of its workload ever
        had.
    short_first, first_run, horizon_s, repaid, begin : q, phi - 1 of a first run, H, b and a.
    fairness, rho_max : beta and rho_max.
    patience, lease_growth : c, and e of the leases.
    scale_up, gap, time_limit_s : limit of growth, relative optimality gap, seconds.

    Returns
    -------
    Decision
        assignment (m,); objective and bound as in the formula; prices (n,) and value (m, K) in its unit: what a GPU, or
        a configuration, adds to the sum. Where `time_limit_s` or the round's time limit comes before the gap is
        reached, the feasible answer by prices, with the status `limit`.

    References
    ----------
    .. [1] Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 3.4 (the program; other values).
    .. [2] Berg, Vesilo and Harchol-Balter, Performance Evaluation 2020, "heSRPT: Parallel scheduling to minimize mean
       slowdown" (why short jobs first, and not alone).
    """
    budget = TimeBudget.of(problem).at_most(time_limit_s)
    values = Values(short_first, first_run, horizon_s, repaid, begin, fairness, rho_max)
    rules = ReservationRules(patience, lease_growth, horizon_s, by_team=fairness > 0)
    gain = partial(_gain, x=values)
    return assign_beside_reservations(problem, gain, rules, scale_up=scale_up, gap=gap, budget=budget)


@dataclass(frozen=True)
class Values:
    """Parameters of the value of a configuration."""

    short_first: float = 0.2
    first_run: float = 0.2
    horizon_s: float = 900.0
    repaid: float = 2.0
    begin: float = 1.0
    fairness: float = 2.0
    rho_max: float = 4.0


DEFAULTS, RULES = Values(), ReservationRules()


def plain_program(
    problem: Problem,
    values: Values = DEFAULTS,
    rules: ReservationRules = RULES,
    *,
    scale_up: float = 0.0,
    gap: float = 1e-3,
    budget: TimeBudget = UNLIMITED,
) -> Decision:
    """Solve the program above by HiGHS, beside what is reserved."""
    return plain_assignment(problem, partial(_gain, x=values), rules, scale_up=scale_up, gap=gap, budget=budget)


def _gain(problem: Problem, x: Values) -> Floats:
    """Value of each configuration (m, K)."""
    T, g, p = problem.rate, problem.base_gpus, problem.base_rate
    best, held = T.max(axis=1), problem.held[:, None] == arange(T.shape[1])
    r = maximum(left_s(problem, x.horizon_s), LEAST_S)
    done = 1 - part_lost_to_restart(problem, r * best, held, repaid=x.repaid, horizon_s=x.horizon_s)
    phi = 1 + where(problem.attained_gpu_s > 0, 0, x.first_run)
    urgency = problem.job_weight * phi * (r / HOUR_S) ** -x.short_first
    s = spared_by_staying(problem, r, x.horizon_s)
    v, d = T / best[:, None] * done, (g / p)[:, None] * T * done
    gain: Floats = (
        urgency[:, None] * (x.begin + s[:, None] + v) + x.fairness * queues_h(problem, r, held, x.rho_max) * d
    )
    return gain
