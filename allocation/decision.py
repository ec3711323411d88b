"""What a policy answers."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from allocation.arrays import Floats, Ints
from allocation.pairs import Pairs
from allocation.solve import Status

DUST = 1e-7  # shares below HiGHS's feasibility tolerance are rounding, not an answer


@dataclass(frozen=True, eq=False, kw_only=True)
class Decision:
    """One round decided: shares (m, K) of time, or picks (m,), a configuration or -1; never both.

    prices (n,) are the gain in the objective per GPU of each type; bound is the best value that any answer could have;
    worth (m, K), of a policy that picks by value, is what the objective gains from each configuration, in the unit of
    the prices; rival (m,), of a queue, is for each row left the last that was served before it, or that stops the
    queue, -1: none; message is what went wrong, if a stand-in answered. pairs, of a policy that lets two jobs share
    GPUs, is the time that they spend so, and shares that which they spend alone.
    """

    shares: Floats | None = None
    picks: Ints | None = None
    prices: Floats
    objective: float
    bound: float
    status: Status
    solve_seconds: float
    worth: Floats | None = None
    rival: Ints | None = None
    message: str = ""
    pairs: Pairs | None = None

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
    def of_picks(
        cls,
        picks: npt.ArrayLike,
        *,
        prices: npt.ArrayLike,
        objective: float = 0.0,
        bound: float | None = None,
        status: Status = Status.RULE,
        solve_seconds: float = 0.0,
        worth: Floats | None = None,
        rival: Ints | None = None,
    ) -> Self:
        """Give a decision of one configuration per job, -1 for none."""
        chosen = np.array(picks, dtype=np.int64)
        chosen.setflags(write=False)
        return cls(
            picks=chosen,
            prices=_frozen(np.maximum(np.asarray(prices, float), 0)),
            objective=float(objective),
            bound=float(objective if bound is None else bound),
            status=status,
            solve_seconds=solve_seconds,
            worth=worth,
            rival=rival,
        )

    def widened(self, rows: Ints, jobs: int) -> Self:
        """Give a decision on some rows as one on all of so many jobs; the others get nothing."""
        position = np.full(jobs, -1)
        position[rows] = np.arange(len(rows))
        absent = position < 0
        picks = None if self.picks is None else np.where(absent, -1, self.picks[position])
        shares = None if self.shares is None else np.where(absent[:, None], 0, self.shares[position])
        worth = None if self.worth is None else np.where(absent[:, None], 0, self.worth[position])
        rival = None if self.rival is None else np.where(absent, -1, np.append(rows, -1)[self.rival][position])
        pairs = None if self.pairs is None else Pairs(rows[self.pairs.rows], self.pairs.shares)
        return replace(self, picks=picks, shares=shares, worth=worth, rival=rival, pairs=pairs)

    @property
    def gap(self) -> float:
        """How far the objective may be from the best, relative to it; 0 is proven optimal."""
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-12)


def _frozen(array: Floats) -> Floats:
    array.setflags(write=False)
    return array
