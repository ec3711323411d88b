"""Jobs on spot machines under several plans of checkpoints: `python -m benchmarks.intermittence`, as Markdown.

The recorded availability of V100 machines in nine zones over 45 days (SkyPilot). Lifetimes are fitted on the first half
of a zone's record; jobs run on the second, one at a time on one machine. Work between two checkpoints that an
interruption falls into is done again. Needs the reference data, see CONTRIBUTING.md.
"""

import json
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import NamedTuple, Self

import numpy as np

from benchmarks.problems import reference
from estimation.checkpoint_plan import JIT_MARGIN, daly_interval, plan_checkpoints
from estimation.interrupted_work import Interruptions, duration_of
from estimation.node_lifetimes import Exposure, SurvivalCurve, kaplan_meier
from estimation.types import Bools, Floats

ARCHIVE, ZONES = "skypilot_spot_gpu_traces.tar.gz", "availability/1-node/aws-02-15-2023/"
POOL_MEAN_S = 4 * 3600.0
JOBS = 60
STAGES, MEDIAN_STAGE_S, STAGE_SIGMA = 240, 90.0, 0.6
COSTS_S = (8.0, 25.0, 60.0, 150.0)
RESTORE_S = 90.0
NOTICE_S, NOTIFIED = 120.0, 0.9
SEEDS = (0, 1)
DEADLINES = (2, 3)
"""In multiples of a job's work."""


class Up(NamedTuple):
    """Intervals (N,) in which a machine is up, in seconds from the start of the record."""

    start: Floats
    end: Floats


class Fitted(NamedTuple):
    """What is known of a zone from the first half of its record."""

    interruptions: Interruptions
    lifetimes: SurvivalCurve


class Job(NamedTuple):
    """Seconds of work (K,) of each stage and of the checkpoint after it; its submission, and which notices it gets."""

    work_s: Floats
    cost_s: Floats
    submitted_s: float
    notices: Bools
    """Whether the first, second, ... interruption is announced in time."""


@dataclass(frozen=True)
class Zone:
    """A zone's record, and what was known of it when its second half began."""

    up: Up
    known: Fitted

    @classmethod
    def of(cls, samples: Sequence[int], gap_s: float) -> Self:
        half = len(samples) // 2
        return cls(intervals(np.array(samples[half:]), gap_s), fit(np.array(samples[:half]), gap_s))


def intervals(samples: np.ndarray, gap_s: float) -> Up:
    """The intervals in which the machine was up, by a sample each `gap_s`."""
    edges = np.diff(np.concatenate([[0], samples, [0]]))
    starts, ends = (gap_s * np.flatnonzero(edges == way).astype(np.float64) for way in (1, -1))
    return Up(starts, ends)


def fit(samples: np.ndarray, gap_s: float) -> Fitted:
    """Lifetimes up and down; what has not ended with the record is censored."""
    whole = len(samples) * gap_s
    up, down = intervals(samples, gap_s), intervals(1 - samples, gap_s)
    mean_up_s, mean_down_s = (
        Exposure.of(found.end - found.start, found.end < whole).shrunk_mean(POOL_MEAN_S) for found in (up, down)
    )
    return Fitted(Interruptions(mean_up_s, mean_down_s), kaplan_meier(up.end - up.start, up.end < whole))


def zones() -> list[Zone]:
    with tarfile.open(reference() / "traces" / ARCHIVE) as archive:
        names = sorted(name for name in archive.getnames() if name.startswith(ZONES) and name.endswith(".json"))
        records = [json.loads(archive.extractfile(name).read()) for name in names]  # type: ignore[union-attr]
    return [Zone.of(record["data"], record["metadata"]["gap_seconds"]) for record in records]


def jobs_of(zone: Zone, rng: np.random.Generator, *, number: int = JOBS) -> Iterator[Job]:
    """Jobs submitted at any moment in the first four fifths of the zone's record: the rest is left to finish in."""
    for _ in range(number):
        yield Job(
            work_s=rng.lognormal(np.log(MEDIAN_STAGE_S), STAGE_SIGMA, STAGES),
            cost_s=rng.choice(COSTS_S, STAGES),
            submitted_s=rng.uniform(0, 0.8 * zone.up.end[-1]),
            notices=rng.random(len(zone.up.end)) < NOTIFIED,
        )


