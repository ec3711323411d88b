"""Comparison: one trace under several policies and seeds."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from allocation.policies.parameters import InvalidParameter
from allocation.types import Floats, Ints
from simulation.clock.fairness import finish_time_ratios_of
from simulation.clock.process_pool import FailedRun, RunUpdate, run_all
from simulation.clock.run import SimulatedRound
from simulation.clock.state import State
from simulation.results.bound import TraceBound, certified_bound
from simulation.results.timeline import POINTS, RunningSpan, TimelineRecorder, sampled_rows
from simulation.scenario.scenario import Scenario, TraceRun
from simulation.scenario.setting import InvalidSetting
from simulation.traces.trace import InvalidTrace

SEED = "{seed}"
"""Placeholder for the seed in the name of a trace file."""

OFTEN_S = 0.2
"""Seconds between progress reports of a run."""


class RunSpec(NamedTuple):
    """One run of a comparison: scenario, trace, policy, seed."""

    scenario: Scenario
    trace: Path
    policy: str
    seed: int


@dataclass(frozen=True, eq=False)
class JobColumns:
    """Results of each job (M,) of a run; nan if it did not finish."""

    names: Sequence[str]
    arrival_s: Floats
    finish_s: Floats
    running_s: Floats
    gpu_s: Floats
    restarts: Ints
    rho: Floats
    in_time: Floats
    """1 if the deadline was met, 0 if it was missed, nan without a deadline."""

    @classmethod
    def of(cls, state: State) -> "JobColumns":
        jobs, done = state.jobs, ~np.isnan(state.finish_s)
        rho = np.full(len(done), np.nan)
        rho[done] = finish_time_ratios_of(state)
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
class RunResult:
    """Result of a run: metrics, jobs, busy GPUs (n, POINTS) over whole_s from began_s, the timeline of sampled jobs."""

    figures: dict[str, Any]
    jobs: JobColumns
    gpu_types: Sequence[str]
    capacity: Ints
    began_s: float
    whole_s: float
    busy: Floats
    rows: Ints
    spans: Sequence[RunningSpan]
    configuration_type: Ints
    """GPU type of each configuration (K,), the first of a mixed gang."""
    configuration_gpus: Ints


@dataclass(eq=False)
class Comparison:
    """A comparison and the results of its runs so far."""

    scenario: Scenario
    trace: str
    policies: Sequence[str]
    seeds: Sequence[int]
    note: str | None = None
    outcomes: dict[tuple[str, int], RunResult] = field(default_factory=dict)
    failed: dict[tuple[str, int], FailedRun] = field(default_factory=dict)
    totals: dict[Path, int] = field(default_factory=dict)
    """Number of jobs of each trace that can run."""
    bounds: dict[Path, TraceBound] = field(default_factory=dict)
    """Bounds of each trace, where they were asked for."""

    @classmethod
    def plan(
        cls, scenario: Scenario, trace: str, policies: Sequence[str], seeds: Sequence[int], *, bound: bool = False
    ) -> "Comparison":
        """Validate before anything runs; where nothing is random, only the first seed is run."""
        policies, seeds = list(dict.fromkeys(policies)), list(dict.fromkeys(seeds))
        scenario, note = _of_format(scenario, trace, seeds), None
        if len(seeds) > 1 and SEED not in trace and not _depends_on_seed(scenario, Path(trace), policies):
            note = f"Nothing here is random: only seed {seeds[0]} of {len(seeds)} was run."
            seeds = seeds[:1]
        planned = cls(scenario, trace, policies, seeds, note)
        if bound:
            planned._check_bounds()
        planned._check()
        if bound:
            planned._find_bounds()
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
            with _named(trace):
                run = self.scenario.prepare(trace, self.policies[0], self.seeds[0])
            self.totals[trace] = run.total
            self.note = " ".join(dict.fromkeys([*filter(None, [self.note]), *run.notes])) or None

    def _check_bounds(self) -> None:
        for policy in self.policies:
            if self.scenario.setting(policy, self.seeds[0]).packed:
                raise InvalidSetting(f"policy {policy}: the bound is of jobs that share no GPUs: leave out --bound")

    def _find_bounds(self) -> None:
        for task in self.tasks:
            if task.trace not in self.bounds:
                self.bounds[task.trace] = certified_bound(self.scenario, task.trace, task.seed)

    @property
    def tasks(self) -> list[RunSpec]:
        return [
            RunSpec(self.scenario, Path(self.trace.replace(SEED, str(seed))), policy, seed)
            for seed in self.seeds
            for policy in self.policies
        ]

    def run(self, at_once: int) -> Generator[RunUpdate[RunResult]]:
        """Perform all runs, each in a process of its own, and yield updates."""
        for update in run_all(perform, self.tasks, at_once=at_once):
            task = self.tasks[update.place]
            if isinstance(update.result, FailedRun):
                self.failed[task.policy, task.seed] = update.result
            elif update.result is not None:
                self.outcomes[task.policy, task.seed] = update.result
                if bound := self.bounds.get(task.trace):
                    update.result.figures["above_bound"] = _above(bound, update.result.figures)
            yield update

    def give_up(self, reason: str) -> None:
        """Mark every unfinished run as failed, with the reason."""
        for task in self.tasks:
            if (task.policy, task.seed) not in self.outcomes:
                self.failed.setdefault((task.policy, task.seed), FailedRun(reason))

    def of_policy(self, policy: str) -> list[RunResult]:
        """Results of the policy's runs by seed."""
        return [self.outcomes[policy, seed] for seed in self.seeds if (policy, seed) in self.outcomes]


