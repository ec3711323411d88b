"""Forecasts of starts and ends beside what happened: `python -m benchmarks.forecasts`, as Markdown.

Generated jobs that resemble Philly's run in the simulator by the service's rules. At intervals what the service would
know then is played forward (`forecast`), and the intervals are kept until the truth is known. Lengths are declared, or
known only from jobs of the same workload, team and size that have ended. Beside it, for ends: the interval of how long
jobs of the same workload and size took before, from submission to end; for starts: the mean wait of those that started
last from as long a queue, and a plan of the queue in the order of submission without further arrivals, as
`squeue --start` makes it; for both: the course of the job in the plan over time (`allocation.plan`).
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from allocation.plan.costs_to_go import GAP, all_work_s, intervals_to
from allocation.plan.program import PlanProgram
from allocation.plan.solution import solve_plan
from allocation.policies import POLICIES, REGISTRY
from allocation.policies.fifo import fifo
from allocation.problem import Problem
from allocation.quotas import Quotas
from allocation.restart_cost import rate_after_restart
from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats, Ints
from estimation.duration_curves import DurationCurves, DurationLeft
from estimation.durations import DurationHistory
from forecast.calibration import Correction, ForecastClass
from forecast.calibration import Outcome as KnownOutcome
from forecast.draws import Unknowns
from forecast.future import play
from forecast.intervals import forecast
from forecast.present import Draw, Present, Rounds
from simulation.clock.round_rules import PlannedRound
from simulation.clock.run import Simulation
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.scenario.generator import generate
from simulation.scenario.generator_options import GeneratorOptions
from simulation.scenario.setting import begin
from simulation.traces.trace import Trace
from simulation.workloads.rate_sources import BySpeed

CLUSTER = "v100=6x4,t4=6x4"
JOBS, TEAMS = 1000, 4
LONGEST_S = 12 * 3600.0
LOADS = (0.5, 0.7, 0.9)
SEEDS = (0, 1)
ROUND_S, MIN_RUN_S, RESTART_S, DELAY_S = 60.0, 300.0, 60.0, 1.0
FIRST_S, EVERY_S, LAST_S = 24 * 3600.0, 4 * 3600.0, 24 * 3600.0
"""Seconds from the first arrival to the first forecast, between two, and from the last to the last arrival."""
SAMPLES_S = 7 * 86_400.0
HORIZONS = {"to 30 min": 1800.0, "to 2 h": 7200.0, "to 8 h": 28_800.0, "to 24 h": 86_400.0, "later": inf}
LEAST_STEPS = 1e-3
LEAST_ENDED = 10
"""With fewer ended jobs of the same size, the history of all sizes is used."""


class Asked(NamedTuple):
    """A forecast of one job at one time: quantiles (3,) in seconds from then, as played, and what simpler rules say."""

    row: int
    now_s: float
    waits: bool
    known: bool
    start_s: Floats
    finish_s: Floats
    by_history_s: Floats
    mean_wait_s: float
    planned_s: float
    course_s: tuple[float, float]
    """Start and end in the plan over time."""


@dataclass(eq=False)
class Forecaster:
    """Asks at intervals, and keeps the answers."""

    policy: str
    draws: int
    every_s: float
    until_s: float
    next_s: float = FIRST_S
    asked: list[Asked] = field(default_factory=list)
    seconds: list[tuple[int, float]] = field(default_factory=list)
    planned: list[tuple[int, float]] = field(default_factory=list)
    """Jobs of each plan over time, and its seconds."""

    def ask(self, state: State, rules: "ForecastingRules") -> None:
        self.next_s = state.now_s + self.every_s
        if state.now_s > self.until_s:
            return
        rows, samples = state.active, _samples(state)
        present, unknowns = rules.present(state, rows, samples), _unknowns(state, rows, samples)
        registered = REGISTRY[self.policy]
        kinds = {"strict": registered.strict_queue, "settled": registered.settled}
        rounds = Rounds(rules.policy, ROUND_S, MIN_RUN_S, **kinds)
        began = perf_counter()
        found = forecast(present, unknowns, rounds, draws=self.draws, seed=int(state.now_s))
        self.seconds.append((len(rows), perf_counter() - began))
        planned_s, waits = _planned(present, unknowns), state.held[rows] < 0
        course_s = self.course(present)
        mean_wait_s = _mean_wait_s(state, int(waits.sum()))
        for at, row in enumerate(rows.tolist()):
            age_s = state.now_s - float(state.jobs.arrival_s[row])
            self.asked.append(
                Asked(
                    row,
                    state.now_s,
                    bool(waits[at] and np.isnan(state.began_s[row])),
                    bool(np.isfinite(state.jobs.declared_steps[row])),
                    found.start_s[at],
                    found.finish_s[at],
                    _by_history(state, row, age_s),
                    max(mean_wait_s - age_s, 0.0),
                    float(planned_s[at]),
                    (float(course_s[0][at]), float(course_s[1][at])),
                )
            )

    def course(self, present: Present) -> tuple[Floats, Floats]:
        """Starts and ends (m,) in the plan over time, of jobs of the expected lengths."""
        problem, began = present.problem.subset(np.arange(present.jobs)), perf_counter()
        steps = np.clip(problem.remaining_steps, LEAST_STEPS, 1e12)
        course_s = _course_by_plan(problem, steps)
        self.planned.append((present.jobs, perf_counter() - began))
        return course_s


def _course_by_plan(problem: Problem, steps: Floats) -> tuple[Floats, Floats]:
    """Starts and ends (m,) in seconds from now in the plan of all jobs; inf: not before the end of its intervals."""
    held = problem.held[:, None] == np.arange(problem.rate.shape[1])
    rate = rate_after_restart(problem, steps, held)
    ends_s = intervals_to(all_work_s(rate, problem.usage, problem.capacity, steps))
    program = PlanProgram.of(rate, problem.usage, problem.capacity, ends_s, steps=steps, weight=problem.job_weight)
    plan = solve_plan(program, gap=GAP)
    return plan.start_s, plan.end_s


@dataclass(eq=False)
class ForecastingRules(ServiceRules):
    """The service's rules; at intervals, before a round is planned, what comes is forecast."""

    asks: Forecaster = field(default_factory=lambda: Forecaster("fifo", 0, inf, 0.0))

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        if state.now_s >= self.asks.next_s and state.active.size:
            self.asks.ask(state, self)
        return super().plan(state, changed=changed)

    def present(self, state: State, rows: Ints, samples: Ints) -> Present:
        """What a round now would see, with samples of arrivals behind."""
        every, m = np.concatenate([rows, samples]), len(rows)
        there = np.arange(len(every)) < m
        seen = state.problem(every)
        unlock_s = np.where(there, self._unlock_s(state, every), 0.0)
        fresh: dict[str, Any] = {
            name: np.where(there if column.ndim == 1 else there[:, None], column, np.zeros_like(column))
            for name in ("held_s", "received_s", "attained_gpu_s", "isolated_s", "restarts", "age_s")
            if (column := getattr(seen, name)) is not None
        }
        problem = replace(
            seen,
            held=np.where(there, seen.held, -1),
            locked=unlock_s > 0,
            unlock_s=unlock_s,
            remaining_steps=np.where(there, seen.remaining_steps, _told_in_all(state, every)),
            **fresh,
        )
        return Present(
            problem=problem,
            inventory=replace(self._inventory(state, every), holder=self._inventory(state, rows).holder),
            quotas=Quotas.none(len(every)),
            jobs=m,
            team_weight=state.jobs.team_weight[every],
            limit_s=np.full(len(every), inf),
            preemptible=np.ones(len(every), dtype=np.bool_),
        )


