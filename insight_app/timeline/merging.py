"""Level of detail of a timeline: spans too short to be seen are merged into blocks with a density. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MOST_BLOCKS = 12_000
"""Bars that a browser draws in about a second."""
COARSER = 2.0


class Block(NamedTuple):
    """One bar on `rows` adjacent rows: a run, or several short ones that fill a fraction of its time.

    `group` is what is drawn in one colour.
    """

    row: float
    rows: int
    group: str
    start_s: float
    end_s: float
    run: int | None
    """The run, if it is of one."""
    runs: int = 1
    density: float = 1.0


def merge_spans(spans: Sequence[Block], bin_s: float, most: int = MOST_BLOCKS) -> list[Block]:
    """Blocks of the spans: those shorter than a bin are merged; where these are too many, so are longer ones.

    Spans of different rows or groups are not merged: there is a block for each at least.
    """
    whole_s = max((span.end_s for span in spans), default=0.0) - min((span.start_s for span in spans), default=0.0)
    while len(blocks := list(_merged(spans, bin_s))) > most and bin_s <= whole_s:
        bin_s *= COARSER
    return blocks


def _merged(spans: Sequence[Block], bin_s: float) -> Iterator[Block]:
    short: dict[tuple[float, int, str], list[Block]] = defaultdict(list)
    for span in spans:
        if span.end_s - span.start_s >= bin_s:
            yield span
        else:
            short[span.row, span.rows, span.group].append(span)
    for alike in short.values():
        for near in _runs_of_near(alike, bin_s):
            yield _block_of(near, bin_s)


def _runs_of_near(spans: Iterable[Block], bin_s: float) -> Iterator[list[Block]]:
    """Split the spans where more than a bin lies between two of them."""
    near: list[Block] = []
    for span in sorted(spans, key=lambda one: one.start_s):
        if near and span.start_s - near[-1].end_s > bin_s:
            yield near
            near = []
        near.append(span)
    yield near


def _block_of(near: Sequence[Block], bin_s: float) -> Block:
    """One block over these spans, a bin wide at least, so that it is seen."""
    first, end_s = near[0], max(span.end_s for span in near)
    end_s = max(end_s, first.start_s + bin_s)
    density = min(sum(span.end_s - span.start_s for span in near) / (end_s - first.start_s), 1.0)
    one_run = first.run if len(near) == 1 else None
    return Block(first.row, first.rows, first.group, first.start_s, end_s, one_run, len(near), density)
