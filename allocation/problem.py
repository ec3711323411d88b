"""One scheduling round as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from allocation.columns import Column, refuse, sizes_of
from allocation.types import Bools, Floats, Ints

LEAST_WEIGHT, MOST_WEIGHT = 1e-12, 1e12
"""Weights that solvers can tell apart from rounding errors."""
_BLANK: Any = object()
"""In place of a column: its default."""

_COLUMNS: dict[str, Column] = {
    "rate": Column("mK", least=0),
    "usage": Column("nK", np.int64, least=0),
    "nodes": Column("K", np.int64, least=1, default=1),
    "capacity": Column("n", np.int64, least=0),
    "gpus_per_replica": Column("mn", np.int64, least=1, default=1),
    "weight": Column("m", least=LEAST_WEIGHT, most=MOST_WEIGHT, default=1),
    "job_weight": Column("m", least=LEAST_WEIGHT, most=MOST_WEIGHT, default=1),
    "team_backlog_s": Column("m", least=0),
    "base_gpus": Column("m", positive=True),
    "base_rate": Column("m", positive=True),
    "age_s": Column("m", least=0),
    "remaining_steps": Column("m", least=0, finite=False, default=np.inf),
    "total_steps": Column("m", least=0, finite=False, default=np.inf),
    "attained_gpu_s": Column("m", least=0),
    "isolated_s": Column("m", least=0),
    "received_s": Column("mn", least=0),
    "held": Column("m", np.int64, least=-1, default=-1),
    "held_s": Column("m", least=0),
    "restart_s": Column("m", least=0),
    "restarts": Column("m", np.int64, least=0),
    "most_replicas": Column("m", least=0, finite=False, default=np.inf),
    "locked": Column("m", np.bool_),
    "unlock_s": Column("m", least=0, finite=False, default=np.inf),
    "deadline_s": Column("m", finite=False, default=np.inf),
    "limit_s": Column("m", least=0, finite=False, default=np.inf),
    "price_per_gpu_hour": Column("n", least=0),
    "team": Column("m", np.int64),
    "array_others_gpu_s": Column("m", least=0, finite=False),
    "pilot": Column("m", np.bool_),
    "unsampled": Column("m", np.bool_),
    "solve_limit_s": Column("", positive=True, finite=False, default=np.inf),
}

_SHARING_COLUMNS: dict[str, Column] = {
    "workload": Column("m", np.int64, least=-1),
    "kept_rate": Column("SSK", least=0, most=1),
    "mate": Column("m", np.int64, least=-1, default=-1),
    "pairs": Column("P2", np.int64, least=0),
    "pair_received_s": Column("Pn", least=0),
}
LEASE = 25.0
"""Length of a lease, as a multiple of the restart that it repays."""
_TWO_HOLD_DIFFERENT = "does not hold the same GPUs: two that share them have one configuration"


@dataclass(frozen=True, eq=False, kw_only=True)
class SpaceSharing:
    """Columns of a problem in which two jobs may share GPUs: S workloads, P pairs of jobs that have shared GPUs.

    Parameters
    ----------
    workload : (m,) int, the workload by which the job may share GPUs with another, -1: it shares them with no job.
    kept_rate : (S, S, K) float, 0 to 1, of the rate of a job of the first workload what is left to it beside one of the
        second, on the same GPUs; 0: they cannot be together.
    mate : (m,) int, the row that shares what is held, -1: none does.
    pairs, pair_received_s : (P, 2) int, rows that have shared GPUs, and (P, n) float, seconds per type, since the
        shares were last set.

    Raises
    ------
    InvalidProblem
        A column has the wrong shape, type, sign or range; two jobs share GPUs of which they do not hold the same.
    """

    workload: Ints
    kept_rate: Floats
    mate: Ints
    pairs: Ints
    pair_received_s: Floats

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _SHARING_COLUMNS}
        sizes = sizes_of(_SHARING_COLUMNS, given)
        for name, column in _SHARING_COLUMNS.items():
            object.__setattr__(self, name, column.read(name, given[name], sizes))
        self._check_rows(sizes["m"])

    @classmethod
    def of(cls, workload: npt.ArrayLike, kept_rate: npt.ArrayLike, *, types: int, **columns: npt.ArrayLike) -> Self:
        """Give the columns for so many GPU types; no job has a mate and no pairs have shared GPUs, unless given."""
        given: dict[str, npt.ArrayLike] = {"workload": workload, "kept_rate": kept_rate, **columns}
        sizes = {"P": 0, "n": types} | sizes_of(_SHARING_COLUMNS, given)
        blank: dict[str, Any] = {
            name: column.blank(sizes) for name, column in _SHARING_COLUMNS.items() if name not in given
        }
        return cls(**blank | given)

    def subset(self, rows: Ints) -> Self:
        """Give the columns of some of the jobs, in the order named, with the pairs and mates that are among them."""
        position = np.full(len(self.workload), -1)
        position[rows] = np.arange(rows.size)
        whole = (position[self.pairs] >= 0).all(axis=1)
        mate = self.mate[rows]
        return replace(
            self,
            workload=self.workload[rows],
            mate=np.where(mate >= 0, position[mate], -1),
            pairs=position[self.pairs[whole]],
            pair_received_s=self.pair_received_s[whole],
        )

    def without_mates(self) -> Self:
        """Give the same columns where no job shares what it holds."""
        return replace(self, mate=np.full(len(self.mate), -1))

    def check_fits(self, sizes: Mapping[str, int], held: Ints) -> None:
        """Refuse columns of another number of jobs, types or configurations, or of mates that hold different ones."""
        for name, column in _SHARING_COLUMNS.items():
            column.check_shape(name, getattr(self, name), {"S": len(self.kept_rate), "P": len(self.pairs), **sizes})
        refuse("mate", (self.mate >= 0) & (held[self.mate] != held), _TWO_HOLD_DIFFERENT)

    def _check_rows(self, m: int) -> None:
        refuse("pairs", (self.pairs >= m).any(axis=1), "names no job")
        refuse("pairs", self.pairs[:, 0] == self.pairs[:, 1], "is a job and itself")
        refuse("workload", self.workload >= len(self.kept_rate), "is none of those of kept_rate")
        one_way = (self.kept_rate > 0) & (self.kept_rate.transpose(1, 0, 2) == 0)
        refuse("kept_rate", one_way.any(axis=(1, 2)), "lets only one of two run; they run together, or not at all")
        refuse("mate", self.mate >= m, "names no job")
        row = np.arange(m)
        refuse("mate", (self.mate >= 0) & ((self.mate[self.mate] != row) | (self.mate == row)), _TWO_HOLD_DIFFERENT)


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """One round: m jobs, n GPU types, K configurations.

    Parameters
    ----------
    rate : (m, K) float, steps/s or goodput of the whole job; 0: impossible.
    usage, nodes : (n, K) int, GPUs of each type that a configuration uses, and (K,) int, the nodes it spans.
    capacity : (n,) int, GPUs that the rows may use, those they hold included.
    weight : (m,) float, 1e-12 to 1e12; a team's weight, divided among its jobs.
    job_weight : (m,) float, 1e-12 to 1e12; that of the job alone.
    team_backlog_s : (m,) float, seconds of the whole cluster that the job's team is behind its share.
    gpus_per_replica : (m, n) int, >= 1, GPUs of each type that one replica takes; more than 1: hybrid-parallel jobs.
    base_gpus, base_rate : (m,) float, > 0, GPUs of the smallest valid configuration and its steps/s on the average GPU.
    age_s : (m,) float, seconds since the job was submitted.
    remaining_steps, total_steps : (m,) float, steps; inf: unknown.
    attained_gpu_s : (m,) float, GPU-seconds received so far.
    isolated_s : (m,) float, seconds that the work so far would have taken on a 1/N share.
    received_s : (m, n) float, seconds received per type, alone on its GPUs, since the shares were last set.
    held, held_s : (m,) int, the configuration held now, or -1, and (m,) float, seconds since the job started on it.
    restart_s, restarts : (m,) float, seconds that a restart costs, and (m,) int, restarts so far.
    most_replicas : (m,) float, the most replicas that jobs of its kind ever ran with; inf: any number is thought safe.
    locked : (m,) bool, the job keeps what it holds this round.
    unlock_s : (m,) float, seconds until its lock ends; inf: never.
    deadline_s : (m,) float, seconds from now, negative when missed; inf: none.
    limit_s : (m,) float, seconds of running that the job's time limit leaves; inf: it has none.
    price_per_gpu_hour : (n,) float, >= 0.
    team : (m,) int, any labels.
    array_others_gpu_s : (m,) float, GPU-seconds on smallest gangs of average GPUs that are left of the other tasks of
        the job's array; inf: unknown.
    pilot, unsampled : (m,) bool, the job is one of the tasks that tell how long its array's take, and it waits for
        those to end.
    solve_limit_s : float, > 0, seconds after which the best certified decision counts; inf: however long it takes.
    sharing : columns of space sharing; None: no two jobs may share GPUs.

    Raises
    ------
    InvalidProblem
        A column has the wrong shape, type, sign or range; a job has no valid configuration; a rate stands for a
        configuration that the capacity can never hold; two jobs share GPUs of which they do not hold the same.
    """

    rate: Floats
    usage: Ints
    nodes: Ints
    capacity: Ints
    gpus_per_replica: Ints
    weight: Floats
    job_weight: Floats
    team_backlog_s: Floats
    base_gpus: Floats
    base_rate: Floats
    age_s: Floats
    remaining_steps: Floats
    total_steps: Floats
    attained_gpu_s: Floats
    isolated_s: Floats
    received_s: Floats
    held: Ints
    held_s: Floats
    restart_s: Floats
    restarts: Ints
    most_replicas: Floats
    locked: Bools
    unlock_s: Floats
    deadline_s: Floats
    limit_s: Floats
    price_per_gpu_hour: Floats
    team: Ints
    array_others_gpu_s: Floats
    pilot: Bools
    unsampled: Bools
    solve_limit_s: float
    sharing: SpaceSharing | None = None

    def __post_init__(self) -> None:
        sizes = sizes_of(_COLUMNS, {"rate": self.rate, "usage": self.usage})
        for name, column in _COLUMNS.items():
            value = getattr(self, name)
            array = column.blank(sizes) if value is _BLANK else column.read(name, value, sizes)
            object.__setattr__(self, name, array if column.axes else array.item())
        self._check_rows(sizes)

    @classmethod
    def of(
        cls,
        rate: npt.ArrayLike,
        usage: npt.ArrayLike,
        capacity: npt.ArrayLike,
        *,
        sharing: SpaceSharing | None = None,
        **columns: npt.ArrayLike,
    ) -> Self:
        """Give the problem with defaults filled in, and only the rates that can be used."""
        sizes = sizes_of(_COLUMNS, {"rate": rate, "usage": usage})
        given: dict[str, npt.ArrayLike] = {"usage": usage, "capacity": capacity, **columns}
        given["rate"] = _usable_rate(rate, given, sizes)
        if not {"base_gpus", "base_rate"} <= given.keys():
            if (units := given.get("gpus_per_replica")) is not None:
                units = _COLUMNS["gpus_per_replica"].read("gpus_per_replica", units, sizes)
            base_gpus, base_rate = normaliser(given["rate"], usage, capacity, units)
            given = {"base_gpus": base_gpus, "base_rate": base_rate, **given}
        return cls(**dict.fromkeys(_COLUMNS, _BLANK) | given, sharing=sharing)

    @cached_property
    def gpus(self) -> Ints:
        """Total GPUs of each configuration (K,)."""
        total: Ints = self.usage.sum(axis=0)
        total.setflags(write=False)
        return total

    @property
    def as_old(self) -> Ints:
        """Jobs that are as old as each job (m,) or older, itself included: those that come later do not count."""
        jobs: Ints = len(self.age_s) - np.searchsorted(np.sort(self.age_s), self.age_s)
        return jobs

    @property
    def leased(self) -> Bools:
        """Jobs (m,) that have held their GPUs for less than a lease (`LEASE` restarts), or will end within one."""
        lease_s = LEASE * self.restart_s
        rate = np.take_along_axis(self.rate, np.maximum(self.held, 0)[:, None], axis=1)[:, 0]
        ends_soon = (self.remaining_steps > 0) & (self.remaining_steps <= rate * lease_s)
        leased: Bools = (self.held >= 0) & ((self.held_s < lease_s) | ends_soon)
        return leased

    @cached_property
    def replicas(self) -> Floats:
        """Replicas (m, K) of each job in each configuration; (1, K), the GPUs, where every replica is one GPU."""
        return replicas_of(self.usage, self.gpus_per_replica)

    @cached_property
    def base_replicas(self) -> Floats:
        """Replicas (m,) of each job's smallest valid configurations, one on each type that it can use."""
        fewest: Floats = np.where(self.rate > 0, self.replicas, np.inf).min(axis=1)
        return fewest

    def subset(self, rows: Ints | Bools) -> Self:
        """Give the same round for some of the jobs, in the order named."""
        kept = np.arange(len(self.weight))[rows]
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        by_job = {name: columns[name][kept] for name, column in _COLUMNS.items() if column.axes.startswith("m")}
        return type(self)(**columns | by_job | {"sharing": self.sharing and self.sharing.subset(kept)})

    def changed(self, **columns: npt.ArrayLike) -> Self:
        """Give the same round with other values in these columns: they alone are read anew, and rows are checked."""
        sizes = sizes_of(_COLUMNS, {"rate": self.rate, "usage": self.usage})
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        other = object.__new__(type(self))
        for name, value in known.items():
            object.__setattr__(other, name, value)
        for name, value in columns.items():
            array = _COLUMNS[name].read(name, value, sizes)
            object.__setattr__(other, name, array if _COLUMNS[name].axes else array.item())
        other._check_rows(sizes)
        return other

    def _check_rows(self, sizes: Mapping[str, int]) -> None:
        K = len(self.nodes)
        too_large = (self.usage > self.capacity[:, None]).any(axis=0)
        refuse("held", self.held >= K, "names no configuration")
        refuse("held", self.locked & (self.held < 0), "is locked and holds nothing")
        refuse("rate", (self.rate[:, too_large] > 0).any(axis=1), "is valid in a configuration beyond the capacity")
        refuse("rate", self.rate.max(axis=1, initial=0) <= 0, "has no valid configuration")
        refuse("usage", (self.usage.sum(axis=0) == 0), "is a configuration without GPUs")
        if self.sharing is not None:
            self.sharing.check_fits(sizes, self.held)


