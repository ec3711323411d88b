"""Waits and restarts in the first ten minutes of the demo: gangs of four beside a stream of small jobs.

`python -m benchmarks.first_ten_minutes`; `--policies "motley;sia" --seeds 0,1,2 --every 8,10,12`. The service's rules,
on the demo's cluster, with its rounds and minimum run time. Jobs of one and two GPUs of two teams, those of the demo,
come one after the other for ten minutes; after the first minute the team that is behind its share submits eight jobs of
four GPUs that take 80 s on V100. The order of the small jobs is drawn by seed; nothing else is random.

- *restarts*: the most of any job; *stopped*: stops of jobs that then wait, *moved*: of those that go on elsewhere;
- *in lease*: stops within a job's lease (25 restarts);
- *for later*: a gang that is preempted while jobs that came after it start or go on;
- *wait*: mean time from submission to end in which a job does not hold GPUs, of the gangs and of the small jobs that
  were submitted after them, and the longest time before a gang's first start.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from allocation.problem import LEASE
from allocation.solvers.linear_program import divert_native_output
from allocation.types import Bools, Floats, Ints
from benchmarks.contention_scenarios import demo_job, demo_scenario
from operations.sample_jobs import sample, sample_job
from simulation.clock.run import SimulatedRound
from simulation.clock.state import State
from simulation.scenario.setting import read_seeds
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import Trace, TraceJob

AT_ONCE = 8
SMALL = (1, 2, 1, 1, 2, 1, 1)
"""GPUs of the small jobs, in turn."""
GANGS, GANG = 8, 4
GANGS_AT_S, UNTIL_S = 60.0, 600.0
GANG_RATES = {"t4": 45.0, "v100": 100.0, "a100": 200.0}
"""Steps per second of a gang of four."""
GANG_STEPS = 8000
EVERY_S = (8.0, 10.0, 12.0)
"""Seconds between two small jobs: more than, as much as, and less than what the cluster can do."""
MOST_RESTARTS, MOST_FOR_LATER, LONGEST_WAIT = 3, 1, 3.0
"""Bars: restarts of a job, stops of a gang for jobs that came later, its mean wait over that of small jobs."""


class Outcome(NamedTuple):
    """What befell the jobs of one run: by job (M,), but for the two means."""

    gpus: Ints
    restarts: Ints
    stopped: Ints
    moved: Ints
    in_lease: Ints
    for_later: Ints
    first_wait_s: Floats
    gang_wait_s: float
    small_wait_s: float
    jct_s: float

    @property
    def gangs(self) -> Bools:
        """Jobs (M,) that are the gangs of four."""
        return np.asarray(self.gpus == GANG)

    @property
    def met(self) -> bool:
        """Whether all bars are met."""
        return bool(
            self.restarts.max() <= MOST_RESTARTS
            and self.for_later[self.gangs].max() <= MOST_FOR_LATER
            and not self.in_lease.any()
            and self.gang_wait_s <= LONGEST_WAIT * self.small_wait_s
        )


def jobs(seed: int, every_s: float) -> Iterator[TraceJob]:
    """The jobs of the ten minutes, by arrival."""
    small = AT_ONCE + int(UNTIL_S // every_s)
    order = np.random.default_rng(seed).permutation(small).tolist()
    came_s = [every_s * max(place - AT_ONCE + 1, 0) for place in range(small)]
    alone = [demo_job(_small(i), arrival_s=at) for i, at in zip(order, came_s, strict=True)]
    specs = [
        sample_job(f"gang-{i + 1}", "language", rates=GANG_RATES, gpus=GANG, steps=GANG_STEPS) for i in range(GANGS)
    ]
    gangs = [demo_job(spec | {"rates": GANG_RATES}, arrival_s=GANGS_AT_S) for spec in specs]
    yield from sorted([*alone, *gangs], key=lambda job: job.arrival_s)


def _small(position: int) -> dict[str, object]:
    """A sample job of the demo with one or two GPUs."""
    one, gpus = sample(position), SMALL[position % len(SMALL)]
    rates = {kind: rate / one["gpus"] ** 0.9 for kind, rate in one["rates"].items()}
    return sample_job(one["name"], one["team"], rates=rates, gpus=gpus, steps=one["total_steps"])


def outcome(policy: str, *, seed: int = 0, every_s: float = 10.0) -> Outcome:
    """Simulate the ten minutes, until all their jobs are done."""
    submitted = list(jobs(seed, every_s))
    with tempfile.TemporaryDirectory() as name:
        trace = Path(name) / "trace.csv"
        trace.write_text("".join(write_motley_csv(Trace.of(submitted).jobs)))
        run = demo_scenario(Path(name), submitted).prepare(trace, policy, seed=seed)
    stops = Stops(run.simulation.state)
    run.finish(stops.see)
    return stops.outcome()


@dataclass(eq=False)
class Stops:
    """Counts stops of running jobs, round by round."""

    state: State
    stopped: Ints = field(init=False)
    moved: Ints = field(init=False)
    in_lease: Ints = field(init=False)
    for_later: Ints = field(init=False)
    _since_s: Floats = field(init=False)
    """When each job that ran in the last round had started; nan: it did not run, or is done."""

    def __post_init__(self) -> None:
        jobs = len(self.state.left)
        self.stopped, self.moved, self.in_lease, self.for_later = np.zeros((4, jobs), dtype=np.int64)
        self._since_s = np.full(jobs, np.nan)

    def see(self, seen: SimulatedRound) -> None:
        """Compare this round with the last."""
        state, since_s = self.state, np.full(len(self._since_s), np.nan)
        since_s[seen.rows] = state.since_s[seen.rows]
        ran, runs = ~np.isnan(self._since_s), ~np.isnan(since_s)
        stopped = ran & ~runs
        self.stopped += stopped
        self.moved += ran & runs & (since_s != self._since_s)
        self.in_lease += stopped & (seen.began_s - self._since_s < LEASE * state.jobs.restart_s)
        self.for_later += stopped & (state.jobs.arrival_s < state.jobs.arrival_s[seen.rows].max(initial=-np.inf))
        self._since_s = np.where(np.isin(np.arange(len(since_s)), seen.rows[self._ends(seen)]), np.nan, since_s)

    def _ends(self, seen: SimulatedRound) -> Bools:
        """Which of the running jobs end in this round: they have no steps left once it is booked."""
        return np.asarray(self.state.left[seen.rows] <= 0)

    def outcome(self) -> Outcome:
        """The counts, and the waits."""
        state = self.state
        gpus = state.jobs.configurations.gpus[state.jobs.kind_rate.argmax(axis=1)[state.jobs.kind]]
        jct_s = state.finish_s - state.jobs.arrival_s
        wait_s = jct_s - state.running_s
        after = (gpus < GANG) & (state.jobs.arrival_s >= GANGS_AT_S)
        return Outcome(
            gpus=gpus,
            restarts=state.restarts,
            stopped=self.stopped,
            moved=self.moved,
            in_lease=self.in_lease,
            for_later=self.for_later,
            first_wait_s=state.began_s - state.jobs.arrival_s,
            gang_wait_s=float(wait_s[gpus == GANG].mean()),
            small_wait_s=float(wait_s[after].mean()),
            jct_s=float(jct_s.mean()),
        )


def table(policies: list[str], seeds: list[int], every_s: list[float]) -> Iterator[str]:
    """Lines of the table in Markdown: worst values over the seeds, and means of waits."""
    yield "| policy | every, s | restarts, most | stopped | moved | stopped in lease | a gang for later, most |"
    yield " gang wait, s | small, s | ratio | first start of a gang, s, last | mean JCT, s | bars |\n"
    yield "| --- |" + " ---: |" * 11 + " --- |\n"
    for policy in policies:
        for every in every_s:
            yield _row(policy, every, [outcome(policy, seed=seed, every_s=every) for seed in seeds])


def _row(policy: str, every_s: float, runs: list[Outcome]) -> str:
    gang, small = (np.mean([getattr(run, f"{name}_wait_s") for run in runs]) for name in ("gang", "small"))
    cells = [
        f"{every_s:g}",
        str(max(int(run.restarts.max()) for run in runs)),
        str(sum(int(run.stopped.sum()) for run in runs)),
        str(sum(int(run.moved.sum()) for run in runs)),
        str(sum(int(run.in_lease.sum()) for run in runs)),
        str(max(int(run.for_later[run.gangs].max()) for run in runs)),
        f"{gang:.0f}",
        f"{small:.0f}",
        f"{gang / small:.1f}",
        f"{max(float(run.first_wait_s[run.gangs].max()) for run in runs):.0f}",
        f"{np.mean([run.jct_s for run in runs]):.0f}",
        f"{sum(run.met for run in runs)} of {len(runs)}",
    ]
    return f"| `{policy}` | " + " | ".join(cells) + " |\n"


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=lambda text: text.split(";"), default=["motley"], help="apart by ;")
    parser.add_argument("--seeds", type=read_seeds, default=[0, 1, 2])
    parser.add_argument("--every", type=lambda text: [float(s) for s in text.split(",")], default=list(EVERY_S))
    asked = parser.parse_args()
    for line in table(asked.policies, asked.seeds, asked.every):
        sys.stdout.write(line)


if __name__ == "__main__":
    main()
