"""Tables and charts of the rounds pages: idle rounds folded, a strip of bars, waiting jobs by reason, prices. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import plotly.graph_objects as go

from insight_app.explain.round_changes import PricesOfRound
from jobs_app.models.job import Reason
from scheduler_app.models import Round
from web.pages.charts import Figure, line_of
from web.pages.price_chart import figure_of_prices

LEAST_FOLDED = 2
"""Idle rounds in a row from which they are folded."""
DEEDS = ("starts", "moves", "stops")


@dataclass(frozen=True)
class IdleRounds:
    """Consecutive rounds of one policy that changed nothing."""

    newest: Round
    oldest: Round
    count: int
    mean_s: float


class Segment(NamedTuple):
    """Part of a bar of the strip chart, in units of its view box, in which each round is one wide."""

    x: int
    y: float
    height: float
    style: str


@dataclass(frozen=True)
class JobRow:
    """Bars of each round from the oldest to the newest, 100 units high."""

    count: int
    longest_s: float
    most_deeds: int
    durations: list[Segment]
    deeds: list[Segment]


def is_idle(record: Round) -> bool:
    """Whether the round has nothing to show."""
    told = record.is_followed_by_an_error or record.fell_back or record.ran_into_limit
    return record.result == Round.Result.COMMITTED and not told and not _deeds(record)


def fold_idle(rounds: Iterable[Round]) -> list[Round | IdleRounds]:
    """The rounds, with consecutive ones that changed nothing merged."""
    folded: list[Round | IdleRounds] = []
    for (idle, _), group in groupby(rounds, key=lambda record: (is_idle(record), record.policy)):
        some = list(group)
        if idle and len(some) >= LEAST_FOLDED:
            folded.append(IdleRounds(some[0], some[-1], len(some), sum(map(_seconds, some)) / len(some)))
        else:
            folded += some
    return folded


def strip_of(rounds: Sequence[Round]) -> JobRow:
    """Duration, and starts, moves and stops of each of the rounds, which come newest first."""
    longest, most = max(map(_seconds, rounds), default=0.0), max(map(_deeds, rounds), default=0)
    durations, deeds = [], []
    for x, record in enumerate(reversed(rounds)):
        height = 100 * _seconds(record) / (longest or 1)
        durations.append(Segment(x, 100 - height, height, "failed" if record.result == "failed" else "duration"))
        deeds += _deed_segments(record, x, most)
    return JobRow(len(rounds), longest, most, durations, deeds)


def _deed_segments(record: Round, x: int, most: int) -> list[Segment]:
    segments, y = [], 100.0
    for name in DEEDS:
        height = 100 * getattr(record, name) / (most or 1)
        y -= height
        segments.append(Segment(x, y, height, name))
    return [segment for segment in segments if segment.height]


def _deeds(record: Round) -> int:
    return record.starts + record.moves + record.stops


def _seconds(record: Round) -> float:
    return float(sum(record.seconds.values()))


# -- of one round ------------------------------------------------------------------------------------------------


class WaitingGroup(NamedTuple):
    """Waiting jobs with the same headline reason."""

    title: str
    decisions: list[dict[str, Any]]

    @property
    def example(self) -> str:
        """The reason shared by all, or that of the first."""
        return next((reason["detail"] for reason in self.decisions[0]["reasons"]), "")

    @property
    def is_alike(self) -> bool:
        return len({str(decision["reasons"]) for decision in self.decisions}) == 1


def group_by_reason(decisions: Iterable[dict[str, Any]]) -> list[WaitingGroup]:
    """Waiting jobs by their headline reason, the largest group first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for decision in decisions:
        code = decision["reasons"][0]["code"] if decision["reasons"] else ""
        groups.setdefault(code, []).append(decision)
    labels: Mapping[str, str] = dict(Reason.choices)
    named = [WaitingGroup(str(labels.get(code, "no reason")), some) for code, some in groups.items()]
    return sorted(named, key=lambda group: -len(group.decisions))


def prices_figure(history: Sequence[PricesOfRound], numbers: Mapping[str, int]) -> Figure:
    """Shadow price of each GPU type by round, as steps; `numbers`: places of the types in the palette."""
    names = sorted({name for one in history for name in one.prices})
    traces = [
        go.Scatter(
            x=[one.number for one in history],
            y=[one.prices.get(name) for one in history],
            name=name.upper(),
            mode="lines+markers" if len(history) == 1 else "lines",
            line=line_of(numbers.get(name, len(numbers))) | {"shape": "hv"},
        )
        for name in names
    ]
    axis = {"title": {"text": "Round"}, "tickformat": "d", "dtick": max(1, len(history) // 6)}
    return figure_of_prices(traces, unit="Shadow price", axis=axis)