DECIMALS = 9
"""Digits of a number of replicas that are not rounding error."""


def replicas_of(usage: npt.ArrayLike, gpus_per_replica: npt.ArrayLike | None) -> Floats:
    """Replicas (m, K) of each configuration; (1, K), its GPUs, where every replica is one GPU of any type."""
    u = np.asarray(usage, float)
    if gpus_per_replica is None or (np.asarray(gpus_per_replica) == 1).all():
        return np.asarray(u.sum(axis=0)[None, :])
    replicas: Floats = (1 / np.asarray(gpus_per_replica, float)) @ u
    return replicas.round(DECIMALS)


def normaliser(
    rate: npt.ArrayLike, usage: npt.ArrayLike, capacity: npt.ArrayLike, gpus_per_replica: npt.ArrayLike | None = None
) -> tuple[Floats, Floats]:
    r"""Give the smallest gang of each job and its rate on as many of the cluster's average GPUs.

    .. math::
        g_i = \min_{k \in k_0(i, \cdot)} \textstyle\sum_j u_{jk}, \qquad
        p_i = \sum_j \frac{c_j}{\sum c}\, \frac{g_i}{u_{j,k_0(i,j)}}\, T_{i,k_0(i,j)}

    k0(i, j) is the configuration of the fewest replicas, all on type j, that is best for job i; a type without one adds
    0. A replica is one GPU, and the quotient 1, unless gpus_per_replica (m, n) says how many of each type it takes.
    Who can run in mixed gangs only has the rate of the best of them. Both are 0 for a job that can run nowhere.
    """
    T, u, c = np.asarray(rate, float), np.asarray(usage), np.asarray(capacity, float)
    gpus, replicas = u.sum(axis=0), replicas_of(usage, gpus_per_replica)
    fewest = np.where(T > 0, replicas, np.inf).min(axis=1, initial=np.inf)
    smallest = np.where(replicas == fewest[:, None], T, 0)
    g = np.where(smallest > 0, gpus, np.inf).min(axis=1, initial=np.inf)
    g = np.where(np.isfinite(g), g, 0)
    on_g = smallest * (g[:, None] / np.maximum(gpus, 1))
    best = [on_g[:, u[j] == gpus].max(axis=1, initial=0) for j in range(len(c))]
    p = c / max(c.sum(), 1) @ np.reshape(best, (len(c), len(T)))
    return g, np.where(p > 0, p, smallest.max(axis=1, initial=0))


