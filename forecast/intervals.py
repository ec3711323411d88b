"""Intervals of start and end over many futures."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Self

import numpy as np

from estimation.types import Floats, Ints
from forecast.deadlines import in_time
from forecast.draws import Unknowns, draw_futures
from forecast.future import HORIZON_S, OutOfTime, Played, play
from forecast.present import Present, Rounds

QUANTILES = (0.1, 0.5, 0.9)
DRAWS = 32
LEAST_DRAWS = 8
"""Futures that are played beyond the time budget, as long as `MOST_BUDGETS` of it are not spent."""
MOST_BUDGETS = 4


@dataclass(frozen=True, eq=False)
class Intervals:
    """Quantiles (m, 3), 10, 50 and 90 %, of start and finish of m jobs, in seconds from now; inf: beyond the horizon.

    gpu_type (m,) is the type that it holds or on which most futures start it, and type_part (m,) their part of all; -1:
    it starts in none. place (m,) is its place among waiting jobs by median start, from 1; 0: it runs. in_time (m,) is
    the probability that it is done by its deadline; nan: it has none, or one that is past or too far ahead.
    """

    start_s: Floats
    finish_s: Floats
    gpu_type: Ints
    type_part: Floats
    place: Ints
    in_time: Floats
    draws: int

    @classmethod
    def over(cls, futures: Sequence[Played], types: int, deadline_s: Floats) -> Self:
        """The intervals over these futures of jobs with these deadlines (m,); inf: without one."""
        start_s, finish_s = (_quantiles([getattr(f, name) for f in futures]) for name in ("start_s", "finish_s"))
        on_type = np.stack([(f.gpu_type[:, None] == np.arange(types)) for f in futures]).mean(axis=0)
        best = on_type.argmax(axis=1)
        part = on_type[np.arange(len(best)), best]
        place = _places(np.stack([f.start_s for f in futures]))
        met = in_time(futures, deadline_s)
        return cls(start_s, finish_s, np.where(part > 0, best, -1), part, place, met, len(futures))


def forecast(
    present: Present,
    unknowns: Unknowns,
    rounds: Rounds,
    *,
    draws: int = DRAWS,
    budget_s: float = np.inf,
    horizon_s: float = HORIZON_S,
    seed: int = 0,
    watched: Sequence[int] = (),
) -> Intervals:
    """Forecast start and finish of the jobs that are there: so many futures, fewer when the time budget is spent.

    Where rows are watched, each future ends with the last of them, and what is said of other rows means nothing.

    Raises
    ------
    OutOfTime
        No future was played to its end within `MOST_BUDGETS` budgets.
    """
    began, futures = monotonic(), list[Played]()
    for draw in draw_futures(present, unknowns, draws=draws, until_s=horizon_s, seed=seed):
        with suppress(OutOfTime):  # it counts for nothing: what became of its jobs is not known
            deadline = began + MOST_BUDGETS * budget_s
            futures.append(play(present, draw, rounds, horizon_s=horizon_s, deadline=deadline, watched=watched))
        spent_s = monotonic() - began
        if spent_s > budget_s and (len(futures) >= LEAST_DRAWS or spent_s > MOST_BUDGETS * budget_s):
            break
    if not futures:
        raise OutOfTime(f"no future of {present.jobs:,} jobs was played to its end in {MOST_BUDGETS * budget_s:.0f} s")
    return Intervals.over(futures, len(present.problem.capacity), present.problem.deadline_s[: present.jobs])


def _quantiles(columns: Sequence[Floats]) -> Floats:
    """Quantiles (m, 3) over the futures, each of them one that was played: some are infinite."""
    found: Floats = np.quantile(np.stack(columns), QUANTILES, axis=0, method="inverted_cdf").T
    return found


def _places(start_s: Floats) -> Ints:
    """Place (m,) of each waiting job by its median start, then by its mean one, so that few jobs have the same."""
    waits = np.asarray((start_s > 0).all(axis=0))
    finite = np.where(np.isfinite(start_s), start_s, HORIZON_S)
    order = np.lexsort((finite.mean(axis=0), np.median(finite, axis=0)))
    place = np.zeros(start_s.shape[1], dtype=np.int64)
    queue = order[waits[order]]
    place[queue] = np.arange(1, len(queue) + 1)
    return place
