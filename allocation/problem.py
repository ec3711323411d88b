"""One scheduling round as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from allocation.types import Bools, Floats, Ints


class InvalidProblem(ValueError):
    """A column of a problem is unusable; says which, in which row, and why."""

    def __init__(self, column: str, reason: str, *, row: int | None = None) -> None:
        self.column, self.row, self.reason = column, row, reason
        super().__init__(f"{column}{'' if row is None else f', row {row}'}: {reason}")


@dataclass(frozen=True)
class _Column:
    """What a column must be; axes are letters of m, n, K, P, S, or digits, none for a single number."""

    axes: str
    dtype: type[np.generic] = np.float64
    least: float = -np.inf
    most: float = np.inf
    positive: bool = False
    finite: bool = True
    default: float = 0.0

    def read(self, name: str, value: npt.ArrayLike, sizes: dict[str, int]) -> npt.NDArray[Any]:
        """Give the value as a read-only array, or refuse it."""
        array = self._coerced(name, value)
        shape = tuple(sizes[axis] if axis in sizes else int(axis) for axis in self.axes)
        if array.shape != shape:
            raise InvalidProblem(name, f"has shape {array.shape}, not {shape}")
        if not self._is_sound(array):
            wrong, reason = next(fault for fault in self._faults(array) if fault[0].any())
            raise InvalidProblem(name, reason, row=int(np.argwhere(wrong)[0, 0]) if self.axes else None)
        array.setflags(write=False)
        return array

    def blank(self, sizes: dict[str, int]) -> npt.NDArray[Any]:
        """Give the default everywhere; it is stored once."""
        shape = tuple(sizes[axis] if axis in sizes else int(axis) for axis in self.axes)
        return np.broadcast_to(np.array(self.default).astype(self.dtype), shape)

    def _coerced(self, name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
        try:
            given = np.asarray(value)
            if self.dtype is np.int64 and given.dtype.kind == "f" and not np.array_equal(given, np.floor(given)):
                raise InvalidProblem(name, "must hold whole numbers")
            return np.array(given, dtype=self.dtype, order="C")
        except InvalidProblem:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidProblem(name, f"is not an array of numbers ({error})") from error

    def _is_sound(self, array: npt.NDArray[Any]) -> bool:
        """Whether it has no fault, by its least and its largest entry alone: those of an array with a NaN are NaN."""
        if self.dtype is np.bool_ or not array.size:
            return True
        low, high = array.min(), array.max()
        return bool(
            self.least <= low <= high <= self.most
            and (low > 0 or not self.positive)
            and (abs(low) < np.inf > high or not self.finite)
        )

    def _faults(self, array: npt.NDArray[Any]) -> list[tuple[Bools, str]]:
        if self.dtype is np.bool_:
            return []
        return [
            (np.isnan(array), "is not a number"),
            (np.isinf(array) & self.finite, "must be finite"),
            (array < self.least, f"must not be less than {self.least:g}"),
            (array > self.most, f"must not be more than {self.most:g}"),
            ((array <= 0) & self.positive, "must be positive"),
        ]


_BLANK: Any = object()
"""In place of a column: its default."""

_COLUMNS: dict[str, _Column] = {
    "rate": _Column("mK", least=0),
    "usage": _Column("nK", np.int64, least=0),
    "nodes": _Column("K", np.int64, least=1, default=1),
    "capacity": _Column("n", np.int64, least=0),
    "weight": _Column("m", positive=True, default=1),
    "base_gpus": _Column("m", positive=True),
    "base_rate": _Column("m", positive=True),
    "age_s": _Column("m", least=0),
    "remaining_steps": _Column("m", least=0, finite=False, default=np.inf),
    "total_steps": _Column("m", least=0, finite=False, default=np.inf),
    "attained_gpu_s": _Column("m", least=0),
    "isolated_s": _Column("m", least=0),
    "received_s": _Column("mn", least=0),
    "held": _Column("m", np.int64, least=-1, default=-1),
    "restart_s": _Column("m", least=0),
    "restarts": _Column("m", np.int64, least=0),
    "most_gpus": _Column("m", least=0, finite=False, default=np.inf),
    "locked": _Column("m", np.bool_),
    "unlock_s": _Column("m", least=0, finite=False, default=np.inf),
    "deadline_s": _Column("m", finite=False, default=np.inf),
    "price_per_gpu_hour": _Column("n", least=0),
    "team": _Column("m", np.int64),
    "workload": _Column("m", np.int64, least=-1, default=-1),
    "kept_rate": _Column("SSK", least=0, most=1),
    "mate": _Column("m", np.int64, least=-1, default=-1),
    "pairs": _Column("P2", np.int64, least=0),
    "pair_received_s": _Column("Pn", least=0),
    "solve_limit_s": _Column("", positive=True, finite=False, default=np.inf),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """One round: m jobs, n GPU types, K configurations; S workloads whose jobs may share GPUs, P pairs that did.

    Parameters
    ----------
    rate : (m, K) float, steps/s or goodput of the whole job; 0: impossible.
    usage, nodes : (n, K) int, GPUs of each type that a configuration uses, and (K,) int, the nodes it spans.
    capacity : (n,) int, GPUs that the rows may use, those they hold included.
    weight : (m,) float, > 0.
    base_gpus, base_rate : (m,) float, > 0, GPUs of the smallest valid configuration and its steps/s on the average GPU.
    age_s : (m,) float, seconds since the job was submitted.
    remaining_steps, total_steps : (m,) float, steps; inf: unknown.
    attained_gpu_s : (m,) float, GPU-seconds received so far.
    isolated_s : (m,) float, seconds that the work so far would have taken on a 1/N share.
    received_s : (m, n) float, seconds received per type, alone on its GPUs, since the shares were last set.
    held : (m,) int, the configuration held now, or -1.
    restart_s, restarts : (m,) float, seconds that a restart costs, and (m,) int, restarts so far.
    most_gpus : (m,) float, the most GPUs that jobs of its kind ever ran on; inf: any number is thought safe.
    locked : (m,) bool, the job keeps what it holds this round.
    unlock_s : (m,) float, seconds until its lock ends; inf: never.
    deadline_s : (m,) float, seconds from now, negative when missed; inf: none.
    price_per_gpu_hour : (n,) float, >= 0.
    team : (m,) int, any labels.
    workload : (m,) int, the workload by which the job may share GPUs with another, -1: it shares them with nobody.
    kept_rate : (S, S, K) float, 0 to 1, of the rate of a job of the first workload what is left to it beside one of the
        second, on the same GPUs; 0: they cannot be together.
    mate : (m,) int, the row that shares what is held, -1: none does.
    pairs, pair_received_s : (P, 2) int, rows that have shared GPUs, and (P, n) float, seconds per type, since the
        shares were last set.
    solve_limit_s : float, > 0, seconds after which the best certified decision counts; inf: however long it takes.

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
    weight: Floats
    base_gpus: Floats
    base_rate: Floats
    age_s: Floats
    remaining_steps: Floats
    total_steps: Floats
    attained_gpu_s: Floats
    isolated_s: Floats
    received_s: Floats
    held: Ints
    restart_s: Floats
    restarts: Ints
    most_gpus: Floats
    locked: Bools
    unlock_s: Floats
    deadline_s: Floats
    price_per_gpu_hour: Floats
    team: Ints
    workload: Ints
    kept_rate: Floats
    mate: Ints
    pairs: Ints
    pair_received_s: Floats
    solve_limit_s: float

    def __post_init__(self) -> None:
        sizes = _sizes(self.rate, self.usage, {"pairs": self.pairs, "kept_rate": self.kept_rate})
        for name, column in _COLUMNS.items():
            value = getattr(self, name)
            array = column.blank(sizes) if value is _BLANK else column.read(name, value, sizes)
            object.__setattr__(self, name, array if column.axes else array.item())
        self._check_rows()

    @classmethod
    def of(cls, rate: npt.ArrayLike, usage: npt.ArrayLike, capacity: npt.ArrayLike, **columns: npt.ArrayLike) -> Self:
        """Give the problem with defaults filled in, and only the rates that can be used."""
        sizes = _sizes(rate, usage, columns)
        given: dict[str, npt.ArrayLike] = {"usage": usage, "capacity": capacity, **columns}
        given["rate"] = _usable_rate(rate, given, sizes)
        if not {"base_gpus", "base_rate"} <= given.keys():
            base_gpus, base_rate = normaliser(given["rate"], usage, capacity)
            given = {"base_gpus": base_gpus, "base_rate": base_rate, **given}
        return cls(**dict.fromkeys(_COLUMNS, _BLANK) | given)

    @property
    def gpus(self) -> Ints:
        """Total GPUs of each configuration (K,)."""
        total: Ints = self.usage.sum(axis=0)
        return total

    def subset(self, rows: Ints | Bools) -> Self:
        """Give the same round for some of the jobs, in the order named."""
        kept = np.arange(len(self.weight))[rows]
        position = np.full(len(self.weight), -1)
        position[kept] = np.arange(kept.size)
        whole = (position[self.pairs] >= 0).all(axis=1)
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        by_job = {name: columns[name][kept] for name, column in _COLUMNS.items() if column.axes.startswith("m")}
        by_pair = {"pairs": position[self.pairs[whole]], "pair_received_s": self.pair_received_s[whole]}
        by_job["mate"] = np.where(by_job["mate"] >= 0, position[by_job["mate"]], -1)
        return type(self)(**columns | by_job | by_pair)

    def _check_rows(self) -> None:
        m, K = self.rate.shape
        too_large = (self.usage > self.capacity[:, None]).any(axis=0)
        _refuse("held", self.held >= K, "names no configuration")
        _refuse("held", self.locked & (self.held < 0), "is locked and holds nothing")
        _refuse("rate", (self.rate[:, too_large] > 0).any(axis=1), "is valid in a configuration beyond the capacity")
        _refuse("rate", self.rate.max(axis=1, initial=0) <= 0, "has no valid configuration")
        _refuse("usage", (self.usage.sum(axis=0) == 0), "is a configuration without GPUs")
        _refuse("pairs", (self.pairs >= m).any(axis=1), "names no job")
        _refuse("pairs", self.pairs[:, 0] == self.pairs[:, 1], "is a job and itself")
        self._check_sharing(m)

    def _check_sharing(self, m: int) -> None:
        _refuse("workload", self.workload >= len(self.kept_rate), "is none of those of kept_rate")
        one_way = (self.kept_rate > 0) & (self.kept_rate.transpose(1, 0, 2) == 0)
        _refuse("kept_rate", one_way.any(axis=(1, 2)), "lets only one of two run; they run together, or not at all")
        _refuse("mate", self.mate >= m, "names no job")
        rows = np.flatnonzero(self.mate >= 0)
        mate = self.mate[rows]
        apart = np.zeros(m, dtype=np.bool_)
        apart[rows] = (self.mate[mate] != rows) | (mate == rows) | (self.held[mate] != self.held[rows])
        _refuse("mate", apart, "does not hold the same GPUs: two that share them have one configuration")


