"""Minimum mean completion time, fair to teams, by a plan of the hours to come: costs to go, integer assignment."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from numpy import arange, inf, maximum, where

from allocation.decision import Decision
from allocation.plan.costs_to_go import CostsToGo, find_costs_to_go
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
from allocation.restart_cost import part_lost_to_restart, rate_after_restart
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Bools, Floats

PLANNING = 0.5
"""Part of the time limit that the plan may take; the assignment has the rest."""


def motley(
    problem: Problem,
    *,
    lateness: Annotated[
        float, Range(0, 10, "by how much more an hour counts at the end of all work than now: more shortens the tail")
    ] = 2.0,
    horizon_s: HorizonS = 900.0,
    repaid: Repaid = 2.0,
    fairness: Annotated[
        float,
        Range(0, 1000, "weight of a team's backlog, in mean values of full speed per GPU and cluster-hour; 0: none"),
    ] = 2.0,
    rho_max: RhoMax = 4.0,
    scale_up: ScaleUp = 0.0,
    patience: Patience = 1.0,
    lease_growth: LeaseGrowth = 2.0,
    planned: Annotated[
        int, Range(1, 2000, "jobs up to which all are planned; of more, so many stand for all others")
    ] = 200,
    gap: Gap = 1e-3,
    time_limit_s: TimeLimitS = 20.0,
) -> Decision:
    r"""Assign the configurations whose steps are worth most in a plan of the hours to come.

    Choose it for rigid and elastic jobs that should finish early, of teams that are each to get their share over some
    hours: it is the default. A job changes its configuration only if it gains more than two restarts cost.

    **The plan.** A linear program says for how long x each job i runs in each configuration k in each of the coming
    intervals t, which double in length, L, up to twice the time of all work (`allocation.plan.program`):

    .. math::
        \min_{x \ge 0}\ \textstyle\sum_i \omega_i \sum_{tk} \tau'_t \frac{T'_{ik}}{S_i} x_{ikt} \quad\text{s.t.}\quad
        & \textstyle \sum_k x_{ikt} \le L_t                        && \forall i, t \quad\text{(time)} \\
        & \textstyle \sum_{kt} \frac{T'_{ik}}{S_i} x_{ikt} = 1     && \forall i \quad\text{(work)} \\
        & \textstyle \sum_{ik} u_{jk} x_{ikt} \le c_j L_t          && \forall j, t \quad\text{(capacity)}

    Tau is the middle of an interval, in hours. Later hours count more, 1 + theta times as much at the end E of all work
    as now, and 1 on average until then: tau' = tau (1 + theta tau / 2E) / (1 + theta / 2). T' are rates less the time
    of one restart, where the configuration is not held: T' = T S / (S + T R). Of more than `planned` jobs so many stand
    for all others; each job answers the prices of that plan for itself.

    **Costs to go.** Alpha, the dual of the work of the job, is what a step is worth now: by how much it lowers the sum
    of completion times, with the GPUs that it frees later for others. So a job that gains little from more GPUs gets
    them when they are cheap, and one that would have to run alone at the end runs sooner, the more so the higher theta
    is.

    **A round** gives each job the configuration, or none, that is worth most beside all others:

    .. math::
        \max_{X \in \{0,1\}}\ \textstyle\sum_{ik} \left[\alpha_i T_{ik} (1 - l_{ik}) + \alpha_i s_i \max_k T_{ik}
        + \beta\, \bar{a}\, (Q_{ik} + Z_i)\, d_{ik}\right] X_{ik} \quad\text{s.t.}\quad
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(one configuration)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    **Restarts.** A restart costs its part l of the time until the job completes or changes again, b times where a
    running job changes its configuration; a job that would be stopped would pay it later (s). It is expected to change
    again after the horizon H or, if that is longer, after the time V since a job last came, started or moved: what has
    lasted for long will last for long. Otherwise a job with long restarts would run for hours beside idle GPUs:

    .. math::
        r_i = \frac{S_i}{\max_k T_{ik}}, \qquad
        l_{ik} = \frac{R_{ik}}{\min(\max(H, V),\ R_{ik} + S_i / T_{ik})}, \qquad
        s_i = \frac{R_i}{\min(H,\ R_i + r_i)} \ \text{if it holds GPUs}, \qquad
        R_{ik} = \begin{cases} 0 & k \text{ is held} \\ b R_i & \text{another is} \\ R_i & \text{else} \end{cases}

    **Queues drained.** a is the mean value of full speed; d the work done per second, in average GPUs; Q the virtual
    queue of the job's team in cluster-hours (`allocation.fairness.later_backlog`); Z that of the job, for its age A
    beyond rho_max times the time I that the whole job takes on a 1/m part of the cluster. Jobs that came later lengthen
    it to an hour at most, else I might outgrow the age of a gang for as long as others come; m_i are the jobs as old or
    older:

    .. math::
        d_{ik} = g_i \frac{T_{ik}}{p_i} (1 - l_{ik}), \qquad
        Z_i = \frac{\max(0,\ A_i - \rho_{\max} I_i)}{\max(I_i,\ 1\,\mathrm{h})}, \qquad
        I_i = \min(I_i(m),\ \max(I_i(m_i),\ 1\,\mathrm{h}))

    **Leases and reservations** (`allocation.reservations`). A job of a fixed size keeps its GPUs for a lease of 25
    restarts, which each restart doubles up to the horizon. A job that has waited as long as it takes in all, c times,
    is due: it starts before all others, of a team that is behind its share if any is, and idle GPUs are kept for it
    until it has its gang. Without them, four jobs of one GPU are worth four times one job of four, and gangs starve.

    Within its lease an elastic job that stays counts as one of the team furthest behind: fairness stops no job whose
    restart is not yet repaid. A job of unknown length is expected to run as long again as it has run, plus the horizon.
    A locked job keeps what it holds, and ties favour running jobs, then older ones. Where rates are guesses, `scale_up`
    limits how many times the replicas of earlier jobs of its workload a job may get.

    This is drift plus penalty. With :math:`L = \frac12 \sum_t Q_t^2`, one round of length D changes L by at most
    :math:`D^2 + D \sum_t Q_t (e_t - d_t)`, because shares are at most 1. Each round maximises :math:`\beta \sum_t Q_t
    d_t` plus the value of the steps over a, which lies between 0 and some V per round. Serving every team its share is
    feasible, up to what gangs leave over, and would make the drift 0; so the time average of what the policy loses
    against it is at most :math:`D / 2 + V / (\beta Q)`, and a team's queue stays below a level of the order of
    :math:`V / \beta` [3]_: `fairness` trades backlog against completion time. The queue Z of a job that waits grows
    without bound while the value of others is bounded, so that no job waits forever.

    Prices are hours of others for each GPU-hour; an hour counts 1 on average until the end of all work.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) goodput, u = usage (n, K) GPUs, c = capacity (n,) GPUs, omega = job_weight (m,), held, held_s,
        locked (m,), S = remaining_steps (m,), R = restart_s (m,) seconds, attained_gpu_s, g = base_gpus, p = base_rate
        (m,), A = age_s, isolated_s (m,), Q = team_backlog_s (m,), most_replicas (m,) that jobs of its workload ever
        had.
    lateness, horizon_s, repaid : theta, H and b.
    fairness, rho_max : beta, and from where Z counts.
    patience, lease_growth : c, and growth of leases.
    scale_up, planned, gap, time_limit_s : limit of growth, jobs of the plan, relative optimality gap, seconds.

    Returns
    -------
    Decision
        assignment (m,); objective and bound as in the formula; prices (n,) and value (m, K) in such hours per hour:
        what a GPU, or a configuration, takes off the sum. Where `time_limit_s` or the round's time limit comes
        before the gap is reached, the feasible answer by prices, with the status `limit`.

    References
    ----------
    .. [1] Goemans, Queyranne, Schulz, Skutella and Wang, SIAM Journal on Discrete Mathematics 2002, "Single machine
       scheduling with release dates" (mean busy dates).
    .. [2] Schulz and Skutella, SIAM Journal on Discrete Mathematics 2002, "Scheduling unrelated machines by randomized
       rounding" (the program over intervals).
    .. [3] Neely, "Stochastic Network Optimization with Application to Communication and Queueing Systems", 2010,
       section 4.5 (drift plus penalty, virtual queues).
    """
    budget = TimeBudget.of(problem).at_most(time_limit_s)
    values = PlanValues(lateness, horizon_s, repaid, fairness, rho_max, planned)
    rules = ReservationRules(patience, lease_growth, horizon_s, by_team=fairness > 0)
    gain = partial(_gain, x=values, budget=TimeBudget.after(PLANNING * budget.left_s()))
    return assign_beside_reservations(problem, gain, rules, scale_up=scale_up, gap=gap, budget=budget)


@dataclass(frozen=True)
class PlanValues:
    """Parameters of the value of a configuration."""

    lateness: float = 2.0
    horizon_s: float = 900.0
    repaid: float = 2.0
    fairness: float = 2.0
    rho_max: float = 4.0
    planned: int = 200


DEFAULTS, RULES = PlanValues(), ReservationRules()


def plain_program(
    problem: Problem,
    values: PlanValues = DEFAULTS,
    rules: ReservationRules = RULES,
    *,
    scale_up: float = 0.0,
    gap: float = 1e-3,
    budget: TimeBudget = UNLIMITED,
) -> Decision:
    """Solve the integer program above by HiGHS, beside what is reserved, with the same costs to go."""
    gain = partial(_gain, x=values, budget=UNLIMITED)
    return plain_assignment(problem, gain, rules, scale_up=scale_up, gap=gap, budget=budget)


def _gain(problem: Problem, x: PlanValues, budget: TimeBudget) -> Floats:
    """Value of each configuration (m, K): cost that it takes off per hour."""
    T, best = problem.rate, problem.rate.max(axis=1)
    held = problem.held[:, None] == arange(T.shape[1])
    r = maximum(left_s(problem, x.horizon_s), LEAST_S)
    a = HOUR_S * _plan(problem, r * best, held, x, budget).alpha
    lasts_s = max(x.horizon_s, _unchanged_s(problem))
    done = 1 - part_lost_to_restart(problem, r * best, held, repaid=x.repaid, horizon_s=lasts_s)
    spared = spared_by_staying(problem, r, x.horizon_s) * best
    gain: Floats = a[:, None] * (T * done + spared[:, None])
    if x.fairness:
        d = (problem.base_gpus / problem.base_rate)[:, None] * T * done
        gain = gain + x.fairness * (a * best).mean() * queues_h(problem, r, held, x.rho_max) * d
    return gain


def _unchanged_s(problem: Problem) -> float:
    """Seconds since a job last came, started or moved."""
    return float(where(problem.held >= 0, problem.held_s, problem.age_s).min(initial=inf))


def plan_ahead(problem: Problem, *, lateness: float, horizon_s: float, planned: int) -> CostsToGo:
    """Plan by which a round of these parameters decides: prices and load of the hours to come."""
    x = PlanValues(lateness=lateness, horizon_s=horizon_s, planned=planned)
    steps = maximum(left_s(problem, horizon_s), LEAST_S) * problem.rate.max(axis=1)
    return _plan(problem, steps, problem.held[:, None] == arange(problem.rate.shape[1]), x, UNLIMITED)


def _plan(problem: Problem, steps: Floats, held: Bools, x: PlanValues, budget: TimeBudget) -> CostsToGo:
    """Plan of the jobs with so many steps left (m,); a configuration that is not held begins with a restart."""
    return find_costs_to_go(
        rate_after_restart(problem, steps, held),
        problem.usage,
        problem.capacity,
        steps=steps,
        weight=problem.job_weight,
        lateness=x.lateness,
        most_planned=x.planned,
        budget=budget,
    )