def _told_in_all(state: State, rows: Ints) -> Floats:
    """Total steps of arriving jobs as the policy sees them: declared steps, or the true number if none are declared."""
    declared: Floats = state.jobs.declared_steps[rows]
    return np.where(np.isinf(declared), state.jobs.steps[rows], declared)


def _samples(state: State) -> Ints:
    """Jobs that were submitted in the last days."""
    arrival_s = state.jobs.arrival_s
    return np.flatnonzero((arrival_s <= state.now_s) & (arrival_s > state.now_s - SAMPLES_S) & state.jobs.runnable)


def _unknowns(state: State, rows: Ints, samples: Ints) -> Unknowns:
    """What is not known: lengths that are not declared, of jobs that have not ended."""
    jobs, every = state.jobs, np.concatenate([rows, samples])
    there = np.arange(len(every)) < len(rows)
    declared = np.isfinite(jobs.declared_steps[every])
    ended = ~np.isnan(state.finish_s[every])
    left = np.where(there, state.left[every], jobs.steps[every])
    history = state.durations
    durations = [history.estimate(jobs.traits(row)) if history else None for row in every.tolist()]
    done_s = (jobs.steps[every] - state.left[every]) / jobs.base_rate[every]
    return Unknowns(
        left=np.where(declared | (ended & ~there), left, np.nan),
        duration=[found.estimate if found else None for found in durations],
        left_by_others=_left_by_others(state, rows, every, done_s) if history else (),
        done_s=done_s,
        rate_spread=np.zeros(len(every)),
        begin_s=np.zeros(len(rows)),
        submitted_s=jobs.arrival_s[samples] - state.now_s,
        known_s=min(state.now_s, SAMPLES_S),
        history_s=state.now_s,
    )


