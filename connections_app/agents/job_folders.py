"""Folders of jobs that servers keep when the jobs have ended there: read by people, counted and discarded by retention.

Their agents tell them again and again, so that a server which was away is told later what is to go.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from django.db.models import Max, Q

from connections_app.agents.sessions import attempts_asked_for
from connections_app.models import Agent, AgentAttempt
from jobs_app.models import Attempt, Job


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


def follow_folders(agent: Agent, told: Mapping[str, int]) -> list[str]:
    """Note the sizes of folders that the agent has without an attempt; the jobs whose folders it is to remove."""
    jobs = {one: job for one in told if (job := _uuid_of(one)) is not None}
    if not jobs:
        return []
    rows = list(agent.attempts.filter(Q(forgotten=False) | Q(kept=True), job__in=jobs.values()))
    _store_sizes([row for row in rows if row.kept and row.kept_bytes is None], told)
    here = {row.job for row in rows}
    return [one for one, job in jobs.items() if job not in here]


def _store_sizes(rows: Collection[AgentAttempt], told: Mapping[str, int]) -> None:
    known = [row for row in rows if told[str(row.job)] >= 0]
    for row in known:
        row.kept_bytes = told[str(row.job)]
    AgentAttempt.objects.bulk_update(known, ["kept_bytes"])


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
