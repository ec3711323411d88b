"""What a team allows its members, as faults of what they asked."""

from collections.abc import Iterator

from django.contrib.auth.models import User

from jobs_app.errors import Fault
from jobs_app.models import Team


def weight_faults(weight: float, team: Team, user: User) -> Iterator[Fault]:
    """Staff may exceed the team's limit; `note_of_weight` says so in the job's history."""
    if exceeds(weight, team) and not user.is_staff:
        text = f"Team {team} allows a job at most weight {team.most_job_weight:g}."
        yield Fault(pointer="/weight", code="weight_too_large", detail=text)


def note_of_weight(weight: float, team: Team) -> str:
    """For the job's history; empty within the limit."""
    return f"weight {weight:g} is above the team's limit of {team.most_job_weight:g}" if exceeds(weight, team) else ""


def exceeds(weight: float, team: Team) -> bool:
    return weight > team.most_job_weight