def _left_by_others(state: State, rows: Ints, every: Ints, done_s: Floats) -> list[DurationLeft | None]:
    """What is left of each row by the jobs that ended and those that run, as the service has it."""
    jobs, ended = state.jobs, np.flatnonzero(~np.isnan(state.finish_s))
    took_s = (jobs.steps / jobs.base_rate)[ended]
    curves = DurationCurves.of(
        ((jobs.traits(row), seconds) for row, seconds in zip(ended.tolist(), took_s.tolist(), strict=True)),
        ((jobs.traits(row), so_far) for row, so_far in zip(rows.tolist(), done_s.tolist(), strict=False) if so_far > 0),
    )
    return [curves.left_of(jobs.traits(row), s) for row, s in zip(every.tolist(), done_s.tolist(), strict=True)]


def _planned(present: Present, unknowns: Unknowns) -> Floats:
    """Planned start times (m,) under FIFO with expected lengths and no further arrivals."""
    rows = np.arange(present.jobs)
    expected = np.minimum(present.problem.remaining_steps[rows], 1e12)
    draw = Draw(rows, np.zeros(len(rows)), expected, np.ones(len(rows)))
    return play(present, draw, Rounds(fifo, ROUND_S, strict=True)).start_s


def _mean_wait_s(state: State, waiting: int) -> float:
    """Mean wait of the jobs that started in the last day, scaled by how long the queue is."""
    began = np.flatnonzero(state.began_s > state.now_s - 86_400)
    if not began.size:
        return 0.0
    waits_s, arrival_s = state.began_s[began] - state.jobs.arrival_s[began], state.jobs.arrival_s
    queues = [((arrival_s <= arrival_s[row]) & ~(state.began_s <= arrival_s[row])).sum() for row in began.tolist()]
    return float(waits_s.mean() * waiting / max(float(np.mean(queues)), 1.0))


def _by_history(state: State, row: int, age_s: float) -> Floats:
    """What is left of the times from submission to end of jobs of the same size that have taken longer than this."""
    jobs, ended = state.jobs, np.flatnonzero(~np.isnan(state.finish_s))
    took_s = (state.finish_s - jobs.arrival_s)[ended]
    alike = (jobs.base_gpus[ended] == jobs.base_gpus[row]) & (took_s > age_s)
    pool = took_s[alike] if alike.sum() >= LEAST_ENDED else took_s[took_s > age_s]
    return np.quantile(pool, (0.1, 0.5, 0.9)) - age_s if pool.size else np.full(3, np.nan)


