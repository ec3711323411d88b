"""Stages of an attempt's start, from its claim of GPUs to its first step, and their quantiles for a team.

Only what is recorded bounds a stage: two moments, or the seconds that a part of a start took by a clock that nobody
sets. What an engine or a program does not tell stays one stage, and no stage is negative, whatever clocks say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import quantiles
from typing import NamedTuple

from jobs_app.models import Attempt, Team

WINDOW = timedelta(days=7)
MOST_ATTEMPTS = 2000
"""Of a team's window, the latest: enough for a 90 % quantile."""
CLAIM, LAUNCH, CODE, SETUP = "claim", "launch", "code", "setup"
PROGRAM, RESTORE, WARM_UP, FIRST_STEP = "program", "restore", "warm-up", "first step"
CAUSES = {
    CLAIM: "GPUs are claimed, and other jobs leave them",
    LAUNCH: "the engine starts the processes; on Slurm also its queue, of a gang on several servers also its setup",
    CODE: "code and checkpoints are fetched, where the engine does that, and unpacked",
    SETUP: "the environment is made, or waited for",
    PROGRAM: "image, imports and whatever else the program does before it reads its checkpoint",
    RESTORE: "the program reads its checkpoint",
    WARM_UP: "from there until it reports a step",
    FIRST_STEP: "of a program that tells of no restore: from its start, with its image, until it reports a step",
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
    """When an attempt was claimed, launched, started, and when it reported its first step; None: not yet, or never.

    With the parts in between that were measured, in seconds; None: not measured, or there was none.
    """

    claimed_at: datetime
    launched_at: datetime | None
    started_at: datetime | None
    first_step_at: datetime | None
    code_s: float | None = None
    setup_s: float | None = None
    restore_s: float | None = None
    restored_at: datetime | None = None


def moments_of(attempt: Attempt) -> Moments:
    return Moments(*(getattr(attempt, name) for name in Moments._fields))


def stages_of(moments: Moments, until: datetime) -> list[Stage]:
    """The stages that have begun, the first first; the last goes on until `until` if its end is not recorded.

    An attempt that never reports a step, as a program that writes no progress, has those alone that its engine tells.
    """
    if moments.launched_at is None:
        return [Stage(CLAIM, _between(moments.claimed_at, until), ended=False)]
    claim = Stage(CLAIM, _between(moments.claimed_at, moments.launched_at), ended=True)
    if moments.started_at is None:
        return [claim, Stage(LAUNCH, _between(moments.launched_at, until), ended=False)]
    launched_s = _between(moments.launched_at, moments.started_at)
    code_s = min(moments.code_s or 0.0, launched_s)
    return [claim, *_ended({LAUNCH: launched_s - code_s, CODE: moments.code_s and code_s}), *_of_processes(moments)]


def _of_processes(moments: Moments) -> list[Stage]:
    """The stages after the start of its processes; what lies after the setup is known once a step was reported."""
    if moments.started_at is None or moments.first_step_at is None:
        return _ended({SETUP: moments.setup_s})
    whole_s = _between(moments.started_at, moments.first_step_at)
    setup_s = min(moments.setup_s or 0.0, whole_s)
    parts = _of_program(moments, moments.first_step_at, whole_s - setup_s)
    return _ended({SETUP: moments.setup_s and setup_s, **parts})


def _of_program(moments: Moments, first_step_at: datetime, whole_s: float) -> dict[str, float | None]:
    """The parts of the program's own start, the last first to be given: it and the restore are by one clock."""
    if moments.restored_at is None or moments.restore_s is None:
        return {FIRST_STEP: whole_s}
    warm_up_s = min(_between(moments.restored_at, first_step_at), whole_s)
    restore_s = min(max(moments.restore_s, 0.0), whole_s - warm_up_s)
    return {PROGRAM: whole_s - warm_up_s - restore_s, RESTORE: restore_s, WARM_UP: warm_up_s}


def _ended(lengths: Mapping[str, float | None]) -> list[Stage]:
    """Stages of these lengths, without those of which none was measured."""
    return [Stage(name, seconds, ended=True) for name, seconds in lengths.items() if seconds is not None]


def _between(since: datetime, until: datetime) -> float:
    """Seconds between the two; 0 where the clock of another machine has them in another order."""
    return max((until - since).total_seconds(), 0.0)


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
