r"""Certified bound of a trace: a mean completion time and a makespan that no schedule of it can beat.

**Mean completion time.** A schedule does the work of job i, which takes P seconds at its fastest, at a density
:math:`\rho_i(t) \le 1 / P_i`. With its mean busy date M, and C the completion,

.. math::
    C_i - M_i = \int_{r_i}^{C_i} (C_i - t)\, \rho_i(t)\, dt \ \ge\ P_i / 2,

because the integral is least if the density is at its most up to the completion. So the mean of M + P / 2 over all jobs
is a bound of that of C; the program over time (`allocation.plan`) has a lower bound of the former. It is a relaxation
of every schedule: nothing is restarted, gangs are fractional, arrivals are known, and what is left after the last
interval is done there without GPUs.

**Within an interval**, a job that runs at constant speed for the first c seconds after its begin b (or the job's
arrival) has its mean date c / 2 later. The cost of c seconds, c^2 / 2, is convex, and is replaced by the tangents at 0,
c_1 and the whole length A that is left after the arrival: pieces of c_1 / 2, A / 2 and the rest, in which a second
costs b, b + c_1 and b + A. The fastest configurations are in the first pieces, as is best for any schedule; it may
leave gaps, which only make it later. With c_1 where the job would end if it were alone, it has its exact completion
then; elsewhere c_1 is the P of a short job, or A / 2.

**Makespan.** For each of some arrivals a, the jobs that arrive from then on cannot be done earlier than a plus the
least time in which GPUs, taken as divisible, do their work (a linear program, by the certified bound of the policy
`makespan`); and no job is done before its arrival and its P seconds.

References
----------
.. [1] Goemans, Queyranne, Schulz, Skutella and Wang, SIAM Journal on Discrete Mathematics 2002, "Single machine
   scheduling with release dates" (mean busy dates).
.. [2] Schulz and Skutella, SIAM Journal on Discrete Mathematics 2002, "Scheduling unrelated machines by randomized
   rounding" (the program over intervals).
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from allocation.plan.program import HOUR_S, PlanProgram
from allocation.plan.solution import solve_plan
from allocation.policies.makespan import makespan
from allocation.problem import Problem
from allocation.types import Bools, Floats, Ints
from simulation.clock.fastest_course import FastestCourse
from simulation.rules.cpu_shares import CpuRule
from simulation.scenario.scenario import Scenario, TraceRun
from simulation.scenario.setting import InvalidSetting

ANY_POLICY = "fifo"
"""No policy is asked."""
GAP = 0.002
"""Relative optimality gap of the program over time."""
INTERVALS = 120
"""Intervals up to the bound of the makespan; after it they grow."""
MOST_ENTRIES = 6_000_000
"""Jobs x pieces x configurations, by which memory limits the number of intervals."""
LEAST_INTERVALS = 12
PIECES = 3
GROWTH = 1.3
"""Ratio of successive intervals after that."""
BEYOND = 1.5
"""End of the last interval, as a multiple of the bound of the makespan."""
DATES = 24
"""Dates from which on the bound of the makespan counts the work."""


@dataclass(frozen=True)
class TraceBound:
    """Lower bounds of what any schedule of a trace can reach, in hours; None: no job can run.

    alone_jct_h is the mean of jobs that are each alone on the cluster; relaxed_jct_h what the relaxed program reaches,
    and gap how far the bound is below that, as a part of it.
    """

    jobs: int
    cannot_run: int
    avg_jct_h: float | None
    makespan_h: float | None
    alone_jct_h: float | None
    relaxed_jct_h: float | None
    gap: float | None
    intervals: int
    wall_s: float

    @property
    def figures(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Work:
    """The work of m jobs: when each may begin (m,), its fastest course, and the GPUs that there are."""

    begin_s: Floats
    course: FastestCourse
    usage: Ints
    capacity: Ints

    @property
    def least_s(self) -> Floats:
        return self.course.least_s

    def subset(self, rows: Ints | Bools) -> "_Work":
        return _Work(self.begin_s[rows], self.course.subset(rows), self.usage, self.capacity)


def certified_bound(scenario: Scenario, trace: Path, seed: int = 0) -> TraceBound:
    """Bound of a trace under a scenario; whatever the policy.

    Raises
    ------
    InvalidSetting
        CPUs are shared out so that jobs may be faster than their rates.
    """
    if scenario.cpu_memory != CpuRule.PROPORTIONAL:
        raise InvalidSetting("a bound is by the rates with a proportional share of CPUs: leave out --cpu-memory")
    return bound_of(scenario.prepare(trace, ANY_POLICY, seed))


def bound_of(run: TraceRun, *, gap: float = GAP, intervals: int = INTERVALS) -> TraceBound:
    """Bound of a trace on a cluster, by its true rates and lengths."""
    began, jobs = perf_counter(), run.simulation.state.jobs
    M, m = len(jobs.names), int(jobs.runnable.sum())
    if not m:
        return TraceBound(M, M, None, None, None, None, None, 0, perf_counter() - began)
    work = _work(run).subset(jobs.runnable)
    start_s = float((work.begin_s - jobs.arrival_s[jobs.runnable]).sum())
    last_s = _last_s(work)
    ends_s = _ends_s(work, last_s, intervals)
    plan = solve_plan(_program(work, ends_s), gap=gap)
    alone_h, half_h = ((start_s + float(work.least_s.sum()) * part) / HOUR_S / m for part in (1.0, 0.5))
    bound_h, value_h = (max(alone_h, half_h + cost_h / m) for cost_h in (plan.bound, plan.value))
    return TraceBound(
        jobs=M,
        cannot_run=M - m,
        avg_jct_h=bound_h,
        makespan_h=(last_s - jobs.first_arrival_s) / HOUR_S,
        alone_jct_h=alone_h,
        relaxed_jct_h=value_h,
        gap=1 - bound_h / value_h if value_h > 0 else 0.0,
        intervals=len(ends_s),
        wall_s=perf_counter() - began,
    )


def _work(run: TraceRun) -> _Work:
    """The work of all jobs; it begins after the first start, which every schedule pays."""
    state, first_s = run.simulation.state, run.simulation.rounds.first_start_s
    jobs = state.jobs
    begin_s = jobs.arrival_s + (jobs.restart_s if first_s is None else first_s)
    return _Work(begin_s, state.work.fastest(), jobs.configurations.usage, state.capacity)


def _last_s(work: _Work) -> float:
    """Date before which no schedule has done all the work."""
    dates: Floats = np.unique(np.quantile(work.begin_s, np.linspace(0, 1, DATES), method="lower"))
    together = (date + _least_s_together(work.subset(work.begin_s >= date)) for date in dates.tolist())
    alone = float((work.begin_s + work.least_s).max())
    return float(max([alone, *together]))


def _least_s_together(work: _Work) -> float:
    """Least seconds in which GPUs, taken as divisible, do all the work."""
    fits = (work.usage <= work.capacity[:, None]).all(axis=0)
    some = work.subset(work.least_s > 0)
    if not some.least_s.size:
        return 0.0
    rate = np.where(fits, some.course.speed, 0)
    unit_s = min(float(some.least_s.min()), 1.0)  # the policy takes no job for shorter than a second
    problem = Problem.of(rate, work.usage, work.capacity, remaining_steps=some.least_s / unit_s)
    return float(makespan(problem).bound) * unit_s


def _ends_s(work: _Work, last_s: float, intervals: int) -> Floats:
    """Ends of the intervals: of one length up to the bound of the makespan, then growing."""
    m, K = work.course.speed.shape
    most = int(np.clip(MOST_ENTRIES // max(m * K * PIECES, 1), LEAST_INTERVALS, intervals))
    until_s = max(float(work.begin_s.max()), last_s, 1e-3)
    step_s = until_s / most
    ends = [step_s * (t + 1) for t in range(most)]
    while ends[-1] < BEYOND * last_s:
        step_s *= GROWTH
        ends.append(ends[-1] + step_s)
    return np.array(ends)


def _tangents(work: _Work, begins: Floats, left: Floats) -> Floats:
    """Seconds c_1 (m, T) of the middle tangent: where a job alone ends in the interval, else what halves it."""
    rest = work.least_s[:, None] - (begins - work.begin_s[:, None])
    ends_here = (rest > 0) & (rest < left)
    return np.where(ends_here, rest, np.minimum(work.least_s[:, None], left / 2))


def _program(work: _Work, ends_s: Floats) -> PlanProgram:
    """The program over time, with the pieces of each interval; costs are hours since each job's work may begin."""
    begins = np.maximum(np.append(0, ends_s[:-1]), work.begin_s[:, None])
    left = np.maximum(ends_s - begins, 0)
    at = _tangents(work, begins, left)
    lengths = np.stack([at / 2, left / 2, (left - at) / 2], axis=2)
    costs = (begins - work.begin_s[:, None])[..., None] + np.stack([np.zeros_like(at), at, left], axis=2)
    late_s = np.maximum(ends_s[-1], work.begin_s) - work.begin_s
    m = len(work.begin_s)
    cost_h = costs.reshape(m, -1) / HOUR_S
    return PlanProgram(
        rate=work.course.speed,
        usage=work.usage,
        steps=np.maximum(work.least_s, np.finfo(float).tiny),
        count=np.ones(m, dtype=np.int64),
        probability=np.ones(m),
        length_s=lengths.reshape(m, -1),
        cost_h=np.minimum(cost_h, late_s[:, None] / HOUR_S),
        late_h=np.maximum(late_s / HOUR_S, np.finfo(float).tiny),
        capacity=np.repeat(work.capacity[:, None].astype(float), len(ends_s), axis=1),
        ends_s=ends_s,
    )
