"""A run of the policy lab, in the process that the scheduler starts for it."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from insight_app.lab.runs import forget_old_runs
from insight_app.lab.simulations import simulate_run
from insight_app.models import LabRun


class Command(BaseCommand):
    help = "Simulates a run of the policy lab that the scheduler has claimed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=int, help="Its number.")

    def handle(self, *args: Any, **options: Any) -> None:
        run = LabRun.objects.filter(pk=options["run"], state=LabRun.State.RUNNING).select_related("owner").first()
        if run is None:
            raise CommandError(f"there is no lab run {options['run']} that has been claimed")
        simulate_run(run, timezone.now())
        forget_old_runs()
