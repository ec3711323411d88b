"""Restore a backup."""

import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from engines.protocol import EngineError
from operations.restore import GRACE, NotRestored, restore_backup, skip_used_numbers, stop_strays
from operations.unfinished_restore import forget_unfinished_restore


class Command(BaseCommand):
    help = (
        "Replaces the database by that of a backup, of this version or an older one, and adds its archives of code. "
        "Stop the service first. Attempts that were launched after the backup are stopped as if they were preempted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="File that `manage.py backup` has written.")
        parser.add_argument("--replace", action="store_true", help="Even if the database has jobs: they are lost.")

    def handle(self, *args: Any, **options: Any) -> None:
        began_s = time.monotonic()
        try:
            manifest, lease_s, had_machines = restore_backup(options["file"], replace=options["replace"])
        except NotRestored as error:
            raise CommandError(f"Nothing was restored. {error}") from error
        self.stdout.write(f"Restored the backup of {manifest['taken_at'][:19]} (version {manifest['version']}).")
        try:
            skip_used_numbers(had_machines=had_machines)
            left = stop_strays(patience_s=2 * GRACE.total_seconds())
        except EngineError as error:
            raise CommandError(
                f"Attempts that were launched after the backup were not looked for: {error} Mend that and restore the "
                "file again, before the service starts: GPUs may be held by processes that it does not know."
            ) from error
        if lease_s:
            self._outlast_leases(began_s, lease_s)
        forget_unfinished_restore()
        if left:
            names = ", ".join(f"{stray.attempt} of {stray.engine}" for stray in left)
            raise CommandError(f"These attempts still run: {names}. Start the service when they have ended.")
        self.stdout.write("Start the service: jobs go on from their last checkpoints.")

    def _outlast_leases(self, began_s: float, lease_s: float) -> None:
        """Wait until no job can be left at a machine that joined; the service gave its last answer before we began."""
        left_s = max(began_s + lease_s - time.monotonic(), 0.0)
        self.stdout.write(f"Machines that joined stop their jobs by themselves: waiting {left_s:.0f} s for that.")
        self.stdout.flush()
        time.sleep(left_s)