def normaliser(rate: npt.ArrayLike, usage: npt.ArrayLike, capacity: npt.ArrayLike) -> tuple[Floats, Floats]:
    r"""Give the smallest gang of each job and its rate on the cluster's average GPU.

    .. math::
        g_i = \min_{k:\,T_{ik} > 0} \textstyle\sum_j u_{jk}, \qquad
        p_i = \sum_j \frac{c_j}{\sum c}\, T_{i,k_0(i,j)}

    k0(i, j) is the configuration of g_i GPUs, all of type j, that is best for job i; a type without one adds 0. Who can
    run in mixed gangs only has the rate of the best of them. Both are 0 for a job that can run nowhere.
    """
    T, u, c = np.asarray(rate, float), np.asarray(usage), np.asarray(capacity, float)
    gpus = u.sum(axis=0)
    g = np.where(T > 0, gpus, np.inf).min(axis=1, initial=np.inf)
    smallest = np.where(gpus == g[:, None], T, 0)
    best = [smallest[:, u[j] == gpus].max(axis=1, initial=0) for j in range(len(c))]
    p = c / max(c.sum(), 1) @ np.reshape(best, (len(c), len(T)))
    return np.where(np.isfinite(g), g, 0), np.where(p > 0, p, smallest.max(axis=1, initial=0))


