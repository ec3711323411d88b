"""Max-min fairness of normalised throughput (Gavel)."""

from typing import Annotated

from numpy import ones, ones_like, zeros

from allocation.decision import Decision
from allocation.policies.parameters import Switch
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_levels
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.water_filling import fill_evenly
from allocation.space_sharing.water_filling import PACKED, pack_evenly
from allocation.time_budget import UNLIMITED, TimeBudget
from allocation.types import Floats


def max_min_fairness(problem: Problem, *, packed: Annotated[bool, Switch(PACKED, simulated=True)] = False) -> Decision:
    r"""Make the worst-off job as fast as possible, relative to its fair share; then the next.

    Choose it when many people share the cluster and each should get at least the work of a fair part of it.

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle z - \sum_k a_{ik} X_{ik} \le 0          && \forall i \quad\text{(fair)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)} \\
        & 0 \le X_{ik} \le [T_{ik} > 0], \qquad a_{ik} = \frac{g_i}{w_i\,p_i}\, T_{ik}

    Many X reach the best z. The lexicographic one is chosen: jobs that capacity stops at z stay there,
    and the level of the others rises until capacity, or their own time, stops them too. So the slack goes to the
    next worst-off jobs, and the decision does not depend on the solver's path.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, u = usage (n, K) GPUs, c = capacity (n,) GPUs, w = weight (m,),
        g = base_gpus (m,), p = base_rate (m,) steps/s on the average GPU.
    packed : bool
        Also choose the time (pairs) that two jobs share GPUs, by their workload and kept_rate (`SpaceSharing`): see
        `allocation.space_sharing.column_generation`. The ten lowest levels are exact; above them
        no job gets less than the tenth level.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time, 0 to 1; prices (n,), gain in the level per GPU for the jobs that
        capacity limits first; objective z.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       sections 4.1 and 4.3.
    """
    T, scale = problem.rate, _scale(problem)
    if packed:
        return pack_evenly(problem, scale).decision
    budget = TimeBudget.of(problem)
    try:
        return fill_evenly(T * scale[:, None], problem.usage, problem.capacity, budget=budget).decision
    except SolverFailed as failure:
        return plain_program(problem, budget=budget).in_place_of(failure)


def plain_program(problem: Problem, *, levels: int | None = None, budget: TimeBudget = UNLIMITED) -> Decision:
    """Solve the program above by HiGHS, then once more for each further level, up to `levels`."""
    u, c, a = problem.usage, problem.capacity, problem.rate * _scale(problem)[:, None]
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


def _scale(problem: Problem) -> Floats:
    """Level per step/s of each job (m,): g / (w p)."""
    g, w, p = problem.base_gpus, problem.weight, problem.base_rate
    return g / (w * p)
