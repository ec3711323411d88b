"""A study: the jobs of accounting under several policies, beside what happened, and the replay's own error.

Each job runs as long as it did, on GPUs of the type that it had, with the GPUs that it had; what changes is when it
starts, and whether it is preempted. Policies do not know its length: they assume the rolling estimate of Helios from
jobs that had ended when it was submitted, else its time limit. One replay more lets the jobs arrive when they really
started: what waits there is the replay's error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from math import inf, isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from allocation.types import Floats
from estimation.durations import DurationHistory, JobTraits
from simulation.cluster import Cluster
from simulation.results.comparison import JobColumns, RunResult, RunSpec
from simulation.scenario.scenario import Scenario
from simulation.shadow.accounting import Accounting, SlurmJob, in_the_window
from simulation.shadow.nodes import cluster_spec
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import GangSpread, KnownRate, Program, TraceJob

POLICIES = ("fifo", "qssf", "srtf", "max_min_fairness", "motley")
"""The first two preempt no job; the others count on checkpoints."""
ROUND_S = 300
RESTART_S = 60
REPLAY = "fifo"
"""The order of the starts is that of the file: no other policy keeps it."""


class Waits(NamedTuple):
    """Hours that jobs waited, and the GPUs that were idle; of what happened, or of a policy."""

    mean_h: float
    median_h: float
    p99_h: float
    jct_mean_h: float
    short_mean_h: float
    """Of the half of the jobs with less GPU time."""
    idle_gpu_h: float
    """From the first submission to the last."""
    restarts: float
    teams: Mapping[str, float]
    """Mean hours of waiting by team."""


@dataclass(frozen=True)
class Study:
    """What is replayed, and where its traces lie."""

    accounting: Accounting
    cluster: Cluster
    policies: Sequence[str]
    folder: Path
    estimated: int
    """Number of jobs whose length was estimated from earlier ones."""
    limited: int
    """Number of the others that had a time limit."""

    @property
    def tasks(self) -> list[RunSpec]:
        scenario = scenario_of(self.cluster)
        of_policies = [RunSpec(scenario, self.folder / "trace.csv", policy, 0) for policy in self.policies]
        return [RunSpec(scenario, self.folder / "as-it-started.csv", REPLAY, 0), *of_policies]


def scenario_of(cluster: Cluster) -> Scenario:
    return Scenario(format_name="csv", cluster=cluster_spec(cluster), round_s=ROUND_S, restart_s=RESTART_S)


def too_large(jobs: Iterable[SlurmJob], cluster: Cluster) -> list[SlurmJob]:
    """Jobs with more GPUs than the cluster has of their type."""
    there = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
    return [job for job in jobs if job.gpus > there.get(job.gpu_type, 0)]


def prepare(accounting: Accounting, cluster: Cluster, policies: Sequence[str], folder: Path) -> Study:
    """Write both traces into the folder."""
    accounting = replace(accounting, jobs=in_the_window(accounting.jobs))
    jobs = accounting.jobs
    began_s = min(job.submitted_s for job in jobs)
    told = list(_told_lengths(jobs))
    folder.mkdir(parents=True, exist_ok=True)
    trace = [_trace_job(job, told_s, job.submitted_s - began_s) for job, (told_s, _) in zip(jobs, told, strict=True)]
    replayed = sorted(
        (_trace_job(job, job.ran_s, job.started_s - began_s) for job in jobs), key=lambda job: job.arrival_s
    )
    for name, rows in (("trace.csv", trace), ("as-it-started.csv", replayed)):
        with (folder / name).open("w") as file:
            file.writelines(write_motley_csv(rows))
    estimated = sum(is_estimate for _, is_estimate in told)
    limited = sum(isfinite(told_s) for told_s, _ in told) - estimated
    return Study(accounting, cluster, policies, folder, estimated, limited)


def _told_lengths(jobs: Sequence[SlurmJob]) -> Iterator[tuple[float, bool]]:
    """Seconds that policies assume of each job, and whether an estimate from earlier jobs is behind them."""
    history, ends, order = DurationHistory(), list[tuple[float, int, SlurmJob]](), count()
    numbers: dict[str, int] = {}
    for job in jobs:
        while ends and ends[0][0] <= job.submitted_s:
            ended = heappop(ends)[2]
            history.add(_traits(ended, numbers), ended.ran_s)
        found = history.estimate(_traits(job, numbers))
        yield (found.estimate.mean, True) if found else (job.limit_s or inf, False)
        heappush(ends, (job.ended_s, next(order), job))


def _traits(job: SlurmJob, numbers: dict[str, int]) -> JobTraits:
    user, team = (numbers.setdefault(name, len(numbers)) for name in (f"user {job.user}", f"team {job.team}"))
    return JobTraits(user=user, name=job.name, gpus=job.gpus, team=team)


def _trace_job(job: SlurmJob, told_s: float, arrival_s: float) -> TraceJob:
    """Its work is the seconds that it ran, at one step per second."""
    rate = KnownRate(job.gpu_type, job.gpus, 1.0)
    return TraceJob(
        name=job.id,
        arrival_s=arrival_s,
        gangs=(job.gpus,),
        gpu_types=frozenset({job.gpu_type}),
        program=Program(rates=(rate,)),
        spread=GangSpread.UNEVEN if job.nodes and job.gpus % len(job.nodes) else GangSpread.EQUAL,
        total_steps=job.ran_s,
        team=job.team,
        declared_length=told_s / job.ran_s,
    )


def what_happened(study: Study) -> Waits:
    """The waits of the accounting itself."""
    jobs = study.accounting.jobs
    arrivals, starts, ran, gpus = (
        np.array([getattr(job, name) for job in jobs]) for name in ("submitted_s", "started_s", "ran_s", "gpus")
    )
    window = float(arrivals.min()), float(arrivals.max())
    busy_s = np.clip(np.minimum(starts + ran, window[1]) - np.maximum(starts, window[0]), 0, None) @ gpus
    there_s = float(study.cluster.capacity.sum()) * (window[1] - window[0])
    return _waits(study, starts - arrivals, ran, there_s - busy_s, np.zeros(len(jobs)))


def of_policy(study: Study, result: RunResult) -> Waits:
    """The waits under a policy: all time in which a job did not run."""
    jobs = result.jobs
    waited_s = _by_job(study, jobs)
    length_s = study.accounting.jobs[-1].submitted_s - study.accounting.jobs[0].submitted_s
    edges = np.linspace(0, result.whole_s, result.busy.shape[1] + 1)
    inside = np.clip(np.minimum(edges[1:], length_s) - edges[:-1], 0, None)
    busy_s = float((result.busy.sum(axis=0) * inside).sum())
    order = _order(study, jobs)
    idle_s = float(study.cluster.capacity.sum()) * length_s - busy_s
    return _waits(study, waited_s, jobs.running_s[order], idle_s, jobs.restarts[order].astype(float))


def replay_error_h(study: Study, result: RunResult) -> tuple[float, float]:
    """Mean and 99th percentile of the hours by which jobs start late in the replay of their own starts."""
    late_s = _by_job(study, result.jobs)
    return float(np.nanmean(late_s)) / 3600, float(np.nanpercentile(late_s, 99)) / 3600


def _by_job(study: Study, jobs: JobColumns) -> Floats:
    return (jobs.jct_s - jobs.running_s)[_order(study, jobs)]


def _order(study: Study, jobs: JobColumns) -> Sequence[int]:
    """Rows of a result in the order of the accounting; names are unique, but for jobs that Slurm ran again."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(jobs.names):
        rows.setdefault(name, []).append(row)
    return [rows[job.id].pop(0) for job in study.accounting.jobs]