def isolated_rate(
    base_gpus: Floats, base_rate: Floats, capacity: Ints, jobs: int | Ints | Floats | None = None
) -> Floats:
    """Rate (m,) of each job's smallest gang on its own 1/m part of the cluster: min(1, sum c / (m g)) p.

    jobs (m,) are those among which the cluster is divided for each job; None: all m.
    """
    m = len(base_gpus) if jobs is None else jobs
    whole_time: Floats = np.minimum(1, capacity.sum() / np.maximum(m * base_gpus, 1))
    return base_rate * whole_time


def runnable(rate: npt.ArrayLike, usage: npt.ArrayLike, capacity: npt.ArrayLike) -> Bools:
    """Which jobs (m,) have a configuration that an empty cluster of this capacity could hold."""
    u, c, T = np.asarray(usage, float), np.asarray(capacity, float), np.asarray(rate, float)
    return np.asarray((T[:, (u <= c[:, None]).all(axis=0)] > 0).any(axis=1))


def _usable_rate(rate: npt.ArrayLike, columns: dict[str, npt.ArrayLike], sizes: dict[str, int]) -> Floats:
    read = {"rate": rate, **columns}
    usage, capacity, usable = (_COLUMNS[name].read(name, read[name], sizes) for name in ("usage", "capacity", "rate"))
    fits = (usage <= capacity[:, None]).all(axis=0)
    return usable if fits.all() else np.where(fits, usable, 0)


def sharing_of(problem: Problem) -> SpaceSharing:
    """The problem's columns of space sharing; where it has none, those of jobs that share GPUs with no other."""
    (m, K), n = problem.rate.shape, len(problem.capacity)
    return problem.sharing or SpaceSharing.of(np.full(m, -1), np.zeros((0, 0, K)), types=n)
