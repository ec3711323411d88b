"""Drop what is out of date."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from scheduler_app.pruning import out_of_date, prune


class Command(BaseCommand):
    help = "Drops what is out of date (MOTLEY_KEEP_…); the scheduler does the same once an hour, a few seconds long."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say what would go.")

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        counts = out_of_date(now) if options["dry_run"] else prune(now)
        for words, count in counts.items():
            self.stdout.write(f"{count:>9}  {words}")
        self.stdout.write("Nothing was dropped." if options["dry_run"] else "Dropped.")
