"""Shares of time delivered under the policies of shares, against those of their linear programs.

`python -m benchmarks.delivered_shares`; `--only a,d1.0 --policies max_min_fairness`. The scenarios are those of
`benchmarks.contention`; time is cut into windows of so many leases from the first round (`--leases 4,12`; a lease is 25
restarts), and incomplete ones are left out.

- Delivered to a job on a GPU type: the time in a window that it held GPUs of the type, restarts included, over the
  window's length.
- The program's: the mean over the window's rounds of the share that the round mechanism was given: the policy's optimum
  at its vertex (`allocation.solvers.few_types`).

Errors are in points (hundredths), over all pairs of a job and a window that it was active in from beginning to end:

- *sum*: |sum over types of delivered - sum over types of the program's|, the time at all;
- *worst type*: the largest of |delivered - the program's| over the types;
- *short*: what the sum is less than the program's, 0 where it is more: GPUs that shares leave over are given away;
- *whole turns*: the least *sum* of jobs whose turns are whole leases, all within the window;
- *shared*: the same as *sum* of jobs whose program's share is below 0.99; the others run all the time;
- *teams*: |GPU time held by a team's jobs - the program's| over that of the cluster, of all its jobs in the window.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from allocation.decision import Decision
from allocation.policies.parameters import Policy
from allocation.problem import LEASE, Problem
from allocation.solvers.few_types import on_few_types
from allocation.solvers.linear_program import divert_native_output
from allocation.time_budget import TimeBudget
from allocation.types import Floats, Ints
from benchmarks.contention import Run
from benchmarks.contention_scenarios import scenarios
from simulation.clock.run import SimulatedRound
from simulation.clock.state import State
from simulation.rules.service import ServiceRules
from simulation.scenario.setting import read_seeds

SCENARIOS = ("a", "c30", "d1.0")
POLICIES = ("max_min_fairness", "hierarchical_fairness", "finish_time_fairness")
LEASES = (4, 12)
WHOLE = 0.99
"""Share of time from which a job counts as running all the time."""
TARGET = 3.0
"""Points within which shares are promised to be delivered."""


class Errors(NamedTuple):
    """Errors in points, one per pair of a job and a window, the last per pair of a team and a window."""

    sum: Floats
    worst_type: Floats
    short: Floats
    whole_turns: Floats
    shared: Floats
    teams: Floats

    @classmethod
    def joined(cls, runs: Sequence[Self]) -> Self:
        """The errors of several runs, one after the other."""
        return cls(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


NO_ERRORS = Errors(*(np.zeros(0) for _ in Errors._fields))


@dataclass(eq=False)
class Asked:
    """A policy that keeps the shares that it answered last."""

    policy: Policy
    shares: Floats | None = None

    def __call__(self, problem: Problem) -> Decision:
        self.shares = None
        decision = on_few_types(problem, self.policy(problem), TimeBudget.of(problem))
        self.shares = decision.shares
        return decision


@dataclass(eq=False)
class Windows:
    """Sums the time held (M, n) and the program's within a window, and the errors of the windows that ended."""

    state: State
    asked: Asked
    round_s: float
    length_s: float
    leases: int
    errors: list[Errors] = field(default_factory=list)
    _window: int = -1

    def __post_init__(self) -> None:
        self._begin(0)

    def see(self, seen: SimulatedRound) -> None:
        """Add the time that jobs held GPUs in one more round."""
        if (window := int(seen.began_s // self.length_s)) != self._window:
            self._end()
            self._begin(window)
        usage, active = self.state.jobs.configurations.usage, self.state.active
        held_s = (seen.stops_s - seen.began_s)[:, None]
        self._held_s[seen.rows] += (usage[:, seen.configurations] > 0).T * held_s
        self._held_gpu_s[seen.rows] += usage[:, seen.configurations].sum(axis=0) * held_s[:, 0]
        self._rounds[active] += 1
        if self.asked.shares is not None:
            self._share_s[active] += self.asked.shares @ (usage > 0).T * self.round_s
            self._share_gpu_s[active] += self.asked.shares @ usage.sum(axis=0) * self.round_s
            self._decided += 1

    def _begin(self, window: int) -> None:
        M, n = self.state.received_s.shape
        self._window, self._decided = window, 0
        self._rounds: Ints = np.zeros(M, dtype=np.int64)
        self._held_s, self._share_s = np.zeros((M, n)), np.zeros((M, n))
        self._held_gpu_s, self._share_gpu_s = np.zeros(M), np.zeros(M)

    def _end(self) -> None:
        """Note the errors of a window whose rounds were all decided by shares."""
        rounds = round(self.length_s / self.round_s)
        if self._decided < rounds:
            return
        unfinished = ~(self.state.finish_s < (self._window + 1) * self.length_s)
        rows = np.flatnonzero((self._rounds == rounds) & unfinished)
        self.errors.append(self._errors(self._held_s[rows] / self.length_s, self._share_s[rows] / self.length_s))

    def _errors(self, delivered: Floats, due: Floats) -> Errors:
        """Errors of jobs that received so much of each type (r, n), and of the teams."""
        more, share = (delivered - due).sum(axis=1), due.sum(axis=1)
        turns = self.leases * share
        return Errors(
            sum=100 * np.abs(more),
            worst_type=100 * np.abs(delivered - due).max(axis=1, initial=0),
            short=100 * np.maximum(-more, 0),
            whole_turns=100 * np.abs(turns - turns.round()) / self.leases,
            shared=100 * np.abs(more[share < WHOLE]),
            teams=self._teams(),
        )

    def _teams(self) -> Floats:
        in_team = np.flatnonzero((self.state.jobs.team >= 0) & (self._rounds > 0))
        if not in_team.size:
            return np.zeros(0)
        team, more = self.state.jobs.team[in_team], (self._held_gpu_s - self._share_gpu_s)[in_team]
        by_team = np.bincount(team, more)[np.unique(team)]
        errors: Floats = 100 * np.abs(by_team) / (self.length_s * self.state.capacity.sum())
        return errors


def measured(run: Run, leases: Sequence[int]) -> list[Errors]:
    """The errors of one run, by windows of so many leases each."""
    prepared = run.options.prepare(run.trace, run.policy, seed=run.seed)
    rounds = prepared.simulation.rounds
    if not isinstance(rounds, ServiceRules):
        raise TypeError(f"({run.scenario}) is not simulated by the service's rules")
    rounds.policy = asked = Asked(rounds.policy)
    lease_s = max(LEASE * run.options.restart_s, run.options.round_s)
    state = prepared.simulation.state
    windows = [Windows(state, asked, rounds.round_s, count * lease_s, count) for count in leases]

    def see(seen: SimulatedRound) -> None:
        for one in windows:
            one.see(seen)

    prepared.finish(see)
    return [Errors.joined(one.errors or [NO_ERRORS]) for one in windows]


def table(found: Mapping[tuple[str, str, int], Errors]) -> Iterator[str]:
    """Lines of the table in Markdown: mean / p95, and which part of the pairs is within the target."""
    yield "| | policy | leases | pairs | sum | worst type | short | whole turns | shared | within 3 points | teams |"
    yield "| --- | --- |" + " ---: |" * 9
    for (scenario, policy, leases), errors in found.items():
        cells = [_cell(one) for one in errors]
        cells.insert(5, f"{(errors.sum <= TARGET).mean():.0%}" if errors.sum.size else "")
        yield f"| ({scenario}) | `{policy}` | {leases} | {errors.sum.size:,} | " + " | ".join(cells) + " |"


def _cell(values: Floats) -> str:
    return f"{values.mean():.1f} / {np.percentile(values, 95):.1f}" if values.size else ""


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=SCENARIOS, help="scenarios, by key")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=POLICIES)
    parser.add_argument("--seeds", type=read_seeds, default=[0, 1, 2])
    parser.add_argument("--leases", type=lambda text: [int(one) for one in text.split(",")], default=LEASES)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(asked.processes) as pool:
        chosen = {key: scenarios(asked.seeds)[key] for key in asked.only}
        runs = [
            Run(key, policy, one.options(Path(name)), trace)
            for key, one in chosen.items()
            for trace in one.traces(Path(name))
            for policy in asked.policies
        ]
        errors = list(pool.map(measured, runs, [asked.leases] * len(runs)))
    named = [
        ((run.scenario, run.policy, count), one)
        for run, of_run in zip(runs, errors, strict=True)
        for count, one in zip(asked.leases, of_run, strict=True)
    ]
    found = {name: Errors.joined([one for of, one in named if of == name]) for name in dict(named)}
    sys.stdout.writelines(line + "\n" for line in table(found))


if __name__ == "__main__":
    main()
