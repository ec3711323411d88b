"""Forecasts when jobs start and end."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from insight_app.models import ForecastRun
from insight_app.start_forecasts.runs import ForecastsAreRunning, forecast_jobs, run_now


class Command(BaseCommand):
    help = "Forecasts when the jobs of the queue start and end. The scheduler does so after rounds."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=int, nargs="?", help="The run that the scheduler has claimed.")

    def handle(self, *args: Any, **options: Any) -> None:
        now, pk = timezone.now(), options["run"]
        try:
            run = run_now(now) if pk is None else ForecastRun.objects.filter(pk=pk).first()
        except ForecastsAreRunning as error:
            raise CommandError(str(error)) from None
        if run is None:
            raise CommandError("no round has been committed yet" if pk is None else f"there is no run {pk}")
        run = forecast_jobs(run, now)
        self.stdout.write(run.message or f"{run.jobs:,} jobs forecast from {run.draws} futures")
