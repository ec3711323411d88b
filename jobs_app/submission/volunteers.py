"""On which machines that joined a job may run, from what it, its team and the rest of its spec say."""

from collections.abc import Mapping
from typing import Any

from cluster_app.storage import Volunteers
from jobs_app.models import Team

WIDTH = [Volunteers.NONE, Volunteers.TRUSTED, Volunteers.ANY]


def volunteers_of(columns: Mapping[str, Any], team: Team) -> Volunteers:
    """Those that the job and its team allow; with secrets trusted ones only, and none with a workdir of the site."""
    asked = Volunteers(columns.get("volunteers", team.volunteers))
    most = Volunteers.NONE if columns.get("workdir") else Volunteers.TRUSTED if columns.get("secrets") else asked
    return min(asked, Volunteers(team.volunteers), most, key=WIDTH.index)
