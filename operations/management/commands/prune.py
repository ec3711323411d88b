"""Delete expired rows and files (retention)."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from operations.retention import count_expired, delete_expired, run_for_the_scheduler


class Command(BaseCommand):
    help = (
        "Deletes what is older than the MOTLEY_KEEP_* settings allow, as the scheduler does once an hour: rows of the "
        "database, logs, working folders and checkpoints of ended jobs, archives of code, and files without a row."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only count what would be deleted.")
        parser.add_argument("--briefly", action="store_true", help="Delete for a few seconds, as the scheduler does.")

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        if options["dry_run"]:
            self._list(count_expired(now), "Nothing was deleted.")
            return
        run = run_for_the_scheduler(now) if options["briefly"] else delete_expired(now)
        self._list(run.removed, "Deleted.")
        if run.faults and not options["briefly"]:  # the scheduler's are shown on the page of retention
            raise CommandError("; ".join(f"{label}: {fault}" for label, fault in run.faults.items()))

    def _list(self, counts: dict[str, int], end: str) -> None:
        for label, count in counts.items():
            self.stdout.write(f"{count:>9}  {label}")
        self.stdout.write(end)
