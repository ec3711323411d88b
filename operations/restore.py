"""Restore backups, and stop the attempts that were launched after them."""

import json
import re
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, cast

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.models import Max, QuerySet
from django.utils import timezone

from cluster_app.models import WITH_AGENTS
from cluster_app.models import Engine as EngineRow
from connections_app.agents.after_restore import (
    UNKNOWN_ATTEMPTS,
    expect_agents,
    lease_to_outlast_s,
    leases_before,
    machines_have_joined,
)
from connections_app.engine_registry import engine_named
from database.damage import forget_damage
from database.dump import DumpFailed, load_database
from engines.protocol import Engine, StopReason
from jobs_app.code.storage import code_root
from jobs_app.models import Attempt, Job
from operations.backup import CODE, DATABASE, JOBS, MANIFEST, UNFINISHED, Manifest, digest_of
from operations.restore_from_0_1 import is_complete, is_of_0_1, load_rows
from operations.unfinished_restore import (
    MachinesBefore,
    forget_unfinished_restore,
    note_unfinished_restore,
    unfinished_restore,
)
from scheduler_app.models import SchedulerLease
from scheduler_app.round.lease import has_ended

GRACE = timedelta(seconds=60)
"""For the checkpoints of attempts that the backup does not know."""
POLL_S = 0.5
NAME_OF_MEMBER = re.compile(
    rf"{MANIFEST}|{DATABASE}|{CODE}/[0-9]+/[0-9a-f]{{64}}\.tar\.gz|{JOBS}/[0-9]{{4}}-[0-9]{{2}}/[0-9a-f_-]+\.jsonl\.gz"
)
SET_NEWEST_ATTEMPT = {
    "sqlite": "UPDATE sqlite_sequence SET seq = %s WHERE name = 'jobs_app_attempt'",
    "postgresql": "SELECT setval(pg_get_serial_sequence('jobs_app_attempt', 'id'), %s)",
}


class NotRestored(Exception):
    """The backup cannot be restored here; nothing has changed."""


class Restored(NamedTuple):
    manifest: Manifest
    lease_s: float
    """Seconds after the last answer of the service in which jobs may still run at machines that joined."""
    had_machines: bool
    """Whether the database of before knew machines that joined."""


class OrphanAttempt(NamedTuple):
    """Attempt that an engine runs and the restored database does not know."""

    engine: str
    attempt: int


def restore_backup(path: Path, *, replace: bool) -> Restored:
    """Replace the database, add the archives of code and jobs; raises `NotRestored` before anything has changed.

    Call `forget_unfinished_restore` when its lease is over: one that is run again before that waits for it, too.
    """
    _refuse_running_service()
    if not replace:
        _refuse_rows()
    with _unpacked(path) as (folder, manifest):
        _refuse_other(manifest)
        earlier = unfinished_restore()
        leases = {} if earlier else leases_before(timezone.now())  # it may have replaced when they were heard
        before = _machines_before(leases, earlier)
        note_unfinished_restore(before)
        load = load_rows if is_of_0_1(frozenset(manifest["migrations"])) else load_database
        try:
            load(folder / DATABASE)
        except DumpFailed as error:
            if earlier is None:
                forget_unfinished_restore()
            raise NotRestored(str(error)) from error
        _restore(folder / CODE, code_root())
        _restore(folder / JOBS, settings.MOTLEY_ARCHIVE_ROOT)
    call_command("migrate", verbosity=0, interactive=False)
    forget_damage()
    lease_s = max(before.lease_s, lease_to_outlast_s(leases))
    expect_agents(timezone.now())
    SchedulerLease.objects.update(expires_at=timezone.now())  # of processes that ran at the time of the backup
    return Restored(manifest, lease_s, before.had_joined)


def _machines_before(leases: Mapping[str, float], earlier: MachinesBefore | None) -> MachinesBefore:
    earlier = earlier or MachinesBefore(0.0, had_joined=False)
    lease_s = max([*leases.values(), earlier.lease_s])
    return MachinesBefore(lease_s, had_joined=earlier.had_joined or machines_have_joined())


def _refuse_running_service() -> None:
    try:
        leases = SchedulerLease.objects.filter(expires_at__gt=timezone.now()).exclude(holder="")
        held = next((lease for lease in leases if not has_ended(lease.holder)), None)
    except DatabaseError:  # a database without tables
        return
    if held is not None:
        raise NotRestored(f"A scheduler runs ({held}): stop all of the service first, and wait until then.")


