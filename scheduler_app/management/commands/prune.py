"""Delete expired rows (retention)."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from scheduler_app.round.retention import count_expired, delete_expired


class Command(BaseCommand):
    help = "Deletes rows older than the MOTLEY_KEEP_* settings allow; the scheduler does so once an hour."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only count what would be deleted.")

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        counts = count_expired(now) if options["dry_run"] else delete_expired(now)
        for words, count in counts.items():
            self.stdout.write(f"{count:>9}  {words}")
        self.stdout.write("Nothing was deleted." if options["dry_run"] else "Deleted.")
