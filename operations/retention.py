"""Retention: delete expired rows and files in batches, so that no lock is held for long."""

import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Max, Q, QuerySet, Subquery

from accounting_app.fairness.team_months import close_month_when_due
from accounting_app.models import DurationForecast, GpuMinute, GpuTypeUsage, NodeUse, QuotaHour, RetentionRun, TeamUsage
from audit_app.models import AuditEntry
from cluster_app.models import NodeEvent, NodeInterval
from insight_app.models import DeadlineForecast, KeptForecast
from insight_app.own_process import run_manage, start_in_a_thread
from insight_app.timeline.reading import last_state_events
from jobs_app.code.storage import delete_files, unused_archives
from jobs_app.job_archive import archive_jobs, expired_jobs
from jobs_app.models import ApiToken, IdempotencyKey, JobEvent, Notification, RecurringRun
from operations.file_retention import FILE_RULES, FileRule
from operations.job_file_retention import (
    FilesLeft,
    add_up_files_of_teams,
    discard_files,
    jobs_beyond_limits,
    jobs_with_files,
    measure_files,
)
from scheduler_app.models import Round, SchedulerLease

log = logging.getLogger(__name__)

ROWS_PER_BATCH = 500
"""To remove so many takes a fraction of a second."""
NEWEST_ROUNDS = 10
"""Their snapshots are kept however old they are: pages explain jobs by the last good round."""
MOST_FORECASTS = 100_000
EVERY = timedelta(hours=1)
TIME_BUDGET = timedelta(seconds=5)
"""Of the rules in one run: it ends after this time, and the next deletes the rest, so that others can write."""
AGAIN_AFTER = timedelta(minutes=1)
STOPPED_AFTER = timedelta(minutes=50)
"""A process that has not ended by then is stopped, before the next is due."""


@dataclass(frozen=True)
class RetentionRule:
    """One kind of row: which of them have expired, and how they are removed."""

    label: str
    setting: str
    """Name of the setting that holds the retention period."""
    expired: Callable[[datetime], QuerySet[Any]]
    remove: Callable[[QuerySet[Any]], object]
    """May return a `FilesLeft`, where it cannot remove all of them."""

    @property
    def kept_for(self) -> timedelta | None:
        """None for a rule by size."""
        period = getattr(settings, self.setting)
        return period if isinstance(period, timedelta) else None

    def expired_at(self, now: datetime) -> QuerySet[Any]:
        return self.expired(now - (self.kept_for or timedelta()))

    def count_expired(self, now: datetime) -> int:
        return self.expired_at(now).count()

    def delete_in_batches(self, now: datetime) -> Iterator[tuple[int, FilesLeft]]:
        """Remove the expired rows, oldest first; yields the size of each batch, and the rows that are left.

        No transaction is open around a removal: that of files asks engines, and SQLite's lock would be held meanwhile.
        """
        expired = self.expired_at(now)
        later = expired
        while pks := list(later.order_by("pk").values_list("pk", flat=True)[:ROWS_PER_BATCH]):
            left = self.remove(expired.filter(pk__in=pks))
            yield len(pks), left if isinstance(left, FilesLeft) else FilesLeft(0, "")
            later = expired.filter(pk__gt=pks[-1])  # what could not be removed is tried again an hour later


def delete_expired(now: datetime, *, time_budget: timedelta | None = None) -> RetentionRun:
    """Apply every retention rule, and record what each removed. Idempotent; safe to run during rounds.

    A rule that fails, as that of the archive does on a full disk, keeps no other from its rows.
    """
    start = monotonic()
    measure_files()
    close_month_when_due(now)
    give_up_at = monotonic() + time_budget.total_seconds() if time_budget is not None else float("inf")
    run = RetentionRun(
        at=now, removed=dict.fromkeys((rule.label for rule in RETENTION_RULES), 0), faults={}, complete=True
    )
    for rule in RETENTION_RULES:
        _apply(rule, now, run, give_up_at)
        if monotonic() > give_up_at:
            run.complete = rule is RETENTION_RULES[-1]
            break
    add_up_files_of_teams()
    run.took_s = monotonic() - start
    run.save()
    return run


def _apply(rule: RetentionRule | FileRule, now: datetime, run: RetentionRun, give_up_at: float) -> None:
    try:
        for count, left in rule.delete_in_batches(now):
            run.removed[rule.label] += count - left.rows
            if left.why:
                run.faults[rule.label] = left.why
            if monotonic() > give_up_at:
                return
    except (OSError, DatabaseError) as error:
        log.exception("retention of %s failed", rule.label)
        run.faults[rule.label] = str(error)


