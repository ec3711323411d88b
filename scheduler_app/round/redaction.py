"""Redact job names across team boundaries: notes and reasons may show another team's job, but not its name."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from jobs_app.models import Job


@dataclass(frozen=True)
class JobName:
    """A job's name with its team, shown in full to that team only."""

    name: str
    team_id: int
    team: str

    def shown_to(self, team_id: int) -> str:
        """The name for members of the job's team; for others only the team."""
        return self.name if team_id == self.team_id else f"a job of team {self.team}"


def names_of(jobs: Iterable[str]) -> dict[str, JobName]:
    """Names by job id."""
    found = Job.objects.filter(pk__in=[UUID(job) for job in jobs]).select_related("team")
    named = found.only("name", "array_index", "team__name")
    return {str(job.pk): JobName(str(job), job.team_id, job.team.name) for job in named}
