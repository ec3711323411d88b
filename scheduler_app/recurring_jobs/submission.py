"""Submission of the runs of recurring jobs, once for each due time however many schedulers look.

One transaction moves `next_due_at` by a conditional update, submits the job and records the due time, of which there is
one row. So of two schedulers the second finds another due time, and a crash leaves all of it or nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db import InterfaceError, OperationalError, transaction

from accounting_app.fairness.budgets import with_budget_notes
from audit_app.models import Action
from audit_app.services import note
from jobs_app.errors import Conflict, InvalidSpec, JobIsFinished, LoginEnded
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Job, NotificationTarget, RecurringJob, RecurringRun
from jobs_app.notifications.outbox import Announcement, write
from jobs_app.notifications.recipients import targets_of
from jobs_app.submission.admission import Admitted
from jobs_app.submission.enqueue import refuse_ended_logins
from jobs_app.submission.submit import enter
from scheduler_app.recurring_jobs.admission import admitted_spec, why_stopped
from scheduler_app.recurring_jobs.schedule import DueTimes, due_times

log = logging.getLogger(__name__)

MOST_PER_TURN = 20
"""Recurring jobs: the others come in the next turn, half a second later."""
BROKEN = "It could not be submitted because of an error in the service, which its log describes."
OWNER_CHANGED = "The login of its owner, {}, has ended in the meantime: load the recurring job again, and run it then."
Concurrency, Outcome, Event = RecurringJob.Concurrency, RecurringRun.Outcome, NotificationTarget.Event


class Result(NamedTuple):
    """What becomes of a due time, as `RecurringRun` records it."""

    outcome: RecurringRun.Outcome
    message: str = ""
    job: UUID | None = None


def submit_due_runs(now: datetime) -> None:
    """Submit the runs that are due; one query if there is none. Idempotent."""
    rows = RecurringJob.objects.due(now).select_related("team__budget", "owner")
    for recurring in rows[:MOST_PER_TURN]:
        try:
            _submit_due_run(recurring, now)
        except (OperationalError, InterfaceError):
            raise  # the database: the next turn tries again
        except Exception:  # one that fails at each turn must not keep the others from theirs
            log.exception("recurring job %s could not be submitted", recurring.pk)
            at = recurring.next_due_at or now
            _conclude(recurring, DueTimes(at, 0, at), Result(Outcome.REFUSED, BROKEN), now, pause=True)


def admitted_run(recurring: RecurringJob, now: datetime) -> Admitted:
    """Admit a run by the spec as it is now for this team and cluster; raises `InvalidSpec`, or why there is none."""
    if why := why_stopped(recurring):
        raise Conflict(why)
    return _run_of(recurring, now)


@transaction.atomic
def run_now(recurring: RecurringJob, run: Admitted, *, actor: User, now: datetime) -> Job:
    """Submit a run beside those of the schedule, in the owner's name, by the same rules; also while it is paused.

    `run` is of the recurring job as it was read: of one with another spec, or owner, since then there is none, nor of
    one whose owner is gone, or has linked the account, since then: raises `Conflict` with the reason.
    """
    try:
        refuse_ended_logins([run])
    except LoginEnded as error:  # the owner's, not that of the actor
        found = RecurringJob.objects.select_related("team", "owner").get(pk=recurring.pk)
        raise Conflict(why_stopped(found) or OWNER_CHANGED.format(found.owner)) from error
    locked = RecurringJob.objects.select_for_update(of=("self",)).select_related("team", "owner")
    found = locked.get(pk=recurring.pk)
    if why := why_stopped(found):
        raise Conflict(why)
    if (found.spec, found.owner_id) != (recurring.spec, recurring.owner_id):
        raise Conflict("Somebody changed it in the meantime: load the recurring job again, and run it then.")
    result, first = _submit(recurring, run, f"run by {actor.get_username()}", now)
    if first is None:
        raise Conflict(f"It is not run: {result.message}.")
    _record(recurring, now, result, now)
    note(Action.RECURRING_RUN, actor=actor, target=recurring.name, target_id=recurring.pk)
    return first


def _submit_due_run(recurring: RecurringJob, now: datetime) -> None:
    due = _due(recurring, now)
    if why := why_stopped(recurring):
        _conclude(recurring, due, Result(Outcome.REFUSED, why), now, pause=True)
    elif due.is_missed(now) and recurring.missed == RecurringJob.Missed.SKIP:
        _conclude(recurring, due, Result(Outcome.MISSED, _joined("the service was down", due.before_text)), now)
    else:
        _submit_or_refuse(recurring, due, now)


def _submit_or_refuse(recurring: RecurringJob, due: DueTimes, now: datetime) -> None:
    try:
        job = _run_of(recurring, now)
        with transaction.atomic():
            refuse_ended_logins([job])
            if _claim(recurring, due) and not _is_recorded(recurring, due):
                missed = f"missed: {due.before_text}" if due.before else ""
                result, _ = _submit(recurring, job, missed, due.latest)
                _record(recurring, due.latest, result, now)
    except InvalidSpec as error:
        _conclude(recurring, due, Result(Outcome.REFUSED, str(error)), now)
    except LoginEnded:
        log.info("the owner of recurring job %s has changed: the next turn reads it anew", recurring.pk)


def _due(recurring: RecurringJob, now: datetime) -> DueTimes:
    return due_times(recurring, recurring.next_due_at or now, now)


def _run_of(recurring: RecurringJob, now: datetime) -> Admitted:
    """Admit the spec as it is now for this team and cluster; raises `InvalidSpec`."""
    (job,) = with_budget_notes([admitted_spec(recurring.spec, recurring.owner, recurring.team)], now)
    return replace(job, columns={**job.columns, "recurring_id": recurring.pk})


def _submit(recurring: RecurringJob, job: Admitted, why: str, at: datetime) -> tuple[Result, Job | None]:
    """Submit the run, unless the run before forbids it; call it while the row of the recurring job is locked."""
    before = list(recurring.jobs.unfinished().order_by("-pk")) if recurring.concurrency != Concurrency.ALLOW else []
    if before and recurring.concurrency == Concurrency.FORBID:
        text = f"the run before, {before[0].pk}, is {before[0].get_state_display()}"
        return Result(Outcome.SKIPPED, text), None
    replaced = _cancel(before, f"replaced by the run of {at.astimezone(UTC):%F %H:%M} UTC")
    first = enter(job)
    return Result(Outcome.SUBMITTED, _joined(replaced, why), first.pk), first


def _cancel(jobs: Sequence[Job], because: str) -> str:
    for job in jobs:
        try:
            cancel_job(job, actor=None, because=because)
        except JobIsFinished:
            continue
    return f"cancelled the run before, {jobs[0].pk}" if jobs else ""


@transaction.atomic
def _conclude(recurring: RecurringJob, due: DueTimes, result: Result, now: datetime, *, pause: bool = False) -> None:
    """Record a due time without a job; `pause` where the next would end alike. A refusal is announced."""
    if not _claim(recurring, due):
        return
    if not _is_recorded(recurring, due):
        _record(recurring, due.latest, result, now)
    if pause:
        RecurringJob.objects.filter(pk=recurring.pk).update(
            paused_at=now, paused_because=result.message[:300], changed_at=now
        )
    if result.outcome == Outcome.REFUSED:
        _announce_refusal(recurring, result.message, due.latest)


def _announce_refusal(recurring: RecurringJob, why: str, due_at: datetime) -> None:
    """Write the notifications of a refused due time, once a day for each target; call it in its transaction."""
    key = f"refused:{recurring.pk}:{due_at.astimezone(UTC):%F}"
    facts = {
        "recurring_job": {
            "id": recurring.pk,
            "name": recurring.name,
            "team": recurring.team.name,
            "owner": recurring.owner.username,
            "due_at": due_at.isoformat(),
            "message": why,
            "url": f"{settings.PUBLIC_URL}/recurring/{recurring.pk}",
        }
    }
    targets = [one for one in targets_of(recurring.owner, recurring.team) if Event.RUN_REFUSED in one.events]
    write(Announcement(target.pk, Event.RUN_REFUSED, key, facts) for target in targets)


def _claim(recurring: RecurringJob, due: DueTimes) -> bool:
    """Move on to the next due time, by a conditional update; False if another process has, or a user changed it."""
    seen = {"next_due_at": recurring.next_due_at, "changed_at": recurring.changed_at, "paused_at": None}
    return bool(RecurringJob.objects.filter(pk=recurring.pk, **seen).update(next_due_at=due.next_at))


def _is_recorded(recurring: RecurringJob, due: DueTimes) -> bool:
    """Whether its outcome is known: a clock that was set back, and a new schedule then, lead to a due time again."""
    return recurring.runs.filter(due_at=due.latest).exists()


def _record(recurring: RecurringJob, due_at: datetime, result: Result, now: datetime) -> None:
    RecurringRun.objects.create(
        recurring=recurring,
        due_at=due_at,
        at=now,
        outcome=result.outcome,
        job_id=result.job,
        message=result.message[:500],
    )


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)
