"""Max-min fairness of GPU time, blind to the types of GPUs (Gavel's `max_min_fairness`)."""

from numpy import ones, ones_like, where, zeros

from allocation.decision import Decision
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_levels
from allocation.problem import Problem, normaliser
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.water_filling import fill_evenly
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats


def max_min_fairness_agnostic(problem: Problem) -> Decision:
    r"""Give each job an equal part of the GPUs' time by weight, regardless of the GPU types' speeds.

    Choose it as the baseline with which `max_min_fairness` is compared, or where all GPU types are equally fast.

    It is `max_min_fairness` with the number of replicas instead of the rate; a replica is one GPU, unless the job says
    otherwise:

    .. math::
        T_{ik} := \frac{\rho_{ik}}{\min_k \rho_{ik}}\,[T_{ik} > 0]

    Gavel sets every rate to 1, even where a job cannot run; such shares are not given here.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K), read for its zeros only; u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,),
        rho = replicas (m, K).

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; prices (n,), gain in the level per GPU for the jobs that capacity limits
        first; objective z, in units of GPU time.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 7.1 (the LAS baseline, heterogeneity-agnostic).
    """
    budget = TimeBudget.of(problem)
    try:
        return fill_evenly(_gpu_time(problem), problem.usage, problem.capacity, budget=budget).decision
    except SolverFailed as failure:
        return plain_program(problem, budget=budget).in_place_of(failure)


def plain_program(problem: Problem, *, levels: int | None = None, budget: TimeBudget = UNLIMITED) -> Decision:
    """Solve max-min fairness at these rates by HiGHS, once for each level, up to `levels`."""
    u, c, a = problem.usage, problem.capacity, _gpu_time(problem)
    return solve_levels(
        [
            [-each_jobs_sum(a), ones((len(a), 1))],  # fair
            [each_jobs_sum(ones_like(a)), None],  # time
            [all_jobs_sum(u, len(a)), None],  # capacity
        ],
        [zeros(len(a)), ones(len(a)), c],
        rates=a,
        usage=u,
        levels=levels,
        budget=budget,
    ).decision


def _gpu_time(problem: Problem) -> Floats:
    """Replicas of each configuration as a rate a (m, K), by weight, relative to the average GPU."""
    T = where(problem.rate > 0, problem.replicas, 0) / problem.base_replicas[:, None]
    g, p = normaliser(T, problem.usage, problem.capacity, problem.gpus_per_replica)
    a: Floats = T * (g / (problem.weight * p))[:, None]
    return a