# -- plans: after which stages a job saves, (K,) -----------------------------------------------------------------------


def none(job: Job, known: Fitted) -> Bools:
    return np.zeros(len(job.work_s), dtype=np.bool_)


def every_stage(job: Job, known: Fitted) -> Bools:
    return np.ones(len(job.work_s), dtype=np.bool_)


def daly(job: Job, known: Fitted) -> Bools:
    """At the first boundary after Daly's interval of the mean cost."""
    cost_s = np.full(len(job.work_s), job.cost_s.mean())
    return _when_due(job.work_s, cost_s, known.interruptions)


def daly_of_boundary(job: Job, known: Fitted) -> Bools:
    """At the first boundary after Daly's interval of its own cost, as the training helper does."""
    return _when_due(job.work_s, job.cost_s, known.interruptions)


def _when_due(work_s: Floats, cost_s: Floats, interruptions: Interruptions) -> Bools:
    saves, since = np.zeros(len(work_s), dtype=np.bool_), 0.0
    lost_every_s = 1 / interruptions.loss_rate
    for k, (work, cost) in enumerate(zip(work_s, cost_s, strict=True)):
        since += work
        saves[k] = since >= daly_interval(cost, lost_every_s)
        since = 0.0 if saves[k] else since
    return saves


def planned(job: Job, known: Fitted, *, by_record: bool = False) -> Bools:
    """By dynamic programming, on exponential lifetimes or on those recorded."""
    restore_s = np.full(len(job.cost_s) + 1, RESTORE_S)
    lifetimes = known.lifetimes if by_record else None
    plan = plan_checkpoints(job.work_s, job.cost_s, restore_s, known.interruptions, lifetimes=lifetimes)
    saves = none(job, known)
    saves[plan.stages - 1] = True
    return saves


@dataclass(frozen=True)
class Contestant:
    """A plan, and whether a checkpoint is made when an interruption is announced."""

    plan: Callable[[Job, Fitted], Bools]
    on_notice: bool = False

    def saves(self, job: Job, known: Fitted) -> Bools:
        if not self.on_notice:
            return self.plan(job, known)
        fits = float((job.cost_s <= JIT_MARGIN * NOTICE_S).mean())
        notified = known.interruptions._replace(notified=NOTIFIED * fits, notice_s=NOTICE_S)
        return self.plan(job, known._replace(interruptions=notified))


PLANS: Mapping[str, Contestant] = {
    "none": Contestant(none),
    "every stage": Contestant(every_stage),
    "Daly, mean cost": Contestant(daly),
    "Daly, cost of each boundary (the helper's)": Contestant(daly_of_boundary),
    "dynamic programme": Contestant(planned),
    "dynamic programme, recorded lifetimes": Contestant(partial(planned, by_record=True)),
    "none, and on notice": Contestant(none, on_notice=True),
    "the helper's, and on notice": Contestant(daly_of_boundary, on_notice=True),
    "dynamic programme, and on notice": Contestant(planned, on_notice=True),
}


# -- runs --------------------------------------------------------------------------------------------------------------


def slowdown(job: Job, up: Up, saves: Bools, *, on_notice: bool) -> float:
    """Time from the submission until the job is done, over its work; infinite if the record ends before."""
    passed = np.concatenate([[0.0], np.cumsum(job.work_s)])
    durable, first = 0.0, int(np.searchsorted(up.end, job.submitted_s, side="right"))
    for turn, at in enumerate(range(first, len(up.end))):
        begins = max(up.start[at], job.submitted_s)
        works_from = begins + (RESTORE_S if turn else 0.0)
        ends_at, kept = _advance(job, passed, saves, durable, up.end[at] - works_from)
        if ends_at is not None:
            return float((works_from + ends_at - job.submitted_s) / passed[-1])
        if on_notice and job.notices[turn]:
            kept = max(kept, _done_at(job, passed, saves, durable, up.end[at] - NOTICE_S - works_from))
        durable = kept
    return float("inf")


