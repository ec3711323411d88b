"""Draws of what is not known: how much of each job is left, how fast it is, which jobs arrive, which nodes are lost.

Lengths are those of other jobs that took longer than this one has run (`estimation.duration_curves`), or, where these
are few, log-normal estimates (`estimation.estimate`) given that it has run for so long; speeds are log-normal
around the rates that policies are told. Jobs arrive as they did: each coming hour repeats the submissions of a past
hour of about the same time of day, so that days, teams and bursts stay as they were. How busy the coming days are on
the whole is not known from a few past ones: each future has a history of its own, of hours drawn from that which was.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from estimation.duration_curves import DurationLeft
from estimation.estimate import Estimate
from estimation.node_lifetimes import NodeLifetime
from estimation.scaling import Source
from estimation.types import Floats, Ints
from forecast.outages import draw_outages
from forecast.present import Draw, Present

HOUR_S = 3600.0
HOURS_OF_DAY = 24
ALIKE = 12
"""Past hours, those next to it in time of day, of which a coming hour repeats one."""
LEAST_HOURS = 3
"""Of history; before, nothing arrives."""
MOST_ARRIVALS = 20_000
"""In one future, the first ones: of a cluster with so many submissions the first hours count."""
NOTHING_KNOWN = Estimate(HOUR_S, 1.5, Source.COMPLETED, 0)
"""Duration of a job of which nothing is known: nine of ten are between 2 min and 4 h."""
LEAST_P = 1e-6
LEAST_STEPS = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class Unknowns:
    """What is not known of the rows of a present, and how far.

    Parameters
    ----------
    left
        Steps (M,) that are left of each row where they are known; nan: they are drawn.
    duration
        Of each row (M), its duration in seconds on its smallest gang of average GPUs; None: nothing is known.
    left_by_others
        Of each row (M), what is left of its duration by those of other jobs; None, and empty: `duration` says it.
    done_s
        Seconds (M,) that such a gang would have taken for what the row has done, or the job of which it is a sample.
    rate_spread
        Standard deviation (M,) of the logarithm of the true rate over the one that is told.
    begin_s
        Seconds (m,) until each job that is there may start: its begin time.
    submitted_s
        Seconds (g,) from now to the submission of each sample of arrivals, all negative; the rows after the first m.
    known_s
        Seconds before now since which all submissions are among the samples.
    history_s
        Seconds since the first submission of all.
    not_before_s
        Seconds (M,) before which no row of its kind starts, arrivals included; empty: nothing of that kind.
    lifetimes
        Of each node (N) of the inventory; empty: no node is lost.
    up_from_s
        Seconds (N,) until each node is up, of those that sleep or are being woken; 0: it is up. Empty: all are.
    """

    left: Floats
    duration: Sequence[Estimate | None]
    done_s: Floats
    rate_spread: Floats
    begin_s: Floats
    submitted_s: Floats
    known_s: float
    history_s: float
    not_before_s: Floats = field(default_factory=lambda: np.zeros(0))
    lifetimes: Sequence[NodeLifetime] = ()
    left_by_others: Sequence[DurationLeft | None] = ()
    up_from_s: Floats = field(default_factory=lambda: np.zeros(0))


def draw_futures(present: Present, unknowns: Unknowns, *, draws: int, until_s: float, seed: int) -> Iterator[Draw]:
    """Draw futures: what is left of each job, how fast it is, which jobs arrive and which nodes are lost until then.

    Of a job that is there, each of as many parts of equal probability is drawn once: quantiles settle with few draws.
    """
    from scipy.special import ndtri  # takes longer to load than all else here

    chance, m = np.random.default_rng(seed), present.jobs
    of_nodes = np.random.default_rng([seed, 1])  # of its own: with and without losses the rest is drawn alike
    lengths, speeds = (stratified(chance, draws, m) for _ in range(2))
    for length, speed in zip(lengths, speeds, strict=True):
        sample, arrival_s = arrivals(
            unknowns.submitted_s, until_s, chance, known_s=unknowns.known_s, history_s=unknowns.history_s
        )
        rows = np.concatenate([np.arange(m), m + sample])
        p, q = (
            np.concatenate([column, chance.uniform(LEAST_P, 1 - LEAST_P, len(sample))]) for column in (length, speed)
        )
        faster = np.exp(unknowns.rate_spread[rows] * ndtri(q))
        outages = draw_outages(unknowns.lifetimes, until_s, of_nodes, up_from_s=unknowns.up_from_s.tolist())
        came_s = np.concatenate([unknowns.begin_s, arrival_s])
        if unknowns.not_before_s.size:
            came_s = np.maximum(came_s, unknowns.not_before_s[rows])
        yield Draw(rows, came_s, _left(present, unknowns, rows, p), faster, outages)


def stratified(chance: np.random.Generator, draws: int, columns: int) -> Floats:
    """Probabilities (draws, columns), each column one from each of as many equal parts, in an order of its own."""
    part = chance.permuted(np.tile(np.arange(draws), (columns, 1)), axis=1).T
    p: Floats = (part + chance.uniform(LEAST_P, 1 - LEAST_P, part.shape)) / draws
    return p


def _left(present: Present, unknowns: Unknowns, rows: Ints, p: Floats) -> Floats:
    """Steps (L,) that are left of these rows: those that are known, or the quantiles p of their durations.

    A job that has run for long and goes on is long as a sample, too, which begins anew.
    """
    left = unknowns.left[rows]
    for at in np.flatnonzero(np.isnan(left)).tolist():
        row = int(rows[at])
        done_s = float(unknowns.done_s[row])
        by_others = unknowns.left_by_others[row] if unknowns.left_by_others else None
        of_duration = unknowns.duration[row] or NOTHING_KNOWN
        left_s = by_others.quantile(float(p[at])) if by_others else of_duration.quantile_left(float(p[at]), done_s)
        again_s = done_s if row >= present.jobs else 0.0
        left[at] = (again_s + left_s) * present.problem.base_rate[row]
    return np.maximum(left, LEAST_STEPS)


def arrivals(
    submitted_s: Floats, until_s: float, chance: np.random.Generator, *, known_s: float, history_s: float
) -> tuple[Ints, Floats]:
    """Samples that arrive and when, the first `MOST_ARRIVALS`: each coming hour repeats a past hour of its time of day.

    Where samples go back for less than three hours, they come again and again as they came. Before three hours of
    history nothing arrives: the burst with which a cluster begins would come again every hour.
    """
    if not submitted_s.size or np.ceil(history_s / HOUR_S) < LEAST_HOURS:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    past_hours = int(known_s // HOUR_S)
    if past_hours < LEAST_HOURS:
        sample, when_s = _all_again(submitted_s, until_s, max(known_s, 1.0))
    else:
        hour_of = (-submitted_s / HOUR_S).astype(np.int64)  # 0: the hour before now
        drawn = chance.integers(past_hours, size=past_hours)  # the history of this future
        coming = [_alike(hour, drawn, chance) for hour in range(int(np.ceil(until_s / HOUR_S)))]
        picked = [(np.flatnonzero(hour_of == past), (hour + past + 1) * HOUR_S) for hour, past in enumerate(coming)]
        sample = np.concatenate([jobs for jobs, _ in picked])
        when_s = np.concatenate([submitted_s[jobs] + shift_s for jobs, shift_s in picked])
    order = np.argsort(when_s, kind="stable")[:MOST_ARRIVALS]
    return sample[order], when_s[order]


def _all_again(submitted_s: Floats, until_s: float, known_s: float) -> tuple[Ints, Floats]:
    """All samples, as they came in the last `known_s` seconds, again and again until then."""
    of_these = np.flatnonzero(submitted_s >= -known_s)
    times = min(np.ceil(until_s / known_s), np.ceil(MOST_ARRIVALS / max(of_these.size, 1)))
    turn = np.repeat(np.arange(1, int(times) + 1), of_these.size)
    sample = np.tile(of_these, int(times))
    return sample, submitted_s[sample] + turn * known_s


def _alike(hour: int, past: Ints, chance: np.random.Generator) -> int:
    """One of these past hours, counted back from now, that is like the coming hour of this number."""
    apart = (hour + past + 1) % HOURS_OF_DAY
    nearest = np.argsort(np.minimum(apart, HOURS_OF_DAY - apart), kind="stable")[:ALIKE]
    return int(past[chance.choice(nearest)])
