"""Back up the service into one file."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from database.dump import DumpFailed
from operations.backup import Manifest, note_backup, write_backup


class Command(BaseCommand):
    help = (
        "Writes the database and the archives of code into one file, while the service runs. Logs, working folders and "
        "checkpoints of jobs are not in it, nor is MOTLEY_SECRET_KEY, with which tokens of running jobs are signed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="A new file, such as motley.backup; - is the standard output.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            manifest = self._write(options["file"])
        except (OSError, DumpFailed) as error:
            raise CommandError(f"No backup was written. {error}") from error
        members = len(manifest["members"])
        note_backup(manifest, options["file"])
        self.stderr.write(f"Backed up the {manifest['database']} database and {members - 1} archives of code.")

    def _write(self, name: str) -> Manifest:
        if name == "-":
            return write_backup(sys.stdout.buffer)
        partial = Path(f"{name}.partial")
        if Path(name).exists():
            raise FileExistsError(f"{name} exists: name another file.")
        try:
            with _private(partial) as file:
                manifest = write_backup(file)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(name)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
        return manifest


def _private(path: Path) -> IO[bytes]:
    """A new file that nobody else may read: it has the hashes of passwords."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")
