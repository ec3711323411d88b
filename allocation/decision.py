"""Decision of a policy: shares of time or an assignment, with prices, bound and status."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

import numpy as np
import numpy.typing as npt

from allocation.types import Floats, Ints

DUST = 1e-7  # shares below HiGHS's feasibility tolerance are rounding errors


class Status(StrEnum):
    """How a decision was reached: proven optimal, stopped by the time limit, by a rule, or by a fallback."""

    OPTIMAL = "optimal"  # within the gap that was asked
    LIMIT = "limit"  # the best certified decision when the time limit came, perhaps not within the gap
    RULE = "rule"  # followed a rule; nothing was optimised
    FALLBACK = "fallback"  # the policy failed, and its stand-in answered


@dataclass(frozen=True, eq=False)
class Pairs:
    """P pairs of jobs on the same GPUs: rows (P, 2), and shares (P, K) of time together in each configuration."""

    rows: Ints
    shares: Floats

    @classmethod
    def none(cls, configurations: int) -> Self:
        """No pairs."""
        return cls(np.zeros((0, 2), dtype=np.int64), np.zeros((0, configurations)))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """Decision of one round: shares (m, K) of time, or an assignment (m,) of a configuration or -1; never both.

    prices (n,) are the gain in the objective per GPU of each type; bound is the best value that any decision could
    have; value (m, K), of a policy that maximises value, is what the objective gains from each configuration, in the
    unit of the prices; rival (m,), of a queue, is for each row left the last one served before it, or the one that
    stops the queue, -1: none; behind_h (m,), of a policy that counts it, is how far the row's team is behind its share,
    in cluster-hours; keeps_s (m,), of a policy that observes leases, is for how many seconds a row keeps what it holds,
    kept_for (n,) the row for which it keeps idle GPUs of a type, or -1, and kept (n,) how many; message is the error,
    if another policy stood in. pairs, of a policy that lets two jobs share GPUs, is the time that they spend so, and
    shares the time that jobs spend alone. vertex: the shares are those of few types per job
    (`allocation.solvers.few_types`).
    """

    shares: Floats | None = None
    assignment: Ints | None = None
    prices: Floats
    objective: float
    bound: float
    status: Status
    solve_seconds: float
    value: Floats | None = None
    rival: Ints | None = None
    behind_h: Floats | None = None
    keeps_s: Floats | None = None
    kept_for: Ints | None = None
    kept: Ints | None = None
    message: str = ""
    pairs: Pairs | None = None
    vertex: bool = False

    @classmethod
    def of_shares(
        cls,
        shares: npt.ArrayLike,
        *,
        prices: npt.ArrayLike,
        objective: float,
        bound: float | None = None,
        status: Status = Status.OPTIMAL,
        solve_seconds: float = 0.0,
        dust: float = DUST,
        pairs: Pairs | None = None,
    ) -> Self:
        """Give a decision of shares; those below the solver's tolerance are cut here, once."""
        X = np.clip(np.asarray(shares, float), 0, 1)
        return cls(
            shares=_frozen(np.where(dust > X, 0, X)),
            prices=_frozen(np.maximum(np.asarray(prices, float), 0)),
            objective=float(objective),
            bound=float(objective if bound is None else bound),
            status=status,
            solve_seconds=solve_seconds,
            pairs=pairs,
        )

    @classmethod
    def of_assignment(
        cls,
        assignment: npt.ArrayLike,
        *,
        prices: npt.ArrayLike,
        objective: float = 0.0,
        bound: float | None = None,
        status: Status = Status.RULE,
        solve_seconds: float = 0.0,
        value: Floats | None = None,
        rival: Ints | None = None,
    ) -> Self:
        """Give a decision of one configuration per job, -1 for none."""
        chosen = np.array(assignment, dtype=np.int64)
        chosen.setflags(write=False)
        return cls(
            assignment=chosen,
            prices=_frozen(np.maximum(np.asarray(prices, float), 0)),
            objective=float(objective),
            bound=float(objective if bound is None else bound),
            status=status,
            solve_seconds=solve_seconds,
            value=value,
            rival=rival,
        )

    def widened(self, rows: Ints, jobs: int) -> Self:
        """Give a decision on some rows as one on all of so many jobs; the others get nothing."""
        position = np.full(jobs, -1)
        position[rows] = np.arange(len(rows))
        absent = position < 0
        assignment = None if self.assignment is None else np.where(absent, -1, self.assignment[position])
        shares = None if self.shares is None else np.where(absent[:, None], 0, self.shares[position])
        value = None if self.value is None else np.where(absent[:, None], 0, self.value[position])
        rival = None if self.rival is None else np.where(absent, -1, np.append(rows, -1)[self.rival][position])
        behind_h = None if self.behind_h is None else np.where(absent, 0, self.behind_h[position])
        keeps_s = None if self.keeps_s is None else np.where(absent, 0, self.keeps_s[position])
        kept_for = None if self.kept_for is None else np.append(rows, -1)[self.kept_for]
        pairs = None if self.pairs is None else Pairs(rows[self.pairs.rows], self.pairs.shares)
        return replace(
            self,
            assignment=assignment,
            shares=shares,
            value=value,
            rival=rival,
            behind_h=behind_h,
            keeps_s=keeps_s,
            kept_for=kept_for,
            pairs=pairs,
        )

    def in_place_of(self, failure: Exception) -> Self:
        """The same as a plain program's, which decided because the structured solver failed."""
        said = f"{str(failure).rstrip('.')}. The plain program decided instead."
        return replace(self, status=Status.FALLBACK, message=said)

    @property
    def gap(self) -> float:
        """Relative optimality gap; 0 is proven optimal."""
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-12)


def _frozen(array: Floats) -> Floats:
    array.setflags(write=False)
    return array
