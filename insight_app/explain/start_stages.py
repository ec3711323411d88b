"""Stages of an attempt's start, from its claim of GPUs to its first step, and their quantiles for a team.

Only moments that are recorded bound a stage. Code, setup, image, the start of the program and the reading of a
checkpoint lie between two of them, and are one stage.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import quantiles
from typing import NamedTuple

from jobs_app.models import Attempt, Team

WINDOW = timedelta(days=7)
MOST_ATTEMPTS = 2000
"""Of a team's window, the latest: enough for a 90 % quantile."""
CLAIM, LAUNCH, FIRST_STEP = "claim", "launch", "first step"
CAUSES = {
    CLAIM: "GPUs are claimed, and other jobs leave them",
    LAUNCH: "the engine starts the processes; on Slurm also its queue",
    FIRST_STEP: "code, setup, image, the program's start, after a restart its checkpoint, until it reports a step",
}


@dataclass(frozen=True)
class Stage:
    """A stage of a start; `ended`: whether it is over, or goes on."""

    name: str
    seconds: float
    ended: bool

    @property
    def cause(self) -> str:
        return CAUSES[self.name]

    @property
    def style(self) -> str:
        return f"stage-{self.name.replace(' ', '-')}"


@dataclass(frozen=True)
class StageBar:
    """A stage with its position on a bar, in per cent of the bar's width."""

    stage: Stage
    x: float
    width: float


@dataclass(frozen=True)
class StageQuantiles:
    """Median and 90 % quantile of a stage over a team's starts; `restart`: of attempts after a job's first."""

    stage: str
    restart: bool
    starts: int
    p50_s: float
    p90_s: float

    @property
    def cause(self) -> str:
        return CAUSES[self.stage]


class Moments(NamedTuple):
    """When an attempt was claimed, launched, started, and when it reported its first step; None: not yet, or never."""

    claimed_at: datetime
    launched_at: datetime | None
    started_at: datetime | None
    first_step_at: datetime | None


def moments_of(attempt: Attempt) -> Moments:
    return Moments(attempt.claimed_at, attempt.launched_at, attempt.started_at, attempt.first_step_at)


def stages_of(moments: Moments, until: datetime) -> list[Stage]:
    """The stages that have begun, the first first; the last goes on until `until` if its end is not recorded.

    An attempt that never reports a step, as a program that writes no progress, has the first two alone.
    """
    ends = ((CLAIM, moments.launched_at), (LAUNCH, moments.started_at), (FIRST_STEP, moments.first_step_at))
    stages: list[Stage] = []
    since = moments.claimed_at
    for name, end in ends:
        if name == FIRST_STEP and end is None:
            break
        stages.append(Stage(name, max(((end or until) - since).total_seconds(), 0.0), ended=end is not None))
        if end is None:
            break
        since = end
    return stages


def bars_of(stages: Sequence[Stage]) -> list[StageBar]:
    """The stages side by side on a bar."""
    whole = sum(stage.seconds for stage in stages) or 1.0
    bars, x = [], 0.0
    for stage in stages:
        width = 100 * stage.seconds / whole
        bars.append(StageBar(stage, round(x, 3), round(width, 3)))
        x += width
    return bars


def start_bars(attempt: Attempt, now: datetime) -> list[StageBar]:
    """Bars of an attempt's start."""
    return bars_of(stages_of(moments_of(attempt), attempt.ended_at or now))


def team_starts(team: Team, now: datetime) -> list[StageQuantiles]:
    """Quantiles of the stages of the team's starts that ended in the window; one query, of at most `MOST_ATTEMPTS`."""
    ended = Attempt.objects.filter(job__team=team, ended_at__gt=now - WINDOW, launched_at__isnull=False)
    rows = ended.order_by("-ended_at").values_list("number", *Moments._fields)[:MOST_ATTEMPTS]
    starts = [(number > 1, stages_of(Moments(*moments), now)) for number, *moments in rows]
    return [
        found for restart in (False, True) for name in CAUSES if (found := _quantiles(starts, name, restart=restart))
    ]


def _quantiles(starts: Iterable[tuple[bool, Sequence[Stage]]], name: str, *, restart: bool) -> StageQuantiles | None:
    seconds = [
        stage.seconds
        for again, stages in starts
        if again == restart
        for stage in stages
        if stage.name == name and stage.ended
    ]
    if not seconds:
        return None
    tenths = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else seconds * 9
    return StageQuantiles(name, restart, len(seconds), tenths[4], tenths[8])
