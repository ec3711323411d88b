"""Processes of lab runs: few at a time, of low priority, started after a turn of rounds; lost ones are begun again."""

import logging
import os
import signal
import subprocess
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from insight_app.lab.scenario import limit_memory, memory_limit_mib
from insight_app.models import LabRun
from insight_app.own_process import manage_command, start_in_a_thread
from insight_app.start_forecasts.runs import round_turn_and_forecasts

log = logging.getLogger(__name__)

SILENT = timedelta(minutes=10)
"""After which a run of which nothing was told is taken to be lost, with the scheduler that began it."""
LONGEST = timedelta(hours=2)
"""A process that has not ended by then is stopped."""
POLL_INTERVAL_S = 1.0
TOO_LONG = "It took longer than two hours: choose fewer days or policies."
MOST_TRIES = 2
MOST_AT_ONCE = 3
"""Processes of runs; each is a core and its limit of memory at most."""
MOST_KEPT = 200
LOST = "Its process was lost."


def round_turn_and_lab(holder: str, now: datetime) -> bool:
    """A turn of rounds with forecasts, and the lab run that is due; False if another scheduler does them."""
    if not round_turn_and_forecasts(holder, now):
        return False
    if run := claim_run(now):
        start_in_a_thread(partial(_run_in_a_process, run), name="lab")
    return True


def claim_run(now: datetime) -> LabRun | None:
    """Claim the oldest run whose owner shares no team with that of one which is running, by a conditional update.

    So the runs of one team wait for each other, and for those of other teams only while all slots are taken.
    """
    if not LabRun.objects.unfinished().exists():
        return None
    give_back_lost(now)
    running = list(LabRun.objects.filter(state=LabRun.State.RUNNING).select_related("owner"))
    free = set(range(MOST_AT_ONCE)) - {run.slot for run in running}
    if len(running) >= MOST_AT_ONCE or not free:
        return None
    taken = {queue for run in running for queue in _queues_of(run.owner)}
    queued = LabRun.objects.filter(state=LabRun.State.QUEUED).select_related("owner").order_by("pk")
    run = next((run for run in queued if not taken & _queues_of(run.owner)), None)
    return _claimed(run, min(free), now) if run is not None else None


def _queues_of(owner: User) -> set[int | str]:
    """Queues that a run of this person is in: of each team, one of administrators, or an own one."""
    if owner.is_staff:
        return {"staff"}
    return {*owner.teams.order_by().values_list("pk", flat=True)} or {owner.username}


def _claimed(run: LabRun, slot: int, now: datetime) -> LabRun | None:
    begun = {"state": LabRun.State.RUNNING, "slot": slot, "tries": F("tries") + 1, "heartbeat_at": now, "done": 0}
    try:
        with transaction.atomic():
            won = LabRun.objects.filter(pk=run.pk, state=LabRun.State.QUEUED).update(**begun)
    except IntegrityError:  # another scheduler has begun another run in it meanwhile
        return None
    return LabRun.objects.get(pk=run.pk) if won else None


def give_back_lost(now: datetime) -> None:
    """Requeue runs whose process no longer reports; the second time they fail."""
    for run in LabRun.objects.filter(state=LabRun.State.RUNNING, heartbeat_at__lt=now - SILENT):
        note_lost(run, now)


def note_lost(run: LabRun, now: datetime, why: str = "") -> None:
    """Back into the queue, or failed if it was lost before; nothing if it has ended."""
    mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
    if run.tries < MOST_TRIES:
        mine.update(state=LabRun.State.QUEUED, heartbeat_at=None)
    else:
        mine.update(state=LabRun.State.FAILED, finished_at=now, message=f"{LOST} {why}".strip()[:500])


def _run_in_a_process(run: LabRun) -> None:
    try:
        with TemporaryDirectory(prefix="motley-lab-") as folder:
            process = subprocess.Popen(  # noqa: S603 - our own program, with a number
                manage_command("labrun", str(run.pk), niceness=15),
                cwd=settings.BASE_DIR,
                env=os.environ | {"TMPDIR": folder},
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            follow(process, run)
    except OSError as error:
        log.exception("the process of a lab run could not be started")
        note_lost(run, timezone.now(), str(error))


def follow(process: "subprocess.Popen[bytes]", run: LabRun, *, longest: timedelta = LONGEST) -> None:
    """Report that the process lives until it has ended; kill it if the run was cancelled, or takes too long."""
    limit_memory(process.pid)
    with suppress(OSError):  # where memory is short it goes first, and not the service
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
    mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
    until_s = monotonic() + longest.total_seconds()
    try:
        while (code := _wait(process)) is None:
            if monotonic() > until_s:
                mine.update(state=LabRun.State.FAILED, finished_at=timezone.now(), message=TOO_LONG)
            if not mine.update(heartbeat_at=timezone.now()):
                return
        if code:
            note_lost(run, timezone.now(), f"Its exit status is {code}; its memory limit {memory_limit_mib():,} MiB.")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    try:
        return process.wait(POLL_INTERVAL_S)
    except subprocess.TimeoutExpired:
        return None


def forget_old_runs() -> None:
    """Delete ended runs beyond the newest."""
    kept = list(LabRun.objects.values_list("pk", flat=True)[:MOST_KEPT])
    LabRun.objects.exclude(pk__in=kept).exclude(state__in=LabRun.UNFINISHED).delete()