def runnable(rate: npt.ArrayLike, usage: npt.ArrayLike, capacity: npt.ArrayLike) -> Bools:
    """Which jobs (m,) have a configuration that an empty cluster of this capacity could hold."""
    u, c, T = np.asarray(usage, float), np.asarray(capacity, float), np.asarray(rate, float)
    return np.asarray((T[:, (u <= c[:, None]).all(axis=0)] > 0).any(axis=1))


def _usable_rate(rate: npt.ArrayLike, columns: dict[str, npt.ArrayLike], sizes: dict[str, int]) -> Floats:
    read = {"rate": rate, **columns}
    usage, capacity, usable = (_COLUMNS[name].read(name, read[name], sizes) for name in ("usage", "capacity", "rate"))
    fits = (usage <= capacity[:, None]).all(axis=0)
    return usable if fits.all() else np.where(fits, usable, 0)


def _sizes(rate: npt.ArrayLike, usage: npt.ArrayLike, columns: Mapping[str, npt.ArrayLike]) -> dict[str, int]:
    given = {"rate": rate, "usage": usage} | {name: _given(columns, name) for name in ("pairs", "kept_rate")}
    for name, value in given.items():
        if np.ndim(value) != len(_COLUMNS[name].axes):
            raise InvalidProblem(name, f"must have {len(_COLUMNS[name].axes)} dimensions")
    (m, K), n = np.shape(rate), np.shape(usage)[0]
    return {"m": m, "K": K, "n": n, "P": np.shape(given["pairs"])[0], "S": np.shape(given["kept_rate"])[0]}


def _given(columns: Mapping[str, npt.ArrayLike], name: str) -> npt.ArrayLike:
    value = columns.get(name, _BLANK)
    return np.zeros((0,) * len(_COLUMNS[name].axes)) if value is _BLANK else value


def _refuse(column: str, wrong: npt.NDArray[np.bool_] | np.bool_, reason: str) -> None:
    if wrong.any():
        raise InvalidProblem(column, reason, row=int(np.flatnonzero(wrong)[0]))