def _clock(job: Job, passed: Floats, saves: Bools, durable: float) -> tuple[int, Floats]:
    """The stage in which work goes on, and the seconds after which this and each later one is done and saved."""
    stage = int(np.searchsorted(passed, durable, side="right")) - 1
    ends = passed[stage + 1 :] - durable + np.cumsum((job.cost_s * saves)[stage:])
    return stage, ends


def _advance(job: Job, passed: Floats, saves: Bools, durable: float, seconds: float) -> tuple[float | None, float]:
    """When the job is done, if it is within these seconds; else the work that lasts."""
    stage, ends = _clock(job, passed, saves, durable)
    if ends[-1] <= seconds:
        return float(ends[-1]), float(passed[-1])
    reached = stage + int(np.searchsorted(ends, seconds, side="right"))
    saved = np.flatnonzero(saves[stage:reached])
    return None, float(passed[stage + saved[-1] + 1]) if len(saved) else durable


def _done_at(job: Job, passed: Floats, saves: Bools, durable: float, seconds: float) -> float:
    """Work done when an interruption is announced, if a checkpoint of it fits into the notice; else none."""
    stage, ends = _clock(job, passed, saves, durable)
    ahead = int(np.searchsorted(ends, seconds, side="right"))
    if seconds <= 0 or job.cost_s[stage + ahead] > JIT_MARGIN * NOTICE_S:
        return 0.0
    begun = ends[ahead - 1] if ahead else 0.0
    before = passed[stage + ahead] if ahead else durable
    return float(min(before + seconds - begun, passed[stage + ahead + 1]))


class Score(NamedTuple):
    """A job's slowdown, and the probability with which it was expected within each deadline."""

    slowdown: float
    expected: Sequence[float]


def score(job: Job, zone: Zone, contestant: Contestant) -> Score:
    saves = contestant.saves(job, zone.known)
    took = slowdown(job, zone.up, saves, on_notice=contestant.on_notice)
    ends = np.flatnonzero(saves | (np.arange(len(saves)) == len(saves) - 1))
    segments = np.diff(np.concatenate([[0.0], np.cumsum(job.work_s + job.cost_s * saves)[ends]]))
    with np.errstate(over="ignore", invalid="ignore"):
        duration = duration_of(segments, RESTORE_S, zone.known.interruptions)
    return Score(took, [duration.done_within(multiple * job.work_s.sum()) for multiple in DEADLINES])


def line(name: str, scores: Sequence[Score], by_all: Sequence[bool]) -> str:
    took = [one.slowdown for one in scores]
    finished = fmean(one for one, counted in zip(took, by_all, strict=True) if counted)
    cells = [f"{median(took):.3f}", f"{finished:.3f}", f"{sum(map(np.isinf, took)) / len(took):.1%}"]
    for k, multiple in enumerate(DEADLINES):
        within = fmean(one <= multiple for one in took)
        cells.append(f"{within:.3f} ({fmean(one.expected[k] for one in scores):.3f})")
    return f"| {name} | {' | '.join(cells)} |\n"


def table(seed: int) -> str:
    rng, found = np.random.default_rng(seed), zones()
    cases = [(job, zone) for zone in found for job in jobs_of(zone, rng)]
    scores = {name: [score(job, zone, plan) for job, zone in cases] for name, plan in PLANS.items()}
    by_all = [all(np.isfinite(one.slowdown) for one in of_job) for of_job in zip(*scores.values(), strict=True)]
    return "".join(line(name, of_plan, by_all) for name, of_plan in scores.items())


def main() -> None:
    for seed in SEEDS:
        sys.stdout.write(f"\n{JOBS} jobs in each zone, seed {seed}\n\n| checkpoints | median slowdown |")
        sys.stdout.write(" mean of the jobs that all finish | never done |")
        sys.stdout.write("".join(f" within {multiple} x work (expected) |" for multiple in DEADLINES))
        sys.stdout.write(f"\n| --- |{' ---: |' * (3 + len(DEADLINES))}\n{table(seed)}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
