"""Machines that joined on which a job may run: the strictest of its spec, its team and its other fields."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Case, F, Value, When

from cluster_app.storage import Volunteers
from jobs_app.models import Team

WIDTH = [Volunteers.NONE, Volunteers.TRUSTED, Volunteers.ANY]


def volunteers_of(columns: Mapping[str, Any], team: Team) -> Volunteers:
    """Machines that the job and its team allow; only trusted ones with secrets, none with a workdir of the site."""
    asked = Volunteers(columns.get("volunteers", team.volunteers))
    most = Volunteers.NONE if columns.get("workdir") else Volunteers.TRUSTED if columns.get("secrets") else asked
    return min(asked, Volunteers(team.volunteers), most, key=WIDTH.index)


def narrowing_words(asked: str, team: Team) -> str:
    """Why a job may run on fewer machines than it asks for, if the team's setting is the stricter one."""
    if WIDTH.index(Volunteers(asked)) <= WIDTH.index(Volunteers(team.volunteers)):
        return ""
    setting = f"The job asks for `{asked}`, but its team {team.name} allows `{team.volunteers}`"
    return f"{setting}, and the stricter of both applies; an administrator can change the team's."


def volunteers_now() -> Case:
    """Database expression: machines that a job and its team allow now; the team may have become stricter since."""
    allows = [(Volunteers.NONE, WIDTH), (Volunteers.TRUSTED, [Volunteers.ANY])]
    narrowed = [When(team__volunteers=team, volunteers__in=wider, then=Value(team)) for team, wider in allows]
    return Case(*narrowed, default=F("volunteers"))
