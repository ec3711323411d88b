"""What a job may be called before another team: receipts and reasons cross the border between teams, names do not."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from jobs_app.models import Job


@dataclass(frozen=True)
class Named:
    name: str
    team_id: int
    team: str

    def before(self, team_id: int) -> str:
        """Its name for its own team; for others, only whose it is."""
        return self.name if team_id == self.team_id else f"a job of team {self.team}"


def names_of(jobs: Iterable[str]) -> dict[str, Named]:
    """By the job's id."""
    found = Job.objects.filter(pk__in=[UUID(job) for job in jobs]).select_related("team")
    named = found.only("name", "array_index", "team__name")
    return {str(job.pk): Named(str(job), job.team_id, job.team.name) for job in named}
