"""Advance of sweeps: results at rungs, promotions, stops and new trials.

Read, decide, write: which trials go on, and the hyperparameters of the next one, are pure functions of the rows. All
of a turn is written in one transaction, or nothing is, and the next turn comes to the same decision.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction

from accounting_app.fairness.budgets import with_budget_notes
from jobs_app.errors import InvalidSpec, JobIsFinished, JobIsNotHeld, LoginEnded
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job
from jobs_app.models import Job, ProgressCurve, Sweep, SweepTrial
from jobs_app.submission.enqueue import refuse_ended_logins
from jobs_app.submission.submit import enter
from scheduler_app.recurring_jobs.admission import why_owner_is_gone
from scheduler_app.sweeps.admission import admitted_trial
from scheduler_app.sweeps.decisions import decide_turn
from scheduler_app.sweeps.turn import CHANGING, JobNow, Turn
from scheduler_app.sweeps.weights import NewTrial, copy_with_weights

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=1)
LONGEST_S = 0.5
"""Time of a turn after which no other sweep is begun: engines wait meanwhile."""
MOST_PER_TURN = 4
"""Sweeps that one turn looks after: the others come in the next, half a second later."""


class _Overtaken(Exception):
    """Another scheduler, or a user, has changed the sweep since it was read: nothing of the turn is written."""


def advance_sweeps(now: datetime) -> None:
    """Advance the sweeps that nobody looked after for a second; one query if there is none. Idempotent."""
    due = Sweep.objects.unfinished().filter(advanced_at__lte=now - EVERY).order_by("advanced_at", "pk")
    began_s = time.monotonic()
    for pk in list(due.values_list("pk", flat=True)[:MOST_PER_TURN]):
        if time.monotonic() - began_s > LONGEST_S:
            return  # the others come first in the next turn
        try:
            _advance(pk, now)
        except (OperationalError, InterfaceError):
            raise  # the database: the next turn tries again
        except Exception:  # one that fails at each turn must not keep the others from theirs
            log.exception("sweep %s could not be advanced", pk)
            Sweep.objects.filter(pk=pk).update(advanced_at=now)


def _advance(pk: int, now: datetime) -> None:
    read = _read(pk)
    if read is None:
        return
    turn = decide_turn(*read, _why_none(read[0]), now)
    try:
        with _new_trials(turn, now) as new, transaction.atomic():
            refuse_ended_logins(one.job for one in new)
            if not _claim(turn, now):
                raise _Overtaken
            _write(turn, new)
    except (_Overtaken, LoginEnded):  # the next turn reads the sweep, and its owner, anew
        return


# -- read --------------------------------------------------------------------------------------------------------


def _read(pk: int) -> tuple[Sweep, list[SweepTrial], dict[UUID, JobNow]] | None:
    sweep = Sweep.objects.unfinished().select_related("team__budget", "owner").filter(pk=pk).first()
    if sweep is None:
        return None
    trials = list(sweep.trials.all())
    return sweep, trials, _jobs_of(trial for trial in trials if trial.is_open)


def _jobs_of(trials: Iterable[SweepTrial]) -> dict[UUID, JobNow]:
    """Job → its state with its metrics; those in the archive are missing."""
    ids = [trial.job_id for trial in trials]
    jobs = Job.objects.filter(pk__in=ids).order_by()
    reported = dict(ProgressCurve.objects.filter(job__in=ids).values_list("job", "milestones"))
    return {
        job.pk: JobNow(job.state, job.held, job.hold_next, job.step, job.message, reported.get(job.pk, {}))
        for job in jobs.only("state", "held", "hold_next", "step", "message")
    }


def _why_none(sweep: Sweep) -> str:
    """Why no trial may be submitted in the name of its owner; empty if one may."""
    if sweep.team.retired_at:
        return f"The team {sweep.team} is retired."
    return why_owner_is_gone(sweep.owner, sweep.team)


# -- write -------------------------------------------------------------------------------------------------------


@contextmanager
def _new_trials(turn: Turn, now: datetime) -> Iterator[list[NewTrial]]:
    """New trials with their jobs; if one is refused, as for a storage that is gone, the sweep is stopped and says why.

    Copies of weights with which they begin are removed if the block fails.
    """
    with ExitStack() as copies:
        try:
            new = [*_suggested(turn, now), *copies.enter_context(copy_with_weights(turn, now))]
        except InvalidSpec as error:
            turn.sweep.state, turn.sweep.message = Sweep.State.STOPPING, f"Its next trial is refused: {error}"[:500]
            new = []
        noted = with_budget_notes([one.job for one in new], now)
        yield [replace(one, job=job) for one, job in zip(new, noted, strict=True)]


def _suggested(turn: Turn, now: datetime) -> list[NewTrial]:
    rows = [SweepTrial(sweep=turn.sweep, params=params, created_at=now) for params in turn.suggested]
    first = len(turn.trials)
    return [NewTrial(row, admitted_trial(turn.sweep, first + n, row.params)) for n, row in enumerate(rows)]


def _claim(turn: Turn, now: datetime) -> bool:
    """Store the sweep, unless another scheduler or a user has changed it since it was read."""
    unchanged = Sweep.objects.filter(pk=turn.sweep.pk, state=turn.state_seen, advanced_at=turn.advanced_at_seen)
    sweep = turn.sweep
    columns = {name: getattr(sweep, name) for name in ("state", "message", "generation", "ended_at")}
    return bool(unchanged.update(**columns, advanced_at=now))


def _why(sweep: Sweep, trial: SweepTrial) -> str:
    message = trial.message
    return f"by the sweep {sweep}: {message[:1].lower()}{message[1:].rstrip('.')}"


def _command(trials: Sequence[SweepTrial], command: Callable[[Job, SweepTrial], None]) -> None:
    jobs = Job.objects.in_bulk([trial.job_id for trial in trials])
    for trial in trials:
        with suppress(JobIsFinished, JobIsNotHeld):  # the next turn finds its end, or that it runs already
            if job := jobs.get(trial.job_id):
                command(job, trial)


def _write(turn: Turn, new: Sequence[NewTrial]) -> None:
    SweepTrial.objects.bulk_update(turn.changed, CHANGING, batch_size=500)
    _command(turn.hold, lambda job, trial: hold_job(job, actor=None, because=_why(turn.sweep, trial)))
    _command(turn.release, lambda job, _: release_job(job, actor=None))
    _command(turn.cancel, lambda job, trial: cancel_job(job, actor=None, because=_why(turn.sweep, trial)))
    for number, one in enumerate(new, start=len(turn.trials)):
        one.row.number, one.row.job_id = number, enter(one.job).pk
    SweepTrial.objects.bulk_create(one.row for one in new)
