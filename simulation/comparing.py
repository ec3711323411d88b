"""The same trace under several policies, and by several seeds."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from allocation.arrays import Floats, Ints
from allocation.parameters import InvalidParameter
from simulation.engine import Round
from simulation.fairness import finish_time_ratios
from simulation.recording import POINTS, Recording, Span, sampled_rows
from simulation.running import Run
from simulation.scenario import Scenario
from simulation.setting import InvalidSetting
from simulation.state import State
from simulation.trace import InvalidTrace
from simulation.workers import Failed, News, run_all

SEED = "{seed}"
"""In the name of a trace: each seed has a trace of its own."""

OFTEN_S = 0.2
"""How often a run tells how far it is."""


class Task(NamedTuple):
    """A run to be done."""

    scenario: Scenario
    trace: Path
    policy: str
    seed: int


@dataclass(frozen=True, eq=False)
class JobColumns:
    """What became of each job (M,) of a run; nan where it was never done."""

    names: Sequence[str]
    arrival_s: Floats
    finish_s: Floats
    running_s: Floats
    gpu_s: Floats
    restarts: Ints
    rho: Floats
    in_time: Floats
    """1 by its deadline, 0 after it; nan: it has none."""

    @classmethod
    def of(cls, state: State) -> "JobColumns":
        jobs, done = state.jobs, ~np.isnan(state.finish_s)
        rho = np.full(len(done), np.nan)
        rho[done] = finish_time_ratios(state)
        in_time = np.where(done & np.isfinite(jobs.deadline_s), state.finish_s <= jobs.deadline_s, np.nan)
        return cls(
            names=jobs.names,
            arrival_s=jobs.arrival_s,
            finish_s=state.finish_s,
            running_s=state.running_s,
            gpu_s=state.attained_gpu_s,
            restarts=state.restarts,
            rho=rho,
            in_time=in_time,
        )

    @property
    def jct_s(self) -> Floats:
        return self.finish_s - self.arrival_s


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a run: its figures, its jobs, GPUs busy (n, POINTS) over whole_s, and a sample of jobs in time."""

    figures: dict[str, Any]
    jobs: JobColumns
    gpu_types: Sequence[str]
    capacity: Ints
    whole_s: float
    busy: Floats
    rows: Ints
    spans: Sequence[Span]
    configuration_type: Ints
    """The GPU type of each configuration (K,), the first where it has several."""
    configuration_gpus: Ints


@dataclass(eq=False)
class Comparison:
    """What is compared, and what came of it so far."""

    scenario: Scenario
    trace: str
    policies: Sequence[str]
    seeds: Sequence[int]
    note: str | None = None
    outcomes: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    failed: dict[tuple[str, int], Failed] = field(default_factory=dict)
    totals: dict[Path, int] = field(default_factory=dict)
    """How many jobs of each trace can run."""

    @classmethod
    def plan(cls, scenario: Scenario, trace: str, policies: Sequence[str], seeds: Sequence[int]) -> "Comparison":
        """Refuse what means nothing before anything runs; one seed stands for all where nothing is left to chance."""
        policies, seeds = list(dict.fromkeys(policies)), list(dict.fromkeys(seeds))
        note = None
        if len(seeds) > 1 and SEED not in trace and not any(scenario.setting(p, seeds[0]).chance for p in policies):
            note = f"Nothing here is left to chance: seed {seeds[0]} stands for all {len(seeds)}, which were not run."
            seeds = seeds[:1]
        planned = cls(scenario, trace, policies, seeds, note)
        planned._check()
        return planned

    def _check(self) -> None:
        for task in self.tasks:
            if not task.trace.is_file():
                raise InvalidSetting(f"there is no file {task.trace}")
        for policy in self.policies:
            try:
                self.scenario.check(policy)
            except InvalidParameter as error:
                raise InvalidSetting(f"policy {policy}: {error}") from error
        for trace in dict.fromkeys(task.trace for task in self.tasks):
            try:
                self.totals[trace] = self.scenario.prepare(trace, self.policies[0], self.seeds[0]).total
            except InvalidTrace as error:
                raise InvalidSetting(f"{trace}: {error}") from error

    @property
    def tasks(self) -> list[Task]:
        return [
            Task(self.scenario, Path(self.trace.replace(SEED, str(seed))), policy, seed)
            for seed in self.seeds
            for policy in self.policies
        ]

    def run(self, at_once: int) -> Generator[News[Outcome]]:
        """Run everything, each run in a process of its own, and tell of each as it goes."""
        for news in run_all(perform, self.tasks, at_once=at_once):
            task = self.tasks[news.place]
            if isinstance(news.result, Failed):
                self.failed[task.policy, task.seed] = news.result
            elif news.result is not None:
                self.outcomes[task.policy, task.seed] = news.result
            yield news

    def give_up(self, reason: str) -> None:
        """Say of every run that is not done why it will not be."""
        for task in self.tasks:
            if (task.policy, task.seed) not in self.outcomes:
                self.failed.setdefault((task.policy, task.seed), Failed(reason))

    def of_policy(self, policy: str) -> list[Outcome]:
        """What came of its runs, by seed."""
        return [self.outcomes[policy, seed] for seed in self.seeds if (policy, seed) in self.outcomes]


def perform(task: Task, tell: Callable[[int], None]) -> Outcome:
    """Do a run from the file of its trace to what is drawn of it."""
    run = task.scenario.prepare(task.trace, task.policy, task.seed)
    recording = Recording(run.simulation.state.jobs, sampled_rows(run.simulation.state.jobs))
    figures = run.finish(_watcher(run, recording, tell))
    return _outcome(run, recording, figures)


def _watcher(run: Run, recording: Recording, tell: Callable[[int], None]) -> Callable[[Round], None]:
    told_s = monotonic()

    def watch(seen: Round) -> None:
        nonlocal told_s
        recording.see(seen)
        if monotonic() - told_s > OFTEN_S:
            told_s = monotonic()
            tell(run.simulation.done)

    return watch


def _outcome(run: Run, recording: Recording, figures: dict[str, Any]) -> Outcome:
    state, on = run.simulation.state, run.simulation.state.jobs.configurations
    whole_s = max(figures["makespan_h"] * 3600, 1.0)
    began_s = state.jobs.arrival_s[0] if len(state.jobs.names) else 0.0
    return Outcome(
        figures=figures,
        jobs=JobColumns.of(state),
        gpu_types=run.gpu_types,
        capacity=state.capacity,
        whole_s=whole_s,
        busy=recording.busy(np.linspace(began_s, began_s + whole_s, POINTS + 1)),
        rows=recording.rows,
        spans=recording.spans(whole_s),
        configuration_type=(on.usage > 0).argmax(axis=0),
        configuration_gpus=on.gpus,
    )
