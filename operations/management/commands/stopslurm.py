"""End the private Slurm cluster of the demo, and all jobs on it."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from operations.demo import private_slurm_cluster


class Command(BaseCommand):
    help = "Ends the private Slurm cluster that `make run SLURM=1` has started, and all jobs on it."

    def handle(self, *args: Any, **options: Any) -> None:
        private_slurm_cluster(settings.VAR_DIR / "slurm").down()
        self.stdout.write("The private Slurm cluster is down.")
