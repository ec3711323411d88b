"""Least makespan (Gavel's `min_total_duration`)."""

from typing import Annotated

from numpy import isfinite, maximum, where

from allocation.arrays import Floats
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.levels import fill_evenly
from allocation.packed_levels import PACKED, pack_evenly
from allocation.parameters import Switch
from allocation.problem import Problem


def makespan(problem: Problem, *, packed: Annotated[bool, Switch(PACKED, simulated=True)] = False) -> Decision:
    r"""Be done with all jobs as soon as possible.

    Choose it for a fixed batch of jobs of which the last one counts, as in a search over hyperparameters.

    .. math::
        \max_{X,\,z}\ z \quad\text{s.t.}\quad
        & \textstyle z\, r_i - \sum_k T_{ik} X_{ik} \le 0     && \forall i \quad\text{(done by } 1/z\text{)} \\
        & \textstyle \sum_k X_{ik} \le 1                      && \forall i \quad\text{(time)} \\
        & \textstyle \sum_i \sum_k u_{jk} X_{ik} \le c_j      && \forall j \quad\text{(capacity)}

    One program, where Gavel bisects to 5 %. What the last job leaves goes to the one that would be done next to last,
    and so on. A job of unknown length is taken for as long as the longest known one, on the average GPU.

    Parameters
    ----------
    problem : Problem
        T = rate (m, K) steps/s, r = remaining_steps (m,), u = usage (n, K) GPUs, c = capacity (n,) GPUs,
        p = base_rate (m,) steps/s on the average GPU.
    packed : bool
        The time (pairs) that two jobs spend on the same GPUs is chosen, too, by their workload and kept_rate: see
        `allocation.packing`. The promise is the same for the ten lowest levels; above, nobody has less than the tenth.

    Returns
    -------
    Decision
        shares X (m, K), fraction of time; objective 1/z in seconds, the least is best; prices (n,), the seconds that
        one more GPU would save those whom capacity holds up longest.

    Raises
    ------
    SolverFailed
        The solver stopped early. Infeasible cannot happen: X = 0, z = 0 is feasible.

    References
    ----------
    .. [1] Narayanan et al., OSDI 2020, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
       section 4.2.
    """
    r = steps_left(problem)
    if packed:
        return pack_evenly(problem, 1 / r).inverse_decision
    best = fill_evenly(problem.rate / r[:, None], problem.usage, problem.capacity, deadline=Deadline.of(problem))
    return best.inverse_decision


def steps_left(problem: Problem) -> Floats:
    """Steps (m,), at least those of a second; a job of unknown length is as long as the longest known one."""
    r, p = problem.remaining_steps, problem.base_rate
    known = isfinite(r)
    longest_s = maximum(where(known, r / p, 0).max(initial=0), 1)
    return maximum(where(known, r, longest_s * p), p)
