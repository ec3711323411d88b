r"""The linear program over time: jobs, configurations, intervals.

.. math::
    \min_{x, z \ge 0}\ \textstyle\sum_i N_i \left[\sum_{qk} \kappa_{iq} \frac{T_{ik}}{S_i} x_{iqk}
    + \kappa_i^{\text{late}} z_i\right] \quad\text{s.t.}\quad
    & \textstyle \sum_k x_{iqk} \le \ell_{iq}                              && \forall i, q \quad\text{(time)} \\
    & \textstyle \sum_{qk} \frac{T_{ik}}{S_i} x_{iqk} + z_i = 1            && \forall i \quad\text{(work)} \\
    & \textstyle \sum_i N_i P_i \sum_{q \in t,\, k} u_{jk} x_{iqk} \le c_{jt} L_t && \forall j, t \quad\text{(capacity)}

x is in seconds. Each interval t has one or several pieces q, which share its capacity and differ in what it costs to do
work in them. z is the part of the work that is left for the time after the last interval, which takes no GPUs: the
program is always feasible, and a job that can run nowhere is late as a whole.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from allocation.columns import Column, refuse, sizes_of
from allocation.types import Bools, Floats, Ints

HOUR_S = 3600.0
LATE = 2.0
"""Cost of work that is left after the last interval, as a multiple of the cost of its end."""

_COLUMNS: dict[str, Column] = {
    "rate": Column("mK", least=0),
    "usage": Column("nK", np.int64, least=0),
    "steps": Column("m", positive=True),
    "count": Column("m", np.int64, least=1, default=1),
    "probability": Column("m", positive=True, most=1, default=1),
    "length_s": Column("mQ", least=0),
    "cost_h": Column("mQ", least=0),
    "late_h": Column("m", positive=True),
    "capacity": Column("nT", least=0),
    "ends_s": Column("T", positive=True),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanProgram:
    """A linear program over time: m jobs, K configurations of n GPU types, T intervals, Q pieces of them.

    Parameters
    ----------
    rate : (m, K) float, T, steps/s; 0: impossible. A row without a rate is late as a whole.
    usage : (n, K) int, u, GPUs of each type that a configuration uses.
    steps : (m,) float, > 0, S, steps that are left.
    count : (m,) int, >= 1, N, identical jobs for which the row stands.
    probability : (m,) float, 0 to 1, P, with which the row uses its GPUs: 1, but for a stage of a job of unknown
        length, where it is that of reaching the stage. Stages are rows of their own: their order is not required.
    length_s : (m, Q) float, l, seconds of each piece in which the job may run; 0: none, as before its release.
    cost_h : (m, Q) float, kappa, hours (times the job's weight) that all its work costs if it is done in that piece.
    late_h : (m,) float, > 0, the same for the time after the last interval; not less than any of cost_h.
    capacity : (n, T) float, c, GPUs of each type, on average over the interval.
    ends_s : (T,) float, ends of the intervals, increasing; the first begins at 0.

    Raises
    ------
    InvalidProblem
        A column has the wrong shape, type, sign or range; ends do not increase; Q is no multiple of T; a cost is higher
        than that of being late.
    """

    rate: Floats
    usage: Ints
    steps: Floats
    count: Ints
    probability: Floats
    length_s: Floats
    cost_h: Floats
    late_h: Floats
    capacity: Floats
    ends_s: Floats

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _COLUMNS}
        sizes = sizes_of(_COLUMNS, given)
        for name, column in _COLUMNS.items():
            object.__setattr__(self, name, column.read(name, given[name], sizes))
        refuse("ends_s", np.diff(self.ends_s, prepend=0) <= 0, "is not after the one before")
        refuse("cost_h", (self.cost_h > self.late_h[:, None]).any(axis=1), "costs more than to be late")
        refuse("length_s", np.bool_(sizes["Q"] % max(sizes["T"], 1) != 0), "has no whole number of pieces an interval")

    @classmethod
    def of(
        cls,
        rate: npt.ArrayLike,
        usage: npt.ArrayLike,
        capacity: npt.ArrayLike,
        ends_s: npt.ArrayLike,
        *,
        steps: npt.ArrayLike,
        weight: npt.ArrayLike = 1.0,
        release_s: npt.ArrayLike = 0.0,
        cost_h: npt.ArrayLike | None = None,
        late_h: npt.ArrayLike | None = None,
        **columns: npt.ArrayLike,
    ) -> Self:
        """Give the program of a plan: one piece an interval, and by default the mean busy date as the cost.

        Parameters
        ----------
        capacity : (n, T), or (n,) where it is the same in all intervals.
        weight, release_s : (m,) or one for all; >= 0. Work before the release is impossible.
        cost_h, late_h : (m, T) or (T,), and (m,) or one for all, hours before the weight; non-decreasing in time. By
            default the middle of what is left of an interval after the release, and twice the end of the last one.
        columns : the others of the class, by name; `count` and `probability` are 1 by default.
        """
        ends = np.asarray(ends_s, float)
        T, m = np.asarray(rate, float), len(np.asarray(rate))
        begins = np.append(0, ends[:-1]) if ends.size else ends
        w, release = (np.broadcast_to(np.asarray(value, float), m) for value in (weight, release_s))
        usable = np.maximum(begins, release[:, None])
        middle_h = (usable + ends) / 2 / HOUR_S
        last_h = LATE * max(float(ends.max(initial=1.0)), float(release.max(initial=0))) / HOUR_S
        cost = np.broadcast_to(
            np.minimum(middle_h, last_h) if cost_h is None else np.asarray(cost_h, float), middle_h.shape
        )
        late = np.broadcast_to(last_h if late_h is None else np.asarray(late_h, float), m)
        c = np.asarray(capacity, float)
        given: dict[str, Any] = {
            "rate": T,
            "usage": usage,
            "steps": steps,
            "count": np.ones(m),
            "probability": np.ones(m),
            "length_s": np.maximum(ends - usable, 0),
            "cost_h": cost * w[:, None],
            "late_h": np.maximum(late * w, np.finfo(float).tiny),
            "capacity": np.repeat(c[:, None], len(ends), axis=1) if c.ndim == 1 else c,
            "ends_s": ends,
        }
        return cls(**given | columns)

    def of_rows(self, rows: Ints, count: Ints) -> Self:
        """Give the program of some rows, each for so many jobs; what holds of all rows is not checked again."""
        columns = {name: getattr(self, name) for name in _COLUMNS}
        by_row = {name: columns[name][rows] for name, column in _COLUMNS.items() if column.axes.startswith("m")}
        other = object.__new__(type(self))
        for name, value in (columns | by_row | {"count": count}).items():
            object.__setattr__(other, name, value)
        return other

    @cached_property
    def possible(self) -> Bools:
        """Configurations (m, K) of each job that the capacity of some interval holds."""
        fits = (self.usage <= self.capacity.max(axis=1, initial=0)[:, None]).all(axis=0)
        return np.asarray((self.rate > 0) & fits)

    @cached_property
    def interval_s(self) -> Floats:
        """Length (T,) of each interval in seconds, L."""
        lengths: Floats = np.diff(self.ends_s, prepend=0)
        return lengths

    @cached_property
    def room(self) -> Floats:
        """GPU-seconds (T, n) of each interval and type, c L."""
        room: Floats = (self.capacity * self.interval_s).T
        return room

    @property
    def pieces(self) -> int:
        """Pieces of each interval."""
        return int(self.length_s.shape[1]) // max(len(self.ends_s), 1)


def doubling_intervals(round_s: float, horizon_s: float) -> Floats:
    """Ends of intervals of which the first two are a round long, and each further one twice as long as the last."""
    ends = [round_s]
    while ends[-1] < horizon_s:
        ends.append(2 * ends[-1])
    return np.array(ends)
