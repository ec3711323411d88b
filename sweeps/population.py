"""Population-based training (PBT): whose place a copy of a better member takes, and with which hyperparameters.

Jaderberg et al., *Population Based Training of Neural Networks*, 2017. At each mark, every `interval` steps, the
members are compared. One of the lowest quarter ends, and a copy of a random one of the best quarter takes its place:
with the weights of that one (exploit), and with hyperparameters near its own (explore). The best quarter is one of
those whose weights can be copied.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

from sweeps.space import ROUNDING, Params, Range, Space, Value
from sweeps.successive_halving import FAILED
from sweeps.suggestion import Method, suggest

QUARTER = 4
DRAWN_ANEW = 0.25
"""Probability with which a number is drawn from its whole range, as in the paper."""
FACTORS = (0.8, 1.2)
"""By one of which a number is multiplied otherwise."""
DIGITS = 12
"""Of a product: 0.1 x 1.2 is written as 0.12."""


class Member(NamedTuple):
    """A member at the mark that is decided; of scores the lower is better."""

    number: int
    score: float
    params: Params
    can_give: bool = True
    """Whether its weights can be copied: its job has not ended."""
    can_end: bool = True
    """Whether another may take its place: it trains, or has failed."""


class Replacement(NamedTuple):
    """The member `replaced` ends; a copy of `source` begins with these hyperparameters."""

    replaced: int
    source: int
    params: Params


def marks(interval: int, most: int) -> tuple[int, ...]:
    """Steps at which members are compared: each interval before the end."""
    return tuple(range(interval, most, interval))


def most_trials(size: int, interval: int, most: int) -> int:
    """The members, and all that can take their places."""
    return size + quarter(size) * len(marks(interval, most))


def replacements(
    members: Sequence[Member], space: Space, kept: Collection[str], seed: int, generation: int
) -> list[Replacement]:
    """Who is replaced at this mark, the worst first; the same members and seed give the same answer.

    `kept`: hyperparameters that stay as they were with the weights.
    """
    ranked = sorted(members, key=lambda member: (member.score, member.number))
    many = quarter(len(ranked))
    best = [member for member in ranked[:-many] if member.can_give and member.score < FAILED][:many]
    if not best:
        return []
    made = []
    for worst in reversed(ranked[-many:]):
        draw = np.random.default_rng((seed, generation, worst.number))
        source = best[int(draw.integers(len(best)))]
        if worst.can_end and source.score < worst.score:
            made.append(Replacement(worst.number, source.number, explored(source.params, space, kept, draw)))
    return made


def explored(params: Params, space: Space, kept: Collection[str], draw: np.random.Generator) -> Params:
    """Hyperparameters near these: numbers times 0.8 or 1.2, some drawn anew, as choices are."""
    fresh = suggest(Method.RANDOM, space, crc32(draw.bytes(8)), [])
    return {
        name: params[name] if name in kept else _near(params[name], parameter, fresh[name], draw)
        for name, parameter in space.items()
        if name in params
    }


def _near(value: Value, parameter: object, fresh: Value, draw: np.random.Generator) -> Value:
    is_drawn_anew, factor = draw.random() < DRAWN_ANEW, FACTORS[int(draw.integers(len(FACTORS)))]
    if not isinstance(parameter, Range) or isinstance(value, str) or value is None or is_drawn_anew:
        return fresh
    return _within(parameter, float(value), factor)


def _within(parameter: Range, value: float, factor: float) -> Value:
    """The product, no less than the least and no more than the most; of steps at least one in that direction."""
    step = parameter.step or (1 if parameter.is_integer else None)
    product = float(f"{value * factor:.{DIGITS}g}")
    if step is None:
        return min(max(product, parameter.least), parameter.most)
    places = round((value - parameter.least) / step)
    towards = 1 if product > value else -1
    moved = max(1, abs(round((product - value) / step))) * towards if product != value else 0
    last = int((parameter.most - parameter.least) / step + ROUNDING)
    found = parameter.least + min(max(places + moved, 0), last) * step
    return int(found) if parameter.is_integer else float(f"{found:.{DIGITS}g}")


def quarter(members: int) -> int:
    """At most so many are replaced at a mark."""
    return max(1, members // QUARTER)
