"""Storage of archives of code: one file per team and digest, below `MOTLEY_CODE_ROOT`."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Protocol

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from jobs_app.code.inspection import LARGEST_BYTES, Content, inspect
from jobs_app.errors import InvalidSpec
from jobs_app.models import CodeArchive, Job, RecipeVersion, RecurringJob, Sweep, Team

CHUNK_BYTES = 1024 * 1024
ARCHIVE = ".tar.gz"


class Readable(Protocol):
    """A body of a request, or a file."""

    def read(self, size: int, /) -> bytes: ...


def code_root() -> Path:
    return settings.MOTLEY_CODE_ROOT or settings.MOTLEY_ENGINE_ROOT / "code"


def path_of(archive: CodeArchive) -> Path:
    return code_root() / str(archive.team_id) / f"{archive.digest}{ARCHIVE}"


def store(body: Readable, digest: str, *, team: Team, user: User) -> CodeArchive:
    """Check and store an uploaded archive, and return its row; storing it again changes nothing.

    Raises `InvalidSpec` if it is not as its digest says, not an archive, unsafe, or more than the team may store.
    """
    with _received(body, digest) as (path, size_bytes):
        return _enter(path, size_bytes, inspect(path), digest, team=team, user=user)


@contextmanager
def _received(body: Readable, digest: str) -> Iterator[tuple[Path, int]]:
    """The body in a temporary file, with its size."""
    incoming = _incoming()
    incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=incoming, suffix=ARCHIVE, delete=False) as file:
        path = Path(file.name)
        try:
            size_bytes = _copy(body, file, digest)
            file.flush()
            yield path, size_bytes
        finally:
            path.unlink(missing_ok=True)


def _copy(body: Readable, file: IO[bytes], digest: str) -> int:
    """Copy the body and return its size; raise `InvalidSpec` if it is too large or has another digest."""
    sha256, size_bytes = hashlib.sha256(), 0
    while chunk := body.read(CHUNK_BYTES):
        size_bytes += len(chunk)
        if size_bytes > LARGEST_BYTES:
            text = f"An archive may have at most {LARGEST_BYTES >> 20} MiB: leave data out with .gitignore."
            raise InvalidSpec.at("", "too_large", text)
        sha256.update(chunk)
        file.write(chunk)
    if sha256.hexdigest() != digest:
        text = f"The body has the SHA-256 {sha256.hexdigest()}, not {digest}: send it again."
        raise InvalidSpec.at("", "wrong_digest", text)
    return size_bytes


def _enter(path: Path, size_bytes: int, content: Content, digest: str, *, team: Team, user: User) -> CodeArchive:
    with transaction.atomic():
        locked = Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        others = locked.code_archives.exclude(digest=digest)
        _refuse_over_quota(locked, others.bytes_stored() + size_bytes)
        facts = {**vars(content), "size_bytes": size_bytes, "stored": True, "used_at": timezone.now()}
        archive, _ = CodeArchive.objects.update_or_create(
            team=locked, digest=digest, defaults=facts, create_defaults={**facts, "uploaded_by": user}
        )
        final = path_of(archive)
        final.parent.mkdir(mode=0o700, exist_ok=True)
        # Before the commit: no row may say "stored" too early. If it fails, the next upload replaces the file.
        path.replace(final)
    return archive


def _refuse_over_quota(team: Team, needed_bytes: int) -> None:
    if team.max_code_mib is not None and needed_bytes > team.max_code_mib << 20:
        text = (
            f"Team {team} may store {team.max_code_mib:,} MiB of code, and with this archive it would be "
            f"{needed_bytes / (1 << 20):,.1f} MiB: make it smaller, or ask an administrator for more."
        )
        raise InvalidSpec.at("", "code_quota", text)


def _incoming() -> Path:
    return code_root() / "incoming"


# -- retention ---------------------------------------------------------------------------------------------------


def unused_archives(before: datetime) -> QuerySet[CodeArchive]:
    """Stored archives that no unfinished or recurring job, sweep or recipe has, and that no job has used since."""
    jobs = Job.objects.filter(code=OuterRef("pk")).filter(Q(finished_at=None) | Q(finished_at__gte=before))
    kept = (
        RecurringJob.objects.filter(code=OuterRef("pk")),
        Sweep.objects.unfinished().filter(code=OuterRef("pk")),
        RecipeVersion.objects.latest_ones().filter(code=OuterRef("pk")),
    )
    return CodeArchive.objects.stored().filter(~Exists(jobs), *(~Exists(rows) for rows in kept), used_at__lt=before)


def delete_files(archives: QuerySet[CodeArchive]) -> None:
    """Mark the archives as deleted, whose rows stay, and delete their files once that is committed."""
    for archive in archives:
        unused = CodeArchive.objects.filter(pk=archive.pk, used_at=archive.used_at)  # nor uploaded or used meanwhile
        if unused.update(stored=False):
            transaction.on_commit(partial(_delete_file, archive))


def _delete_file(archive: CodeArchive) -> None:
    """Delete the file, unless it was uploaded again since; the UPDATE locks the row against that."""
    with transaction.atomic():
        if CodeArchive.objects.filter(pk=archive.pk, stored=False).update(stored=False):
            path_of(archive).unlink(missing_ok=True)


def unfinished_uploads() -> Iterator[Path]:
    """Uploads on their way, and those whose process was killed."""
    return _incoming().glob("*")


def archives_in_folder() -> Iterator[Path]:
    """Files of all archives of teams."""
    return (path for path in code_root().glob(f"*/*{ARCHIVE}") if path.parent.name.isdecimal())


def without_row(paths: Sequence[Path]) -> list[Path]:
    """The files whose archive is not stored, as the database says: a process was killed before the one or the other."""
    keys = {path: _key_of(path) for path in paths}
    digests = {digest for _, digest in keys.values()}
    stored = set(CodeArchive.objects.stored().filter(digest__in=digests).values_list("team_id", "digest"))
    return [path for path, key in keys.items() if key not in stored]


def _key_of(path: Path) -> tuple[int, str]:
    """Team and digest of the archive."""
    return int(path.parent.name), path.name.removesuffix(ARCHIVE)


def delete_unless_stored(path: Path) -> None:
    """Delete the file, unless it was uploaded meanwhile; the team is locked against that, as by an upload."""
    team, _ = _key_of(path)
    with transaction.atomic():
        list(Team.objects.select_for_update(no_key=True).filter(pk=team).values_list("pk"))
        for unneeded in without_row([path]):
            unneeded.unlink(missing_ok=True)


def note_use(archives: Iterable[CodeArchive]) -> None:
    """Record that jobs are submitted with these archives; raise `InvalidSpec` if one was deleted meanwhile."""
    ids = {archive.pk for archive in archives}
    if ids and CodeArchive.objects.stored().filter(pk__in=ids).update(used_at=timezone.now()) < len(ids):
        raise InvalidSpec.at("/code", "no_such_code", "The code was deleted meanwhile: upload it again.")
