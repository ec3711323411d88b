"""Processes of lab runs: one at a time, of low priority, started after a turn of rounds; lost ones are begun again."""

import logging
import subprocess
import sys
import threading
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.utils import timezone

from scheduler_app.job_forecasts.runs import round_turn_and_forecasts
from scheduler_app.models import LabRun

log = logging.getLogger(__name__)

SILENT = timedelta(minutes=10)
"""After which a process that has told nothing is taken to be lost, with the scheduler that began it."""
LONGEST = timedelta(hours=2)
"""A process that has not ended by then is stopped."""
MOST_TRIES = 2
MOST_KEPT = 200
LOST = "Its process was lost."


def round_turn_and_lab(holder: str, now: datetime) -> bool:
    """A turn of rounds with forecasts, and the lab run that is due; False if another scheduler does them."""
    if not round_turn_and_forecasts(holder, now):
        return False
    if run := claim_run(now):
        threading.Thread(target=_run_in_a_process, args=(run,), name="lab", daemon=True).start()
    return True


def claim_run(now: datetime) -> LabRun | None:
    """The oldest run of the queue, if none is running; the first to ask has it."""
    if not LabRun.objects.unfinished().exists():
        return None
    give_back_lost(now)
    if LabRun.objects.filter(state=LabRun.State.RUNNING).exists():
        return None
    return _claimed(LabRun.objects.filter(state=LabRun.State.QUEUED).order_by("pk").first(), now)


def _claimed(run: LabRun | None, now: datetime) -> LabRun | None:
    if run is None:
        return None
    begun = {"state": LabRun.State.RUNNING, "tries": F("tries") + 1, "told_at": now, "done": 0}
    try:
        with transaction.atomic():
            won = LabRun.objects.filter(pk=run.pk, state=LabRun.State.QUEUED).update(**begun)
    except IntegrityError:  # another scheduler has begun another run meanwhile
        return None
    return LabRun.objects.get(pk=run.pk) if won else None


def give_back_lost(now: datetime) -> None:
    """Put runs whose process is silent back into the queue; the second time they have failed."""
    for run in LabRun.objects.filter(state=LabRun.State.RUNNING, told_at__lt=now - SILENT):
        note_lost(run, now)


def note_lost(run: LabRun, now: datetime, why: str = "") -> None:
    """Back into the queue, or failed if it was lost before; nothing if it has ended."""
    mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
    if run.tries < MOST_TRIES:
        mine.update(state=LabRun.State.QUEUED, told_at=None)
    else:
        mine.update(state=LabRun.State.FAILED, finished_at=now, message=f"{LOST} {why}".strip()[:500])


def _run_in_a_process(run: LabRun) -> None:
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py"), "labrun", str(run.pk), "--skip-checks"]
    command, nowhere = ["nice", "-n", "15", *manage], subprocess.DEVNULL
    try:
        at_most_s = LONGEST.total_seconds()
        subprocess.run(command, check=True, timeout=at_most_s, cwd=settings.BASE_DIR, stdout=nowhere)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        log.exception("the process of a lab run ended early")
        note_lost(run, timezone.now(), f"{type(error).__name__}: {error}")
    finally:
        connection.close()  # of this thread


def forget_old_runs() -> None:
    """Delete ended runs beyond the newest."""
    kept = list(LabRun.objects.values_list("pk", flat=True)[:MOST_KEPT])
    LabRun.objects.exclude(pk__in=kept).exclude(state__in=LabRun.UNFINISHED).delete()
