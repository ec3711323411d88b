"""Gangs over servers: they start on all or none, and end together. One pass reads, decides and writes.

Ranks start when all servers have said that they are prepared. A rank that ends badly, or a server that is not heard,
ends the gang: the other ranks are stopped within the grace of the job, so that all have ended when the lease of the
silent server is over.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from time import monotonic
from typing import Literal, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q

from connections_app.agents.reports import told_report
from connections_app.agents.silence import is_heard, silent_s
from connections_app.models import OF_RANKS, Agent, AgentAttempt, EngineProbe
from engines.agent.codec import BadMessage
from engines.lease_file import GRACE_PART
from engines.protocol import AttemptReport, Phase, StopReason
from jobs_app.models import Attempt, Job

Cause = AgentAttempt.Cause
USUAL_GRACE_S = 30.0
"""Of a test of the engine, which has no job."""
Moment = Literal["given", "ready", "lost"]
first_known: dict[tuple[int, int, Moment], float] = {}
"""Attempt, rank and what became of it -> when this process found it so, by its monotonic clock: a step of the clock
neither withdraws gangs nor keeps their GPUs. A new process waits for the last server as long again."""


class Member(NamedTuple):
    """One rank of an attempt at servers."""

    rank: int
    server: str
    report: AttemptReport | None
    """As the server has told it; None: nothing yet."""
    delivered: bool
    """Whether the server may have the launch."""
    withdrawn: bool
    """Whether it was never given it, and will not be."""
    ready_s: float | None
    """For how long this process has known it to be ready, by a clock that nobody sets; None: it is not."""
    lost_s: float | None
    """The same of a rank that its server has lost; None: it has not."""
    silent_s: float
    """Seconds since its server was last heard, or since the rank was given to it if that was later."""
    is_heard: bool
    """Whether a message has come lately: a process that has just begun knows no silence."""

    @property
    def is_over(self) -> bool:
        return self.withdrawn or (self.report is not None and self.report.phase.is_over)

    @property
    def has_failed(self) -> bool:
        """Whether it ended other than with 0, or its server no longer knows it."""
        if self.report is None or self.withdrawn:
            return False
        return self.is_unprepared or (self.is_over and self.report.exit_code != 0)

    @property
    def is_unprepared(self) -> bool:
        """Whether its server has ended it, or does not know it."""
        return self.report is not None and self.report.phase in (Phase.LOST, Phase.UNKNOWN)


class Gang(NamedTuple):
    """An attempt at servers that nobody has told to stop."""

    members: Sequence[Member]
    has_begun: bool
    grace_s: float


class Terms(NamedTuple):
    """Limits of time."""

    lease_s: float
    ready_within_s: float
    """Between the first server that is ready and the last."""


class EndOfGang(NamedTuple):
    """The rank that ends a gang, and how."""

    rank: int
    cause: AgentAttempt.Cause
    note: str


class Go(NamedTuple):
    """All servers are ready."""


def next_step(gang: Gang, terms: Terms) -> Go | EndOfGang | None:
    """What the gang comes to now; None: nothing new. Pure."""
    is_one_of_several = len(gang.members) > 1
    failed = [one for one in gang.members if one.has_failed and is_one_of_several]
    waits = bool(failed) and not gang.has_begun and _may_tell_more(gang.members, failed, terms)
    if failed and not waits:
        return _end_by(failed, gang)
    most_s = terms.lease_s - min(gang.grace_s, GRACE_PART * terms.lease_s)
    silent = [one for one in gang.members if not one.is_over and one.silent_s >= most_s]
    if silent:
        longest = max(silent, key=lambda one: one.silent_s)
        return EndOfGang(
            longest.rank, Cause.SILENT, f"{longest.server} has not been heard for {longest.silent_s:.0f} s."
        )
    return None if gang.has_begun or waits else _start_of(gang.members, terms)


def _may_tell_more(members: Sequence[Member], failed: Sequence[Member], terms: Terms) -> bool:
    """Whether ranks that are still prepared may yet fail like these, or be ready: whose fault it is shows then."""
    since_s = [one.lost_s for one in failed if one.lost_s is not None]
    if len(since_s) < len(failed) or max(since_s) >= terms.ready_within_s:
        return False
    return any(one.ready_s is None and not (one.has_failed or one.is_over) for one in members)


def _end_by(failed: Sequence[Member], gang: Gang) -> EndOfGang:
    """End by a rank that failed; where its server alone could not even start it, the gang was not ready.

    Where several could not, and none could, it is the job: its archive cannot be unpacked anywhere. Which of several
    failed ranks ended it first is known when all have ended (see `gang_report`).
    """
    of_job = None if gang.has_begun else next((one for one in failed if not one.is_unprepared), None)
    member = of_job or failed[0]
    report = member.report
    nowhere = len(failed) > 1 and all(one.ready_s is None for one in gang.members)
    is_of_job = nowhere and all(one.report is not None and one.report.phase is Phase.LOST for one in failed)
    if member.is_unprepared and not gang.has_begun and not is_of_job:
        said = report.message if report is not None else ""
        return EndOfGang(member.rank, Cause.NOT_READY, f"{member.server} could not prepare its rank: {said}"[:500])
    if report is not None and report.phase is Phase.UNKNOWN:
        return EndOfGang(member.rank, Cause.SILENT, f"{member.server} no longer has the files of its rank.")
    return EndOfGang(member.rank, Cause.FAILED, "")


def _start_of(members: Sequence[Member], terms: Terms) -> Go | EndOfGang | None:
    """Go once all are ready and heard; after the limit the end, by one that has not fetched its rank if there is."""
    missing = [one for one in members if one.ready_s is None or not one.is_heard]
    if not missing:
        return Go()
    if max((one.ready_s for one in members if one.ready_s is not None), default=0.0) < terms.ready_within_s:
        return None
    late = min(missing, key=lambda one: (one.delivered, one.ready_s is not None, one.rank))
    limit_s = terms.ready_within_s
    return EndOfGang(
        late.rank, Cause.NOT_READY, f"{late.server} {_did(late)} {limit_s:.0f} s after the first was ready."
    )


def _did(late: Member) -> str:
    if not late.delivered:
        return "had not fetched its rank"
    return "was still preparing its rank" if late.ready_s is None else "was ready, and not heard any more"


def gangs_to_advance() -> dict[int, Gang]:
    """The attempts at servers that have not ended and that nobody has told to stop, by number."""
    live = Attempt.objects.with_processes().values("pk")
    probes = EngineProbe.objects.filter(ended_at=None).annotate(attempt_number=-F("pk")).values("attempt_number")
    of_these = Q(attempt__in=live) | Q(attempt__in=probes)
    rows = AgentAttempt.objects.filter(of_these, agent__site=True).select_related("agent").only(*OF_RANKS)
    known = list(rows.order_by("attempt", "rank"))
    told = {row.pk: _told_of(row) for row in known}
    _note_times(known, told)
    grace = dict(Job.objects.filter(pk__in={row.job for row in known}).values_list("pk", "grace_s"))
    of_attempt = {attempt: list(found) for attempt, found in groupby(known, key=lambda row: row.attempt)}
    return {
        attempt: _gang_of(found, told, grace)
        for attempt, found in of_attempt.items()
        if not any(row.cause or row.stop_reason for row in found)
    }


def _note_times(rows: Sequence[AgentAttempt], told: Mapping[int, AttemptReport | None]) -> None:
    """Note when this process found each rank given, ready or lost, and forget those that are not (any more)."""
    found = {(row.attempt, row.rank, moment): monotonic() for row in rows for moment in _moments(row, told[row.pk])}
    known = {place: first_known[place] for place in found if place in first_known}
    first_known.clear()
    first_known.update(found | known)


def _moments(row: AgentAttempt, report: AttemptReport | None) -> Iterator[Moment]:
    yield "given"
    if row.ready_at is not None:
        yield "ready"
    if _is_lost(report):
        yield "lost"


def _is_lost(report: AttemptReport | None) -> bool:
    return report is not None and report.phase is Phase.LOST


def _known_s(row: AgentAttempt, moment: Moment) -> float | None:
    since = first_known.get((row.attempt, row.rank, moment))
    return None if since is None else monotonic() - since


def _gang_of(rows: Sequence[AgentAttempt], told: Mapping[int, AttemptReport | None], grace: Mapping[UUID, int]) -> Gang:
    return Gang(
        [_member_of(row, told[row.pk]) for row in rows],
        has_begun=rows[0].ranks == 1 or any(row.go_at for row in rows),
        grace_s=grace.get(rows[0].job, USUAL_GRACE_S),
    )


def _member_of(row: AgentAttempt, report: AttemptReport | None) -> Member:
    return Member(
        row.rank,
        row.agent.name,
        report,
        delivered=row.delivered_at is not None,
        withdrawn=row.forgotten and row.delivered_at is None,
        ready_s=_known_s(row, "ready"),
        lost_s=_known_s(row, "lost"),
        silent_s=min(silent_s(row.agent), _known_s(row, "given") or 0.0),
        is_heard=is_heard(row.agent),
    )


def _told_of(row: AgentAttempt) -> AttemptReport | None:
    """The stored report. One that cannot be read, as of another release, is none: a server that is heard repeats it."""
    if row.report is None:
        return None
    with suppress(BadMessage):
        return told_report(row.report)
    return None


def steps_of(gangs: Mapping[int, Gang]) -> dict[int, Go | EndOfGang]:
    """The gangs for which there is something new."""
    terms = Terms(settings.MOTLEY_AGENT_LEASE_S, settings.MOTLEY_GANG_READY_S)
    steps = {attempt: next_step(gang, terms) for attempt, gang in gangs.items()}
    return {attempt: step for attempt, step in steps.items() if step is not None}


def take_step(attempt: int, step: Go | EndOfGang, *, grace_s: float, now: datetime) -> None:
    """Write what the gang comes to; its rows are locked in the order of ranks. Called in a transaction.

    An agent that is written to is locked before, as where its messages are stored: otherwise there is a deadlock.
    """
    if not isinstance(step, Go) and step.cause == Cause.NOT_READY:
        list(Agent.objects.select_for_update(of=("self",)).filter(attempts__attempt=attempt, attempts__rank=step.rank))
    rows = list(AgentAttempt.objects.select_for_update().filter(attempt=attempt).order_by("rank"))
    if any(row.stop_reason or row.cause for row in rows):
        return
    if isinstance(step, Go):
        AgentAttempt.objects.filter(attempt=attempt, go_at=None).update(go_at=now)
        return
    for row in rows:
        if row.rank == step.rank:
            row.cause, row.cause_note = step.cause, step.note
        stop_row(row, reason=StopReason.PREEMPT, grace_s=grace_s)
    AgentAttempt.objects.bulk_update(rows, ["cause", "cause_note", *STOP_COLUMNS])
    if step.cause == Cause.NOT_READY:
        late = next(row.agent_id for row in rows if row.rank == step.rank)
        Agent.objects.filter(pk=late).update(fault=step.note, fault_at=now)


STOP_COLUMNS = ("stop_reason", "stop_grace_s", "launch", "forgotten")


def stop_row(row: AgentAttempt, *, reason: StopReason, grace_s: float) -> None:
    """Note the stop in memory; a launch not yet fetched is withdrawn. A repeat may shorten the grace period."""
    row.stop_grace_s = min(row.stop_grace_s, grace_s) if row.stop_reason else grace_s
    row.stop_reason = row.stop_reason or reason
    if row.delivered_at is None:
        row.launch, row.forgotten = "", True
