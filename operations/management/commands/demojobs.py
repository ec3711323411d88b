"""Submit the demo's sample jobs one after the other."""

import time
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections

from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from jobs_app.submission.submit import submit_job
from operations.demo import UNFINISHED, somebody_looks, submit_another
from operations.sample_jobs import sample_jobs

AT_ONCE = 8


class Command(BaseCommand):
    help = (
        "Submits the first sample jobs that do not exist yet, eight at once and the others one at a time; then further "
        f"ones while somebody looks at the pages and fewer than {UNFINISHED} are unfinished. Ends with its owner."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--owner", required=True)
        parser.add_argument("--interval", type=float, default=8, help="Seconds between two submissions.")

    def handle(self, *args: Any, **options: Any) -> None:
        name, interval = options["owner"], options["interval"]
        self._submit_first(User.objects.get(username=name), interval)
        while owner := _user(name):
            if somebody_looks():
                self._submit_another(owner)
            time.sleep(interval)

    @staticmethod
    def _submit_first(owner: User, interval: float) -> None:
        for position, spec in enumerate(sample_jobs()):
            if Job.objects.filter(owner=owner, name=spec["name"]).exists():
                continue
            if position >= AT_ONCE:
                time.sleep(interval)
            submit_job(spec, owner=owner)

    def _submit_another(self, owner: User) -> None:
        try:
            submit_another(owner)
        except InvalidSpec as error:  # the sample's types or its team are gone: an administrator has other plans
            self.stderr.write(f"No sample job was submitted: {error}")


def _user(name: str) -> User | None:
    close_old_connections()
    return User.objects.filter(username=name).first()