def generated(load: float, seed: int, jobs: int = JOBS, cluster: str = CLUSTER) -> Trace:
    """Philly-like jobs, truncated to half a day; interarrival times are scaled so that the load stays the same."""
    options = GeneratorOptions(like="philly", jobs=jobs, load=load, cluster=cluster, teams=TEAMS)
    drawn = generate(options, seed).jobs
    most = [LONGEST_S * options.rate(job.program.workload, job.gangs[0]) for job in drawn]
    steps = [min(job.total_steps or 0, longest) for job, longest in zip(drawn, most, strict=True)]
    sooner = sum(steps) / sum(job.total_steps or 0 for job in drawn)
    return Trace.of(
        replace(job, arrival_s=sooner * job.arrival_s, total_steps=left) for job, left in zip(drawn, steps, strict=True)
    )


def simulated(
    load: float, seed: int, policy: str, *, declared: bool, draws: int, jobs: int = JOBS, machines: str = CLUSTER
) -> tuple[State, Forecaster]:
    trace = generated(load, seed, jobs, machines)
    if not declared:
        trace = Trace.of(replace(job, declared_length=inf) for job in trace.jobs)
    cluster = Cluster.parse(machines)
    asks = Forecaster(policy, draws, EVERY_S, trace.jobs[-1].arrival_s - LAST_S)
    rules = ForecastingRules(
        cluster,
        POLICIES[policy],
        ROUND_S,
        REGISTRY[policy].timeless,
        min_run_s=MIN_RUN_S,
        first_start_s=None,
        event_delay_s=DELAY_S,
        asks=asks,
    )
    state = begin(trace, cluster, BySpeed(), rules, None, restart_s=RESTART_S)
    if not declared:
        state.durations = DurationHistory()
    return Simulation(state, rules).run(), asks


class Outcome(NamedTuple):
    """Corrected quantiles (3,) in seconds, what happened, the interval by history alone, and the forecast."""

    quantiles_s: Floats
    true_s: float
    by_history_s: Floats
    asked: Asked


def outcomes(state: State, asks: Forecaster) -> tuple[list[Outcome], list[Outcome]]:
    """Of ends and of starts, each corrected by how the forecasts before had turned out by then."""
    ends = [(one, one.finish_s, float(state.finish_s[one.row])) for one in asks.asked]
    starts = [(one, one.start_s, float(state.began_s[one.row])) for one in asks.asked if one.waits]
    return list(_corrected("finish", ends)), list(_corrected("start", starts))


def _corrected(event: str, forecasts: Sequence[tuple[Asked, Floats, float]]) -> Iterator[Outcome]:
    """Forecasts in the order in which they were made, each with its quantiles and when the event happened."""
    classes = [ForecastClass.of(event, quantiles_s, known_length=one.known) for one, quantiles_s, _ in forecasts]
    for now_s, some in groupby(range(len(forecasts)), key=lambda at: forecasts[at][0].now_s):
        made = list(some)
        before = zip(classes[: made[0]], forecasts[: made[0]], strict=True)
        correction = Correction.of((of_class, _so_far(*forecast, now_s)) for of_class, forecast in before)
        for at in made:
            one, quantiles_s, at_s = forecasts[at]
            yield Outcome(correction.corrected(classes[at], quantiles_s), at_s - now_s, one.by_history_s, one)


def _so_far(one: Asked, quantiles_s: Floats, at_s: float, now_s: float) -> KnownOutcome:
    """What is known now of an event that happens at a time, or never (nan)."""
    low_s, median_s, high_s = quantiles_s.tolist()
    return KnownOutcome(low_s, median_s, high_s, min(now_s, at_s) - one.now_s, at_s <= now_s)


def lines(name: str, found: Sequence[Outcome]) -> Iterator[str]:
    """Table rows by horizon: coverage, median absolute error, and median interval width relative to history alone."""
    by_horizon: dict[str, list[Outcome]] = defaultdict(list)
    for one in found:
        if np.isfinite(one.true_s):
            by_horizon[next(h for h, most_s in HORIZONS.items() if one.quantiles_s[1] <= most_s)].append(one)
    for horizon in HORIZONS:
        if of_horizon := by_horizon[horizon]:
            yield f"| {name} | {horizon} | {' | '.join(figures(of_horizon))} |"