def _refuse_rows() -> None:
    try:
        count = Job.objects.count()
    except DatabaseError:
        return
    if count:
        raise NotRestored(f"The database has {count:,} jobs, which would be lost: say --replace if they may be.")


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[Path, Manifest]]:
    """Folder with the members of the file, which are whole."""
    with TemporaryDirectory(dir=settings.VAR_DIR, prefix=UNFINISHED) as name:
        folder = Path(name)
        try:
            with tarfile.open(path, "r:gz") as tar:
                _extract(tar, folder)
            manifest = cast("Manifest", json.loads((folder / MANIFEST).read_text()))
            damaged = [name for name, digest in manifest["members"].items() if digest_of(folder / name) != digest]
        except (OSError, EOFError, tarfile.TarError, ValueError, KeyError) as error:
            raise NotRestored(f"{path} is no whole backup of Motley: {error}") from error
        if damaged:
            raise NotRestored(f"{path} is damaged: {', '.join(damaged[:3])} is not what was written. Take another.")
        yield folder, manifest


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Extract files of the names that a backup has, and none whose path would lead elsewhere."""
    for member in tar:
        if not member.isfile() or not NAME_OF_MEMBER.fullmatch(member.name):
            raise ValueError(f"{member.name!r} is no member of one")
        target = folder / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with cast("IO[bytes]", tar.extractfile(member)) as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy)


def _refuse_other(manifest: Manifest) -> None:
    if manifest["database"] != connection.vendor:
        text = f"The backup is of {manifest['database']}, this service uses {connection.vendor}: set MOTLEY_DATABASE."
        raise NotRestored(text)
    taken = frozenset(manifest["migrations"])
    if is_of_0_1(taken):
        if not is_complete(taken):
            raise NotRestored("The backup is of an older 0.1: restore it with the last 0.1, and take another there.")
        return
    known = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations or {}}
    if unknown := sorted(set(manifest["migrations"]) - known):
        text = f"The backup is of version {manifest['version']}, which is newer ({unknown[0]}): install that one."
        raise NotRestored(text)


def _restore(folder: Path, root: Path) -> None:
    for path in folder.glob("*/*.gz"):
        target = root / path.relative_to(folder)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(path, target)


# -- attempts that were made after the backup ----------------------------------------------------------------------


def skip_used_numbers(*, had_machines: bool) -> None:
    """Make the number of the next attempt larger than that of any whose files an engine has.

    Engines know attempts by number: a number that is given again would be an attempt that has ended. Which ones
    machines that joined have, nobody knows before they are heard: as many are left out as these cannot have. So they
    are for those that joined after the backup (`had_machines`), which keep their files when they join anew.
    """
    found = [number for engine in _engines(EngineRow.objects.all()).values() for number in engine.attempts()]
    known = Attempt.objects.aggregate(newest=Max("pk"))["newest"] or 0
    if newest := max([known, *found]) + UNKNOWN_ATTEMPTS * (had_machines or machines_have_joined()):
        with connection.cursor() as cursor:
            cursor.execute(SET_NEWEST_ATTEMPT[connection.vendor], [newest])


def stop_strays(*, patience_s: float) -> list[OrphanAttempt]:
    """Stop the attempts that the restored database does not know, as if preempted; returns those that still run.

    Machines that joined are not reached: they stop theirs when their lease is over.
    """
    running = _engines(EngineRow.objects.exclude(kind__in=WITH_AGENTS))
    strays = _strays(running)
    for stray in strays:
        running[stray.engine].stop(stray.attempt, reason=StopReason.PREEMPT, grace=GRACE)
    give_up_at = time.monotonic() + patience_s
    while strays and time.monotonic() < give_up_at:
        time.sleep(POLL_S)
        strays = [stray for stray in strays if not _is_gone(running[stray.engine], stray.attempt)]
    return strays


def _engines(rows: QuerySet[EngineRow]) -> Mapping[str, Engine]:
    return {name: engine_named(name) for name in rows.values_list("name", flat=True)}


def _strays(running: Mapping[str, Engine]) -> list[OrphanAttempt]:
    """Running attempts of these engines that the database does not know; `EngineError` if one does not answer."""
    known = set(Attempt.objects.with_processes().values_list("pk", flat=True))
    found: list[OrphanAttempt] = []
    for name, engine in running.items():
        unended = [number for number, ended in engine.attempts().items() if not ended]
        found += [OrphanAttempt(name, number) for number in unended if number not in known]
    return found


def _is_gone(engine: Engine, attempt: int) -> bool:
    return any(report.proven_gone for report in engine.poll([attempt]))
