"""Fits the model of durations."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from accounting_app.durations.boosted_model import fit_model


class Command(BaseCommand):
    help = "Fits the model of durations to the jobs that ended last. The scheduler does so each night."

    def handle(self, *args: Any, **options: Any) -> None:
        row = fit_model(timezone.now())
        self.stdout.write(row.message or f"fitted to {row.jobs:,} jobs")