def figures(found: Sequence[Outcome]) -> list[str]:
    q, true_s = np.array([one.quantiles_s for one in found]), np.array([one.true_s for one in found])
    history = np.array([one.by_history_s for one in found])
    within = (q[:, 0] - 1 <= true_s) & (true_s <= q[:, 2] + 1)
    width, wide = q[:, 2] - q[:, 0], history[:, 2] - history[:, 0]
    known = np.isfinite(width) & np.isfinite(wide)
    share = float(np.median(width[known]) / np.median(wide[known])) if known.any() else np.nan
    error_min = float(np.median(np.abs(q[:, 1] - true_s))) / 60
    above, below = float((true_s > q[:, 2] + 1).mean()), float((true_s < q[:, 0] - 1).mean())
    return [str(len(found)), f"{within.mean():.0%}", f"{below:.0%}", f"{above:.0%}", f"{error_min:.1f}", f"{share:.2f}"]


def _errors_in_words(ends: Sequence[Outcome], starts: Sequence[Outcome]) -> str:
    """Median absolute errors of the futures' median, of the plan over time, and of simpler rules."""
    of_start = [(o.quantiles_s[1], o.asked.course_s[0], o.asked.mean_wait_s, o.asked.planned_s) for o in starts]
    of_end = [(o.quantiles_s[1], o.asked.course_s[1], o.by_history_s[1]) for o in ends]
    return (
        f"starts, {len(starts)}: median errors in min of futures, plan over time, mean wait, queue as planned: "
        f"{_median_errors(of_start, starts)}\n"
        f"ends, {len(ends)}: of futures, plan over time, history: {_median_errors(of_end, ends)}"
    )


def _median_errors(told_s: Sequence[tuple[float, ...]], found: Sequence[Outcome]) -> str:
    """In minutes, of those that happened; what is told as never counts as an infinite error."""
    pairs = [(told, one.true_s) for told, one in zip(told_s, found, strict=True) if np.isfinite(one.true_s)]
    if not pairs:
        return "none"
    errors = np.abs(np.array([told for told, _ in pairs]) - np.array([true_s for _, true_s in pairs])[:, None])
    return ", ".join(f"{error_s / 60:.1f}" for error_s in np.median(errors, axis=0))


def _seconds_in_words(what: str, seconds: Sequence[tuple[int, float]]) -> str:
    if not seconds:
        return f"no {what}: with more jobs there are some"
    jobs, took = np.array(seconds).T
    return f"{len(took)} {what} of {jobs.mean():.0f} jobs: {took.mean():.2f} s, {took.max():.2f} s"


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="motley", choices=POLICIES)
    parser.add_argument("--loads", type=float, nargs="*", default=LOADS)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--draws", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--cluster", default=CLUSTER)
    parser.add_argument("--lengths", nargs="*", default=("declared", "unknown"), choices=("declared", "unknown"))
    options = parser.parse_args()
    sys.stdout.write("| | horizon | forecasts | within | before | after | median error, min | width |\n")
    for declared in (length == "declared" for length in options.lengths):
        for load in options.loads:
            ends, starts, seconds = list[Outcome](), list[Outcome](), list[tuple[int, float]]()
            planned = list[tuple[int, float]]()
            for seed in options.seeds:
                state, asks = simulated(
                    load,
                    seed,
                    options.policy,
                    declared=declared,
                    draws=options.draws,
                    jobs=options.jobs,
                    machines=options.cluster,
                )
                of_ends, of_starts = outcomes(state, asks)
                ends, starts, seconds = ends + of_ends, starts + of_starts, seconds + asks.seconds
                planned += asks.planned
            known = "declared" if declared else "unknown"
            for line in lines(f"end, lengths {known}, load {load}", ends):
                sys.stdout.write(line + "\n")
            for line in lines(f"start, lengths {known}, load {load}", starts):
                sys.stdout.write(line + "\n")
            sys.stdout.write(f"{_errors_in_words(ends, starts)}\n{_seconds_in_words('forecasts', seconds)}\n")
            sys.stdout.write(f"{_seconds_in_words('plans over time', planned)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
