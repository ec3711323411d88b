"""Queueing where lengths are known, estimated or wrong: `python -m benchmarks.remaining_work`, as Markdown.

Philly's jobs of October and November 2017 run on their virtual clusters, each with a third of its nodes (rounded up),
by Helios' rules (`benchmarks.virtual_cluster`): in the order of submission, of the true durations, and of predicted GPU
time. The trace has neither users nor names: the estimate there is that of jobs of the same virtual cluster and size.
Below, the simulator beside it on one virtual cluster. Needs the reference data, see CONTRIBUTING.md.
"""

import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from statistics import fmean

import numpy as np

from benchmarks.figures import percentile
from benchmarks.problems import reference
from benchmarks.virtual_cluster import GPUS_PER_NODE, NoteEnd, Priority, QueuedJob, waits_of
from estimation.accuracy import accuracy_of
from estimation.boosted_durations import MOST_LEARNED, BoostedDurations, DurationEstimator, fit_observations
from estimation.duration_features import EndedSubmission, FeatureHistory, Features, Observation, Submission
from estimation.durations import DurationEstimate, DurationHistory, JobTraits
from simulation.clock.run import Simulation
from simulation.cluster import Cluster
from simulation.scenario.setting import Setting, begin
from simulation.traces.philly import read_philly
from simulation.traces.trace import Trace, TraceJob
from simulation.workloads.rate_sources import BySpeed

START = datetime(2017, 10, 1, tzinfo=UTC)
DAY_S = 86_400
FIRST_DAY, LAST_DAY = "2017-10-01", "2017-11-30"
PART = 3
SEEDS = (0, 1, 2)
WRONG = ((0.1, 0.0, 0.1), (0.4, 0.1, 0.5), (0.2, 0.5, 1.0), (0.2, 1.0, 10.0), (0.1, 10.0, 100.0))
"""Helios' noise: so many of the predictions are off by a factor between these, relative to the truth, up or down."""
COMPARED = "7f04ca"
"""A virtual cluster that is overloaded and small enough for the simulator to go through in seconds."""


@dataclass(eq=False)
class Rule:
    """An order of the queue, and the durations that it was told; fresh for each virtual cluster."""

    priority: Priority
    note_end: NoteEnd = lambda *_: None


class Told:
    """Predicted and true durations of all jobs, in the order of their submission."""

    def __init__(self) -> None:
        self.predicted: list[float] = []
        self.true: list[float] = []

    def gpu_time(self, job: QueuedJob, seconds: float) -> float:
        self.predicted.append(seconds)
        self.true.append(job.duration_s)
        return seconds * job.gpus


def fifo(_: Told, __: np.random.Generator) -> Rule:
    return Rule(lambda job: job.arrival_s)


def shortest(told: Told, _: np.random.Generator) -> Rule:
    return Rule(lambda job: told.gpu_time(job, job.duration_s) / job.gpus)


def oracle(told: Told, _: np.random.Generator) -> Rule:
    return Rule(lambda job: told.gpu_time(job, job.duration_s))


def noisy(told: Told, rng: np.random.Generator) -> Rule:
    parts = np.array([part for part, *_ in WRONG])

    def predicted(job: QueuedJob) -> float:
        _, low, high = WRONG[int(rng.choice(len(WRONG), p=parts))]
        return job.duration_s * (1 + float(rng.choice([-1, 1]) * rng.uniform(low, high)))

    return Rule(lambda job: told.gpu_time(job, predicted(job)))


def rolling(told: Told, _: np.random.Generator) -> Rule:
    """The estimate of `estimation.durations` from the jobs that have ended; before any, the number of GPUs decides."""
    history = DurationHistory()

    def traits(job: QueuedJob) -> JobTraits:
        return JobTraits(0, "", job.gpus)

    def predicted(job: QueuedJob) -> float:
        found = history.estimate(traits(job))
        return found.estimate.mean if found else 0.0

    return Rule(lambda job: told.gpu_time(job, predicted(job)), lambda job, _: history.add(traits(job), job.duration_s))


def boosted(told: Told, _: np.random.Generator) -> Rule:
    """The model of `estimation.boosted_durations`, fitted each day to the jobs that had ended, else as `rolling`."""
    learner = DailyFit()
    return Rule(lambda job: told.gpu_time(job, learner.predict(job)), learner.note_end)


