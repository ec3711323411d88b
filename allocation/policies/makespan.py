"""Minimum makespan (Gavel's `min_total_duration`)."""

from typing import Annotated

from numpy import ones, ones_like, zeros

from allocation.decision import Decision
from allocation.policies._shared import steps_left
from allocation.policies.parameters import Switch
from allocation.policies.plain_programs import all_jobs_sum, each_jobs_sum, solve_levels
from allocation.problem import Problem
from allocation.solvers.linear_program import SolverFailed
from allocation.solvers.water_filling import fill_evenly
from allocation.space_sharing.water_filling import PACKED, pack_evenly
from allocation.time_budget import UNLIMITED, TimeBudget


def makespan(problem: Problem, *, packed: Annotated[bool, Switch(PACKED, simulated=True)] = False) -> Decision:
    r"""Complete the last of all jobs as early as possible.

    Choose it for a fixed set of jobs of which the last completion counts, such as a hyperparameter search.

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle z\, r_i - \sum_k T_{ik} X_{ik} \le 0     && \forall i \quad\text{(done by } 1/z\text{)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    One linear program, where Gavel bisects to 5 %. Capacity that the last job leaves goes to the next to last,
    and so on. A job of unknown length is assumed to be as long as the longest known one, on the average GPU.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), u = usage (n, K) GPUs, c = capacity (n,) GPUs,
        p = base_rate (m,) steps/s on the average GPU.
    packed : bool
        Also choose the time (pairs) that two jobs share GPUs, by their workload and kept_rate (`SpaceSharing`): see
        `allocation.space_sharing.column_generation`. The ten lowest levels are exact; above them
        no job gets less than the tenth level.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; objective 1/z in seconds, to be minimised; prices (n,), seconds saved
        per additional GPU for the jobs that capacity limits first.

    Raises
    ------
    SolverFailed
        Neither the solver nor the plain program ended in time. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    r = steps_left(problem)
    if packed:
        return pack_evenly(problem, 1 / r).inverse_decision
    budget = TimeBudget.of(problem)
    try:
        best = fill_evenly(problem.rate / r[:, None], problem.usage, problem.capacity, budget=budget)
    except SolverFailed as failure:
        return plain_program(problem, budget=budget).in_place_of(failure)
    return best.inverse_decision


def plain_program(problem: Problem, *, levels: int | None = None, budget: TimeBudget = UNLIMITED) -> Decision:
    """Solve the program above by HiGHS, then once more for each further level, up to `levels`."""
    T, u, c, r = problem.rate, problem.usage, problem.capacity, steps_left(problem)
    return solve_levels(
        [
            [-each_jobs_sum(T), r[:, None]],  # done by 1/z
            [each_jobs_sum(ones_like(T)), None],  # time
            [all_jobs_sum(u, len(T)), None],  # capacity
        ],
        [zeros(len(T)), ones(len(T)), c],
        rates=T,
        usage=u,
        levels=levels,
        budget=budget,
    ).inverse_decision