def _waits(study: Study, waited_s: Floats, ran_s: Floats, idle_gpu_s: float, restarts: Floats) -> Waits:
    jobs = study.accounting.jobs
    gpu_s = np.array([job.gpus * job.ran_s for job in jobs])
    waited_h, teams = np.maximum(waited_s, 0) / 3600, np.array([job.team for job in jobs])
    return Waits(
        mean_h=float(np.nanmean(waited_h)),
        median_h=float(np.nanmedian(waited_h)),
        p99_h=float(np.nanpercentile(waited_h, 99)),
        jct_mean_h=float(np.nanmean(waited_h + ran_s / 3600)),
        short_mean_h=float(np.nanmean(waited_h[gpu_s <= np.median(gpu_s)])),
        idle_gpu_h=max(idle_gpu_s, 0.0) / 3600,
        restarts=float(np.nanmean(restarts)),
        teams={team: float(np.nanmean(waited_h[teams == team])) for team in sorted(set(teams.tolist()))},
    )


def left_out_lines(accounting: Accounting) -> Iterable[str]:
    """One line a reason: how many jobs, why, and some ids."""
    for why, number in sorted(accounting.left_out.items(), key=lambda pair: -pair[1]):
        yield f"{number:,}: {why} (e.g. {', '.join(accounting.examples[why][:3])})"
