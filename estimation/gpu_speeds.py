r"""Speeds of single GPUs in relation to their type: residuals of log rates, by medians, shrunk to the type.

Run a of a group g, one workload on one number of GPUs of one type, on the GPUs :math:`S_a` has the log rate

.. math::
    y_a = \mu_{g(a)} + \min_{k \in S_a} e_k + \varepsilon_a

because the slowest GPU of a gang determines its rate. Both are fitted in turn: :math:`\mu_g` is the median of what the
GPUs do not explain, in which the runs on one GPU weigh as much as those on any other; :math:`e_k` is the median
residual of the runs in which no other member is known to be slower, times :math:`n / (n + n_0)` for n jobs. Runs tell
something of a GPU only if their group has run without it. GPUs whose telling runs are the same cannot be told apart:
their speed is that of all of them, and which of them is slow is not known.

References
----------
.. [1] Jain et al., arXiv 2408.11919, "PAL: A Variability-Aware Policy for Scheduling ML Workloads in GPU Clusters".
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from estimation.types import Bools, Floats, Ints

PASSES = 10
FIRST_PART = 0.8
"""Quantile of residuals in the first pass: a gang is at most as fast as each member, so low ones may be of others."""
PRIOR_JOBS = 3.0
"""Weight of the type in the speed of a GPU, in jobs."""
LEAST_JOBS = 5
"""Different jobs behind a speed: one job that is slow for reasons of its own proves nothing."""
LEAST_OTHERS = 2
"""Runs of a group without a GPU that make its runs on the GPU tell something."""
NEARLY = 0.02
"""Log speeds that are as good as the same: the slower of two such members does not explain a gang's rate alone."""
SLOW_BY, SLOW_AGAIN_BY = 0.05, 0.025
"""Part by which a GPU is slower than its type and is called slow; it is called so until it is within the second."""
SURE = 2.0
"""Standard errors of the median by which a slow GPU differs from its type."""
NORMAL_MAD, NORMAL_MEDIAN = 1.4826, 1.2533
"""Standard deviation over median absolute deviation, and standard error of a median over that of a mean (normal)."""


@dataclass(frozen=True, eq=False)
class GpuRuns:
    """R runs on G GPUs, with P pairs of a run and a GPU of it.

    log_rate (R,), log of steps/s; group (R,) and job (R,), numbers from 0; run (P,), gpu (P,), in any order.
    """

    log_rate: Floats
    group: Ints
    job: Ints
    run: Ints
    gpu: Ints
    gpus: int

    def __post_init__(self) -> None:
        if len(self.run) != len(self.gpu) or not len(self.log_rate) == len(self.group) == len(self.job):
            raise ValueError("the columns of runs must have equal lengths")

    def by_run(self) -> Self:
        """With the pairs in the order of runs."""
        order = np.lexsort((self.gpu, self.run))
        return type(self)(self.log_rate, self.group, self.job, self.run[order], self.gpu[order], self.gpus)


@dataclass(frozen=True, eq=False)
class GpuSpeeds:
    """Log speed (G,) in relation to the type, shrunk; its standard error (G,); and the jobs (G,) that tell it.

    together (G,): GPUs that cannot be told apart have the same number.
    """

    log_speed: Floats
    error: Floats
    jobs: Ints
    together: Ints

    def slower_by(self, slow_before: Bools) -> Floats:
        """Part (G,) by which each slow GPU is slower than its type, 0 for all others."""
        slower: Floats = -np.expm1(self.log_speed)
        threshold = np.where(slow_before, SLOW_AGAIN_BY, SLOW_BY)
        sure = -self.log_speed > SURE * self.error
        return np.where((slower >= threshold) & sure & (self.jobs >= LEAST_JOBS), slower, 0.0)


def gpu_speeds(runs: GpuRuns) -> GpuSpeeds:
    """Fit the speed of each GPU; a GPU of which nothing is known is as fast as its type."""
    runs = runs.by_run()
    telling = _telling(runs)
    log_speed = np.zeros(runs.gpus)
    for number in range(PASSES if telling.any() else 0):
        residual = _residuals(runs, log_speed)
        seen = telling & (log_speed[runs.gpu] <= _slowest_other(runs, log_speed) + NEARLY)
        jobs = _jobs_of(runs, seen)
        part = 0.5 if number else FIRST_PART
        median = grouped_quantile(residual[runs.run][seen], runs.gpu[seen], runs.gpus, part=part)
        log_speed = np.where(jobs > 0, median * jobs / (jobs + PRIOR_JOBS), 0.0)
    if not telling.any():
        return GpuSpeeds(log_speed, np.zeros(runs.gpus), np.zeros(runs.gpus, dtype=np.int64), np.arange(runs.gpus))
    together = _always_together(runs, telling)
    return GpuSpeeds(log_speed, _errors(residual[runs.run], median, runs, seen, jobs), jobs, together)