def count_expired(now: datetime) -> dict[str, int]:
    """Count the rows and files that `delete_expired` would remove."""
    return {rule.label: rule.count_expired(now) for rule in RETENTION_RULES}


def delete_expired_when_due(now: datetime) -> None:
    """Start retention in a process of its own once an hour, or a minute after a run whose time was not enough.

    Sizes of files and figures of months are added up for minutes, in which engines must be heard. A conditional update
    of `pruned_at` decides which scheduler does it.
    """
    due = _loop().filter(Q(pruned_at=None) | Q(pruned_at__lte=now - EVERY) | Q(pruned_at__gt=now))  # a clock set back
    if due.update(pruned_at=now):
        start_in_a_process(now)


def start_in_a_process(now: datetime) -> RetentionRun | None:
    """Start `run_for_the_scheduler`, in a thread that waits for its process; None: its outcome is not known yet."""
    start_in_a_thread(_run_in_a_process, name="retention")
    return None


def _run_in_a_process() -> None:
    try:
        run_manage("prune", "--briefly", at_most=STOPPED_AFTER)
    except (OSError, subprocess.SubprocessError):
        log.exception("retention did not end; it is run again in an hour")


def run_for_the_scheduler(now: datetime) -> RetentionRun:
    """Delete for a few seconds; if that is not enough, the next run is due in a minute."""
    run = delete_expired(now, time_budget=TIME_BUDGET)
    if not run.complete:
        _loop().update(pruned_at=now - EVERY + AGAIN_AFTER)
    return run


def _loop() -> QuerySet[SchedulerLease]:
    return SchedulerLease.objects.filter(pk=SchedulerLease.Loop.ENGINES)


def _archives(before: datetime) -> QuerySet[Any]:
    return _old_rounds(before).exclude(archive=None).defer("archive")


def _old_rounds(before: datetime) -> QuerySet[Any]:
    good = Round.objects.committed().order_by("-number")
    newest = list(good.values_list("number", flat=True)[:NEWEST_ROUNDS])
    last = Round.objects.aggregate(Max("number"))["number__max"] or 0
    return Round.objects.filter(started_at__lt=before, number__lt=min([last, *newest]))


def _job_events(before: datetime) -> QuerySet[Any]:
    """Events of jobs that ended before the cutoff, except comments; the newest event stays, because `round_is_due`
    compares with it."""
    newest = JobEvent.objects.filter(kind__in=JobEvent.WAKING).aggregate(Max("pk"))["pk__max"] or 0
    ended = JobEvent.objects.filter(at__lt=before, job__finished_at__lt=before, pk__lt=newest)
    return ended.exclude(kind=JobEvent.Kind.COMMENTED)


def _node_events(before: datetime) -> QuerySet[Any]:
    """Events of nodes, except the last change of each one's state: the timeline reads from it what goes on since."""
    newest = NodeEvent.objects.aggregate(Max("pk"))["pk__max"] or 0
    expired = NodeEvent.objects.filter(at__lt=before, pk__lt=newest)
    return expired.exclude(pk__in=last_state_events(before).values("pk"))


def _expired_tokens(before: datetime) -> QuerySet[Any]:
    """Tokens that expired or were revoked before the cutoff, except makers of a valid token: `made_by` revokes that one
    with them."""
    made = ApiToken.objects.valid(before).exclude(made_by=None)
    gone = Q(expires_at__lt=before) | Q(revoked_at__lt=before)
    return ApiToken.objects.filter(gone).exclude(pk__in=made.values("made_by"))


def _before_or_beyond_newest(rows: QuerySet[Any], column: str, before: datetime) -> QuerySet[Any]:
    """Rows whose time in the column is before the cutoff, and all but the newest of the others."""
    beyond = rows.order_by(f"-{column}").values(column)[MOST_FORECASTS : MOST_FORECASTS + 1]
    return rows.filter(Q(**{f"{column}__lt": before}) | Q(**{f"{column}__lte": Subquery(beyond)}))


def _forecasts(before: datetime) -> QuerySet[Any]:
    """Forecasts of jobs that ended."""
    return _before_or_beyond_newest(DurationForecast.objects.exclude(ended_at=None), "ended_at", before)


def _kept_forecasts(before: datetime) -> QuerySet[Any]:
    """Kept forecasts of events that have happened."""
    return _before_or_beyond_newest(KeptForecast.objects.exclude(happened_at=None), "happened_at", before)


def _open_forecasts(before: datetime) -> QuerySet[Any]:
    """Kept forecasts of events that have not happened, by when they were made."""
    return _before_or_beyond_newest(KeptForecast.objects.filter(happened_at=None), "made_at", before)