def _above(bound: TraceBound, figures: Mapping[str, Any]) -> dict[str, float | None]:
    """How far a run is above the bounds of its trace, as parts of them."""
    pairs = {name: (figures[f"{name}_h"], getattr(bound, f"{name}_h")) for name in ("avg_jct", "makespan")}
    return {name: reached / least - 1 if reached and least else None for name, (reached, least) in pairs.items()}


def _depends_on_seed(scenario: Scenario, trace: Path, policies: Sequence[str]) -> bool:
    with _named(trace):
        return any(scenario.setting(policy, 0).chance for policy in policies) or scenario.draws_pilots(trace)


@contextmanager
def _named(trace: Path) -> Generator[None]:
    """Errors in a trace say in which file."""
    try:
        yield
    except InvalidTrace as error:
        raise InvalidSetting(f"{trace}: {error}") from error


def _of_format(scenario: Scenario, trace: str, seeds: Sequence[int]) -> Scenario:
    """The scenario with the format of the first trace; that of a file which is not there is not asked for."""
    first = Path(trace.replace(SEED, str(seeds[0])))
    return scenario.of_format(first) if first.is_file() else scenario


def perform(task: RunSpec, tell: Callable[[int], None]) -> RunResult:
    """Perform a run, from reading its trace to the data of its charts."""
    run = task.scenario.prepare(task.trace, task.policy, task.seed)
    recording = TimelineRecorder(run.simulation.state.jobs, sampled_rows(run.simulation.state.jobs))
    figures = run.finish(_watcher(run, recording, tell))
    return _outcome(run, recording, figures)


def _watcher(
    run: TraceRun, recording: TimelineRecorder, tell: Callable[[int], None]
) -> Callable[[SimulatedRound], None]:
    told_s = monotonic()

    def watch(seen: SimulatedRound) -> None:
        nonlocal told_s
        recording.see(seen)
        if monotonic() - told_s > OFTEN_S:
            told_s = monotonic()
            tell(run.simulation.done)

    return watch


def _outcome(run: TraceRun, recording: TimelineRecorder, figures: dict[str, Any]) -> RunResult:
    state, on = run.simulation.state, run.simulation.state.jobs.configurations
    whole_s = max(figures["makespan_h"] * 3600, 1.0)
    began_s = state.jobs.first_arrival_s
    return RunResult(
        figures=figures,
        jobs=JobColumns.of(state),
        gpu_types=run.gpu_types,
        capacity=state.capacity,
        began_s=began_s,
        whole_s=whole_s,
        busy=recording.busy(np.linspace(began_s, began_s + whole_s, POINTS + 1)),
        rows=recording.rows,
        spans=recording.spans(whole_s),
        configuration_type=(on.usage > 0).argmax(axis=0),
        configuration_gpus=on.gpus,
    )