def _telling(runs: GpuRuns) -> Bools:
    """Pairs (P,) of which the group has runs without the GPU."""
    groups = int(runs.group.max(initial=-1)) + 1
    of_group = np.bincount(runs.group, minlength=groups)
    pair_group = runs.group[runs.run]
    _, pair, with_gpu = np.unique(pair_group * runs.gpus + runs.gpu, return_inverse=True, return_counts=True)
    telling: Bools = of_group[pair_group] - with_gpu[pair] >= LEAST_OTHERS
    return telling


def _always_together(runs: GpuRuns, telling: Bools) -> Ints:
    """Numbers (G,), equal for GPUs of which the same runs tell; one of which none tells has a number of its own."""
    of_gpu: list[list[int]] = [[] for _ in range(runs.gpus)]
    for run, gpu in zip(runs.run[telling].tolist(), runs.gpu[telling].tolist(), strict=True):
        of_gpu[gpu].append(run)
    numbers: dict[tuple[int, ...], int] = {}
    return np.array([numbers.setdefault(tuple(told) or (-1 - gpu,), gpu) for gpu, told in enumerate(of_gpu)])


def _residuals(runs: GpuRuns, log_speed: Floats) -> Floats:
    """Log rates (R,) without what their group explains."""
    slowest = np.full(len(runs.log_rate), np.inf)
    np.minimum.at(slowest, runs.run, log_speed[runs.gpu])
    first = np.zeros(len(runs.log_rate), dtype=np.int64)
    first[runs.run[::-1]] = runs.gpu[::-1]
    _, place, times = np.unique(runs.group * runs.gpus + first, return_inverse=True, return_counts=True)
    groups = int(runs.group.max(initial=-1)) + 1
    usual = grouped_quantile(runs.log_rate - slowest, runs.group, groups, weight=1 / times[place])
    residual: Floats = runs.log_rate - usual[runs.group]
    return residual


def _slowest_other(runs: GpuRuns, log_speed: Floats) -> Floats:
    """Log speed (P,) of the slowest of the other members of each pair's run; inf: there is none."""
    order = np.lexsort((log_speed[runs.gpu], runs.run))
    run, speed = runs.run[order], log_speed[runs.gpu[order]]
    begins = np.flatnonzero(np.diff(run, prepend=-1))
    size = np.diff(np.append(begins, len(run)))
    others = np.repeat(speed[begins], size)
    others[begins] = np.where(size > 1, speed[np.minimum(begins + 1, len(run) - 1)], np.inf)
    found = np.empty(len(run))
    found[order] = others
    return found


def _jobs_of(runs: GpuRuns, seen: Bools) -> Ints:
    """Different jobs (G,) behind the pairs that are seen."""
    jobs = int(runs.job.max(initial=-1)) + 1
    pairs = np.unique(runs.gpu[seen] * jobs + runs.job[runs.run[seen]])
    return np.bincount(pairs // jobs, minlength=runs.gpus)


def _errors(residual: Floats, median: Floats, runs: GpuRuns, seen: Bools, jobs: Ints) -> Floats:
    """Standard errors (G,) of medians; the spread of a GPU's residuals is at least that of half of all GPUs."""
    off = np.abs(residual[seen] - median[runs.gpu[seen]])
    spread = NORMAL_MAD * grouped_quantile(off, runs.gpu[seen], runs.gpus)
    floor = NORMAL_MAD * np.median(off) if off.size else 0.0
    errors: Floats = NORMAL_MEDIAN * np.maximum(spread, floor) / np.sqrt(np.maximum(jobs, 1))
    return errors


def grouped_quantile(
    values: Floats, group: Ints, groups: int, *, weight: Floats | None = None, part: float = 0.5
) -> Floats:
    """Weighted quantile (groups,) of the values of each group, one of them; 0 for an empty group."""
    weight = np.ones(len(values)) if weight is None else weight
    order = np.lexsort((values, group))
    values, group, weight = values[order], group[order], weight[order]
    total = np.bincount(group, weight, minlength=groups)
    begins = np.concatenate([[0.0], np.cumsum(total)])[group]
    above = np.flatnonzero(np.cumsum(weight) - begins >= total[group] * part * (1 - 1e-9))
    found = np.zeros(groups)
    found[group[above[::-1]]] = values[above[::-1]]
    return found
