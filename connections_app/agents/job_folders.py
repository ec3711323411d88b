"""Folders of jobs that servers keep when the jobs have ended there: read by people, counted and discarded by retention.

Their agents tell them again and again, so that a server which was away is told later what is to go.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from django.db.models import Max, Q

from connections_app.agents.sessions import attempts_asked_for
from connections_app.models import Agent, AgentAttempt
from engines.agent.messages import Sync
from engines.job_files import MOST_BYTES
from jobs_app.models import Attempt, Job

log = logging.getLogger(__name__)


def attempts_to_keep(agent: Agent, over: Sequence[AgentAttempt]) -> list[int]:
    """Of these attempts, which are over, those whose job's folder the server keeps.

    So it is for rank 0 of the attempt with which the job has ended. That of another rank nobody can read, and a job
    that goes on has its files where it goes on.
    """
    of_first = {row.attempt: row.job for row in over if agent.site and row.rank == 0 and row.attempt > 0}
    if not of_first:
        return []
    ended = Job.objects.filter(pk__in=of_first.values(), finished_at__isnull=False, files_deleted_at=None)
    latest = Attempt.objects.filter(job__in=ended.values("pk"), launched_at__isnull=False).order_by()
    return [
        pk for pk in latest.values("job").annotate(latest=Max("pk")).values_list("latest", flat=True) if pk in of_first
    ]


def kept_before(agent: Agent, over: Sequence[int]) -> list[int]:
    """Of these attempts those of which an answer that may have been lost said that their job's folder is kept."""
    return [*agent.attempts.filter(attempt__in=over, kept=True).values_list("attempt", flat=True)] if over else []


def kept_rows_asked_for(agent: Agent) -> list[AgentAttempt]:
    """Attempts that are over, of whose jobs somebody waits for files that this server keeps."""
    asked = attempts_asked_for() if agent.site else []
    return list(agent.attempts.filter(attempt__in=asked, kept=True)) if asked else []


def follow_folders(agent: Agent, message: Sync) -> list[str]:
    """Note the sizes of folders that the agent has without an attempt; the jobs whose folders it is to remove."""
    told = message.kept
    jobs = {one: job for one in told if (job := _uuid_of(one)) is not None}
    if agent.site and message.kept_after is not None:
        _note_missing(agent, message, jobs.values())
    if not jobs:
        return []
    rows = list(agent.attempts.filter(Q(forgotten=False) | Q(kept=True), job__in=jobs.values()))
    _store_sizes([row for row in rows if row.kept and not row.kept_bytes], told)
    here = {row.job for row in rows}
    return [one for one, job in jobs.items() if job not in here]


def _note_missing(agent: Agent, message: Sync, there: Collection[UUID]) -> None:
    """Note that folders which the message does not name, and would if they were there, have nothing.

    They stay kept: a folder that is there again, as of a disk that was mounted late, is not removed for that.
    A job with an attempt on the server has its folder, which is not told.
    """
    unmeasured = agent.attempts.filter(kept=True, kept_bytes=None).exclude(job__in=there)
    if message.kept_after and (after := _uuid_of(message.kept_after)) is not None:
        unmeasured = unmeasured.filter(job__gt=after)
    if not message.kept_to_the_end:
        unmeasured = unmeasured.filter(job__lt=max(there)) if there else unmeasured.none()
    here = agent.attempts.filter(forgotten=False).values("job")
    held = agent.attempts.filter(attempt__in=[one.report.attempt for one in message.attempts]).values("job")
    unmeasured.exclude(job__in=here).exclude(job__in=held).update(kept_bytes=0)


def _store_sizes(rows: Collection[AgentAttempt], told: Mapping[str, int]) -> None:
    known = [row for row in rows if told[str(row.job)] >= 0]
    for row in known:
        row.kept_bytes = _possible(row, told[str(row.job)])
    AgentAttempt.objects.bulk_update(known, ["kept_bytes"])


def _possible(row: AgentAttempt, told: int) -> int:
    """The size, capped at the largest that a folder may have: sums over a team must fit into their columns."""
    if told > MOST_BYTES:
        log.warning("%s tells %d bytes of the job %s: no folder has so many", row.agent, told, row.job)
    return min(told, MOST_BYTES)


def _uuid_of(text: str) -> UUID | None:
    """The job of a folder's name, as the agent's engine writes it."""
    try:
        return job if str(job := UUID(text)) == text else None
    except ValueError:
        return None


def kept_sizes(jobs: Collection[str]) -> dict[str, int | None]:
    """Bytes of the folders that servers keep of these jobs; None of one that has yet to be measured.

    Nothing comes of a server that was revoked, and nothing is waited for.
    """
    rows = AgentAttempt.objects.filter(job__in=[UUID(job) for job in jobs], kept=True, agent__revoked_at=None)
    found: dict[str, int | None] = {}
    for job, size in rows.values_list("job", "kept_bytes"):
        before = found.get(str(job), 0)
        found[str(job)] = None if size is None or before is None else before + size
    return found