def _deadline_forecasts(before: datetime) -> QuerySet[Any]:
    """Deadline forecasts whose outcome is known."""
    return _before_or_beyond_newest(DeadlineForecast.objects.exclude(known_at=None), "known_at", before)


def _open_deadlines(before: datetime) -> QuerySet[Any]:
    """Deadline forecasts whose outcome is not known, by when they were made."""
    return _before_or_beyond_newest(DeadlineForecast.objects.filter(known_at=None), "made_at", before)


def _forget_snapshots(rounds: QuerySet[Any]) -> object:
    return rounds.update(archive=None)


def _delete(rows: QuerySet[Any]) -> object:
    return rows.delete()


RETENTION_RULES: tuple[RetentionRule | FileRule, ...] = (
    RetentionRule("snapshots of rounds", "MOTLEY_KEEP_SNAPSHOTS", _archives, _forget_snapshots),
    RetentionRule("rounds", "MOTLEY_KEEP_ROUNDS", _old_rounds, _delete),
    RetentionRule("files of jobs that ended", "MOTLEY_KEEP_FILES", jobs_with_files, discard_files),
    RetentionRule("files beyond the limit of a team", "MOTLEY_TEAM_FILES_GIB", jobs_beyond_limits, discard_files),
    # After their files, which nothing would find any more; before their events, which go into the archive with them.
    RetentionRule("jobs that ended, to the archive", "MOTLEY_KEEP_JOBS", expired_jobs, archive_jobs),
    RetentionRule("events of jobs that ended", "MOTLEY_KEEP_EVENTS", _job_events, _delete),
    RetentionRule(
        "due times of recurring jobs",
        "MOTLEY_KEEP_EVENTS",
        lambda day: RecurringRun.objects.filter(at__lt=day),
        _delete,
    ),
    RetentionRule("events of nodes", "MOTLEY_KEEP_EVENTS", _node_events, _delete),
    RetentionRule(
        "times in which nodes were up or down",
        "MOTLEY_KEEP_EVENTS",
        lambda day: NodeInterval.objects.filter(ended_at__lt=day),
        _delete,
    ),
    RetentionRule(
        "minutes of teams", "MOTLEY_KEEP_MINUTES", lambda day: TeamUsage.objects.filter(minute__lt=day), _delete
    ),
    RetentionRule(
        "hours of quotas", "MOTLEY_KEEP_MINUTES", lambda day: QuotaHour.objects.filter(hour__lt=day), _delete
    ),
    RetentionRule(
        "minutes of GPU types", "MOTLEY_KEEP_MINUTES", lambda day: GpuTypeUsage.objects.filter(minute__lt=day), _delete
    ),
    RetentionRule(
        "steps of nodes in use", "MOTLEY_KEEP_MINUTES", lambda day: NodeUse.objects.filter(at__lt=day), _delete
    ),
    RetentionRule(
        "minutes of GPUs", "MOTLEY_KEEP_GPU_MINUTES", lambda day: GpuMinute.objects.filter(minute__lt=day), _delete
    ),
    RetentionRule(
        "idempotency keys",
        "MOTLEY_KEEP_IDEMPOTENCY_KEYS",
        lambda day: IdempotencyKey.objects.filter(created_at__lt=day),
        _delete,
    ),
    RetentionRule("archives of code that no job uses", "MOTLEY_KEEP_CODE", unused_archives, delete_files),
    RetentionRule(
        "runs of retention", "MOTLEY_KEEP_ROUNDS", lambda day: RetentionRun.objects.filter(at__lt=day), _delete
    ),
    RetentionRule("forecasts of jobs that ended", "MOTLEY_KEEP_FORECASTS", _forecasts, _delete),
    RetentionRule("forecasts of starts and ends", "MOTLEY_KEEP_FORECASTS", _kept_forecasts, _delete),
    RetentionRule("forecasts of what has not come", "MOTLEY_KEEP_FORECASTS", _open_forecasts, _delete),
    RetentionRule("forecasts of deadlines", "MOTLEY_KEEP_FORECASTS", _deadline_forecasts, _delete),
    RetentionRule("forecasts of deadlines to come", "MOTLEY_KEEP_FORECASTS", _open_deadlines, _delete),
    RetentionRule(
        "notifications",
        "MOTLEY_KEEP_NOTIFICATIONS",
        lambda day: Notification.objects.filter(created_at__lt=day),
        _delete,
    ),
    RetentionRule("audit entries", "MOTLEY_KEEP_AUDIT", lambda day: AuditEntry.objects.filter(at__lt=day), _delete),
    RetentionRule("API tokens that expired or were revoked", "MOTLEY_KEEP_TOKENS", _expired_tokens, _delete),
    *FILE_RULES,
)
