"""Submit the demo's sample jobs one after the other."""

import time
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandParser

from jobs_app.models import Job
from jobs_app.submission.submit import submit_job
from scheduler_app.operations.sample_jobs import sample_jobs

AT_ONCE = 8


class Command(BaseCommand):
    help = "Submits the sample jobs that do not exist yet: the first eight at once, the others one at a time."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--owner", required=True)
        parser.add_argument("--interval", type=float, default=8, help="Seconds between two submissions.")

    def handle(self, *args: Any, **options: Any) -> None:
        owner = get_user_model().objects.get(username=options["owner"])
        for position, spec in enumerate(sample_jobs()):
            if Job.objects.filter(owner=owner, name=spec["name"]).exists():
                continue
            if position >= AT_ONCE:
                time.sleep(options["interval"])
            submit_job(spec, owner=owner)
