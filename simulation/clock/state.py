"""State of a simulation: progress of all jobs of the trace."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from allocation.problem import Problem, SpaceSharing, isolated_rate, normaliser
from allocation.quotas import Quotas
from allocation.types import Bools, Floats, Ints
from estimation.durations import DurationHistory, JobTraits
from estimation.estimate import Estimate
from simulation.clock.progress import FixedRates, Work
from simulation.clock.sampled_arrays import SampledArrays
from simulation.clock.team_budgets import TeamBudgets
from simulation.clock.team_ledger import TeamLedger
from simulation.cluster import Cluster
from simulation.workloads.jobs import Jobs


@dataclass(eq=False)
class State:
    """State of all M jobs as columns; `active` holds the rows of jobs that have arrived and are unfinished.

    work is the progress model; left (M,) steps; received_s (M, n) since
    the shares were last set; isolated_rate (M,) steps/s on a 1/N share, isolated_s (M,) the time that the work so far
    would have taken on it; running_s, attained_gpu_s (M,); held (M,) the configuration run last round, or -1;
    restarts (M,), restoring_s (M,) until a job that was restarted goes on; finish_s (M,), nan: not done;
    mate (M,) the job that shared its GPUs then, or -1, and together_s, per pair, the seconds (n,) of sharing since
    the shares were last set; busy_gpu_s (n,); saved_left (M,) steps at the last checkpoint, unsaved_s (M,) run since;
    lost_gpu_s the GPU-seconds lost by failures of nodes, restored_gpu_s those held by jobs that were being restored;
    began_s (M,) of the first run, nan: none yet; since_s (M,) of the last start or move; teams is the teams' ledger.
    """

    jobs: Jobs
    capacity: Ints
    price_per_gpu_hour: Floats
    work: Work
    active: Ints
    left: Floats
    received_s: Floats
    isolated_rate: Floats
    isolated_s: Floats
    running_s: Floats
    attained_gpu_s: Floats
    held: Ints
    mate: Ints
    restarts: Ints
    restoring_s: Floats
    finish_s: Floats
    busy_gpu_s: Floats
    saved_left: Floats
    unsaved_s: Floats
    began_s: Floats
    since_s: Floats
    teams: TeamLedger
    durations: DurationHistory | None = None
    """Of the jobs that have finished; None: the lengths that jobs do not declare stay unknown."""
    arrays: SampledArrays | None = None
    """What tasks tell of their arrays; None: no array is looked at."""
    quotas: Quotas | None = None
    """Most GPUs of teams at once and their quotas on GPU types, for all M jobs."""
    budgets: TeamBudgets | None = None
    together_s: dict[tuple[int, int], Floats] = field(default_factory=dict)
    lost_gpu_s: float = 0.0
    restored_gpu_s: float = 0.0
    now_s: float = 0.0

    @classmethod
    def before(
        cls, jobs: Jobs, cluster: Cluster, price_per_gpu_hour: Sequence[float], work: Work | None = None
    ) -> Self:
        """State before the first arrival; jobs run at fixed rates unless `work` is given."""
        M, n = len(jobs.names), len(cluster.gpu_types)
        return cls(
            jobs=jobs,
            capacity=cluster.capacity,
            price_per_gpu_hour=np.array(price_per_gpu_hour, dtype=float),
            work=work or FixedRates(jobs),
            active=np.zeros(0, dtype=np.int64),
            left=jobs.steps.copy(),
            received_s=np.zeros((M, n)),
            isolated_rate=np.zeros(M),
            isolated_s=np.zeros(M),
            running_s=np.zeros(M),
            attained_gpu_s=np.zeros(M),
            held=np.full(M, -1, dtype=np.int64),
            mate=np.full(M, -1, dtype=np.int64),
            restarts=np.zeros(M, dtype=np.int64),
            restoring_s=np.zeros(M),
            finish_s=np.full(M, np.nan),
            busy_gpu_s=np.zeros(n),
            saved_left=jobs.steps.copy(),
            unsaved_s=np.zeros(M),
            began_s=np.full(M, np.nan),
            since_s=np.zeros(M),
            teams=TeamLedger.before(jobs),
        )

    def problem(self, rows: Ints | None = None, **columns: npt.ArrayLike) -> Problem:
        """The round as policies see it, for all active jobs or some rows; `columns` override the state's."""
        jobs, rows = self.jobs, self.active if rows is None else rows
        known: dict[str, npt.ArrayLike] = {
            "capacity": self.capacity,
            "nodes": jobs.configurations.nodes,
            "weight": jobs.weights_of(rows, self._weight_parts(rows)),
            "job_weight": jobs.weight[rows],
            "team_backlog_s": self.teams.backlog_of(rows),
            "held_s": np.where(self.held[rows] >= 0, np.maximum(self.now_s - self.since_s[rows], 0), 0),
            "age_s": self.now_s - jobs.arrival_s[rows],
            "remaining_steps": np.maximum(self.left[rows] + jobs.declared_steps[rows] - jobs.steps[rows], 0),
            "total_steps": jobs.declared_steps[rows],
            "attained_gpu_s": self.attained_gpu_s[rows],
            "isolated_s": self.isolated_s[rows],
            "received_s": self.received_s[rows],
            "held": self.held[rows],
            "restart_s": self.work.told_restart_s(rows),
            "restarts": self.restarts[rows],
            "most_replicas": self.work.most_replicas(rows),
            "gpus_per_replica": jobs.gpus_per_replica[jobs.kind[rows]],
            "deadline_s": jobs.deadline_s[rows] - self.now_s,
            "price_per_gpu_hour": self.price_per_gpu_hour,
            "team": jobs.team[rows],
        }
        known |= columns
        rate, kind = self.work.believed(rows)
        usable = (jobs.configurations.usage <= np.asarray(known["capacity"])[:, None]).all(axis=0)
        units = np.ones((len(rate), len(self.capacity)), dtype=np.int64)
        units[kind] = jobs.gpus_per_replica[jobs.kind[rows]]
        base_gpus, base_rate = normaliser(
            np.where(usable, rate, 0), jobs.configurations.usage, known["capacity"], units
        )
        known |= {"base_gpus": base_gpus[kind], "base_rate": base_rate[kind]}
        if self.durations is not None and "remaining_steps" not in columns:
            known |= self._lengths(self.durations, rows, base_rate[kind])
        if self.arrays is not None:
            known |= self._array_columns(self.arrays, rows, known)
        return Problem.of(rate[kind], jobs.configurations.usage, sharing=self._sharing(rows), **known)

    def _weight_parts(self, rows: Ints) -> Floats | float:
        """Part (m,) of its weight that the team of each row has now."""
        return 1.0 if self.budgets is None else self.budgets.weight_parts(self.now_s)[self.teams.team[rows]]

    def waits_for_budget(self, rows: Ints) -> Bools:
        """Rows (m,) that wait for the next period of their team's budget."""
        if self.budgets is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.asarray(self.budgets.closed[self.teams.team[rows]] & (self.held[rows] < 0))

    def _lengths(self, history: DurationHistory, rows: Ints, base_rate: Floats) -> dict[str, Floats]:
        """Steps left and in all of these rows, as in the service: of those that declare none by the jobs that ended."""
        done, declared = self.jobs.steps[rows] - self.left[rows], self.jobs.declared_steps[rows]
        left = np.maximum(declared - done, 0)
        for at in np.flatnonzero(np.isinf(declared)).tolist():
            if estimate := self._duration(history, int(rows[at])):
                left[at] = estimate.mean_left(float(done[at] / base_rate[at])) * base_rate[at]
        return {"remaining_steps": left, "total_steps": np.where(np.isinf(declared), done + left, declared)}

    def _duration(self, history: DurationHistory, row: int) -> Estimate | None:
        """Duration of a job that declares none, on its smallest gang of average GPUs."""
        if self.arrays is not None:
            return self.arrays.estimate(row, history)
        return found.estimate if (found := history.estimate(self.jobs.traits(row))) else None

    def _array_columns(
        self, arrays: SampledArrays, rows: Ints, known: Mapping[str, npt.ArrayLike]
    ) -> dict[str, npt.ArrayLike]:
        left, total, gpus, rate = (
            np.asarray(known[name]) for name in ("remaining_steps", "total_steps", "base_gpus", "base_rate")
        )
        return arrays.columns(rows, self.held[rows], left * gpus / rate, total * gpus / rate)

    def note_finished(self, rows: Ints) -> None:
        """Add the durations of these jobs, on their smallest gangs of average GPUs, to the history."""
        ended = self._ended(rows) if self.arrays is None else self.arrays.note_finished(rows)
        for traits, seconds in ended:
            if self.durations is not None:
                self.durations.add(traits, seconds)

    def _ended(self, rows: Ints) -> Iterator[tuple[JobTraits, float]]:
        for i in rows.tolist() if self.durations is not None else ():
            yield self.jobs.traits(i), float(self.jobs.steps[i] / self.jobs.base_rate[i])

    def _sharing(self, rows: Ints) -> SpaceSharing | None:
        """Columns about space sharing, if jobs may share GPUs."""
        if not self.jobs.beside_rate.size:
            return None
        place = np.full(len(self.left) + 1, -1)
        place[rows] = np.arange(len(rows))
        kinds, workload = np.unique(self.jobs.kind[rows], return_inverse=True)
        pairs = [pair for pair in self.together_s if place[list(pair)].min() >= 0]
        return SpaceSharing(
            workload=workload,
            kept_rate=self.jobs.kept_rate[np.ix_(kinds, kinds)],
            mate=place[self.mate[rows]],
            pairs=place[np.array(pairs, dtype=np.int64).reshape(-1, 2)],
            pair_received_s=np.array([self.together_s[pair] for pair in pairs]).reshape(-1, len(self.capacity)),
        )

    def renew_shares(self) -> None:
        """Reset the time received, as when shares are set anew."""
        self.received_s[self.active] = 0
        self.together_s.clear()

    def part(self, rows: Ints) -> None:
        """Record that these jobs no longer share GPUs."""
        mates = self.mate[rows]
        self.mate[mates[mates >= 0]] = -1
        self.mate[rows] = -1

    def set_isolated(self, problem: Problem, rows: Ints | None = None) -> None:
        """Set the rate of each of the problem's jobs on an isolated 1/N share."""
        alone = isolated_rate(problem.base_gpus, problem.base_rate, problem.capacity)
        self.isolated_rate[self.active if rows is None else rows] = alone

    def save(self, rows: Ints) -> None:
        """Record a checkpoint of these jobs."""
        self.saved_left[rows] = self.left[rows]
        self.unsaved_s[rows] = 0

    def lose(self, rows: Ints) -> None:
        """Stop these jobs and roll them back to their last checkpoint."""
        self.lost_gpu_s += float((self.unsaved_s * self.jobs.configurations.gpus[self.held])[rows].sum())
        self.left[rows], self.unsaved_s[rows], self.held[rows] = self.saved_left[rows], 0, -1
        self.part(rows)

    def book(self, rows: Ints, configurations: Ints, steps: Floats, busy_s: Floats, mates: Ints) -> None:
        """Record steps done and seconds busy; a shared GPU counts half for each of its two jobs."""
        used = self.jobs.configurations.usage[:, configurations].T
        gpu_s = busy_s - np.minimum(busy_s, self._mates_s(rows, mates, busy_s)) / 2
        self.left[rows] -= steps
        if self.budgets is not None:
            self.budgets.use(self.teams.work_of(rows, steps))
        self.received_s[rows] += (used > 0) * np.where(mates < 0, busy_s, 0)[:, None]
        self._book_together(rows, mates, used > 0, busy_s)
        self.running_s[rows] += busy_s
        self.unsaved_s[rows] += busy_s
        self.attained_gpu_s[rows] += used.sum(axis=1) * gpu_s
        self.isolated_s[rows] += steps / self.isolated_rate[rows]
        self.busy_gpu_s += gpu_s @ used

    def _mates_s(self, rows: Ints, mates: Ints, busy_s: Floats) -> Floats:
        """Busy seconds of these jobs' mates; 0 without a mate."""
        of_job = np.zeros(len(self.left) + 1)
        of_job[rows] = busy_s
        return of_job[mates]

    def _book_together(self, rows: Ints, mates: Ints, on_type: Bools, busy_s: Floats) -> None:
        long_s = np.maximum(busy_s, self._mates_s(rows, mates, busy_s))
        for at in np.flatnonzero(mates > rows).tolist():
            pair = int(rows[at]), int(mates[at])
            self.together_s[pair] = self.together_s.get(pair, 0) + on_type[at] * long_s[at]