class DailyFit:
    """Predictions by a model that is fitted anew at the first submission of each day, to what had ended by then."""

    def __init__(self) -> None:
        self.history, self.day = FeatureHistory(), 0
        self.model: BoostedDurations | None = None
        self.submitted: dict[QueuedJob, tuple[Features, DurationEstimate]] = {}
        self.ended: list[Observation] = []

    def predict(self, job: QueuedJob) -> float:
        """Expected duration in seconds; before any job has ended, the number of GPUs decides."""
        self._fit_when_due(job.arrival_s)
        submission = _submission(job)
        found = DurationEstimator(self.history, self.model).estimate(submission)
        features, rolling = self.history.features(submission), self.history.rolling.estimate(submission.traits)
        if features and rolling:
            self.submitted[job] = features, rolling
        return found.estimate.mean if found else 0.0

    def note_end(self, job: QueuedJob, now_s: float) -> None:
        submission = _submission(job)
        self.history.add(submission, job.duration_s)
        if job in self.submitted:
            ended = EndedSubmission(submission, START + timedelta(seconds=now_s), job.duration_s)
            self.ended.append(Observation(ended, *self.submitted[job]))

    def _fit_when_due(self, now_s: float) -> None:
        if (day := int(now_s // DAY_S)) > self.day:
            self.day, last = day, self.ended[-MOST_LEARNED:]
            fitted = fit_observations(sorted(last, key=lambda one: one.job.submission.at))
            self.model = fitted[0] if fitted else None


def _submission(job: QueuedJob) -> Submission:
    return Submission(JobTraits(0, "", job.gpus), START + timedelta(seconds=job.arrival_s))


RULES = {
    "in the order of submission (`fifo`)": (fifo, 1),
    "true duration, smallest first": (shortest, 1),
    "true GPU time, smallest first (`qssf`, oracle)": (oracle, 1),
    "predicted GPU time, Helios' noise": (noisy, len(SEEDS)),
    "predicted GPU time, by the rolling estimate": (rolling, 1),
    "predicted GPU time, by gradient boosting where it was better": (boosted, 1),
}


def main() -> None:
    clusters = read_virtual_clusters()
    jobs = sum(len(of_cluster) for of_cluster, _ in clusters.values())
    sys.stdout.write(f"{jobs:,} jobs on {sum(nodes for _, nodes in clusters.values())} nodes\n\n")
    sys.stdout.write("| order of the queue | mean completion time, s | mean queueing, s | queueing, p99, s |")
    sys.stdout.write(" predictions within a factor | rank correlation |\n| --- | ---: | ---: | ---: | ---: | ---: |\n")
    for name, (rule, seeds) in RULES.items():
        sys.stdout.write(line(name, [measured(clusters, rule, seed) for seed in SEEDS[:seeds]]))
    sys.stdout.write(f"\n| virtual cluster {COMPARED} | by Helios' rules | by the simulator |\n| --- | ---: | ---: |\n")
    for policy, rule in (("fifo", fifo), ("qssf", oracle)):
        sys.stdout.write(beside_simulator(clusters, policy, rule))


VirtualClusters = dict[str, tuple[Sequence[TraceJob], int]]
"""Name → jobs, and nodes."""


def read_virtual_clusters() -> VirtualClusters:
    traces = reference() / "traces"
    with gzip.open(traces / "philly_jobs_sia.csv.gz", "rt") as lines:
        head, *rows = lines
    jobs: dict[str, list[TraceJob]] = defaultdict(list)
    for job in read_philly([head, *(row for row in rows if FIRST_DAY <= row[: len(FIRST_DAY)] <= LAST_DAY)]).jobs:
        jobs[job.team or ""].append(job)
    with (traces / "philly_vc.csv").open() as table:
        sizes = {row["vc"]: int(row["node num"]) for row in csv.DictReader(table)}
    return {name: (jobs[name], ceil(nodes / PART)) for name, nodes in sizes.items()}


@dataclass(frozen=True)
class Found:
    """Seconds of all jobs, and how good the predictions were; NaN where there were none."""

    waits_s: Sequence[float]
    completion_s: float
    factor: float
    rank_correlation: float


def measured(clusters: VirtualClusters, rule: Callable[[Told, np.random.Generator], Rule], seed: int) -> Found:
    told, rng, waits = Told(), np.random.default_rng(seed), list[float]()
    for jobs, nodes in clusters.values():
        applied = rule(told, rng)
        waits += waits_of(list(_queued(jobs)), nodes, applied.priority, applied.note_end)
    durations = [job.duration_s or 0.0 for jobs, _ in clusters.values() for job in jobs]
    accuracy = accuracy_of(np.maximum(told.predicted, 0.0), np.array(told.true))
    return Found(waits, fmean(waits) + fmean(durations), accuracy.factor, accuracy.rank_correlation or np.nan)


def _queued(jobs: Sequence[TraceJob]) -> Iterator[QueuedJob]:
    return (QueuedJob(job.team or "", job.arrival_s, job.duration_s or 0.0, job.gangs[0]) for job in jobs)


def line(name: str, found: Sequence[Found]) -> str:
    """Means over the seeds."""
    figures = (
        fmean(one.completion_s for one in found),
        fmean(fmean(one.waits_s) for one in found),
        fmean(percentile(one.waits_s, 99) for one in found),
    )
    factor, correlation = fmean(one.factor for one in found), fmean(one.rank_correlation for one in found)
    accuracy = f"{factor:.2f} | {correlation:.2f}" if np.isfinite(factor) else " | "
    return f"| {name} | {' | '.join(f'{figure:,.0f}' for figure in figures)} | {accuracy} |\n"


def beside_simulator(clusters: VirtualClusters, policy: str, rule: Callable[[Told, np.random.Generator], Rule]) -> str:
    """Mean completion time of one virtual cluster's jobs, by the replay and by a simulation of the service's rounds."""
    jobs, nodes = clusters[COMPARED]
    replayed = measured({COMPARED: clusters[COMPARED]}, rule, 0).completion_s
    setting = Setting.read(policy=policy, rules="service", round_s=1e7, seed=0, failures=None, event_delay_s=0.0)
    cluster, rounds = setting.rounds(Cluster.parse(f"v100={nodes}x{GPUS_PER_NODE}"))
    state = Simulation(begin(Trace.of(jobs), cluster, BySpeed(), rounds, None), rounds).run()
    simulated = float((state.finish_s - state.jobs.arrival_s).mean())
    return f"| `{policy}`, mean completion time, s | {replayed:,.0f} | {simulated:,.0f} |\n"


if __name__ == "__main__":
    main()
