"""Admission of the spec of a recurring job: that of a job, of which each run is one."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from jobs_app.errors import InvalidSpec
from jobs_app.models import RecurringJob, Team
from jobs_app.submission.admission import Admitted
from jobs_app.submission.submit import admitted
from web.rest.errors import Fault

OF_ONE_RUN = {
    "after": "A recurring job waits for no job: leave after out.",
    "begin_time": "The schedule says when each run begins: leave begin_time out.",
    "deadline": "A deadline is one moment, and the runs are many: leave it out, or give time_limit.",
}
"""Fields of a job that have no meaning for runs, and what to do instead."""
ARRAY_IS_NOT_REPLACED = "A run of an array is not cancelled for the next: choose forbid or allow, or leave array out."

Spec = Mapping[str, Any]


def admitted_spec(spec: Any, owner: User, team: Team | None = None) -> Admitted:
    """Admit the spec for this owner, within the limits of the team whoever it is; faults are below `/spec`."""
    faults = [_fault(name) for name in OF_ONE_RUN if isinstance(spec, Mapping) and spec.get(name)]
    try:
        job = admitted(_for_team(spec, team), owner)
    except InvalidSpec as error:
        below = [
            Fault(pointer=f"/spec{one['pointer']}", code=one["code"], detail=one["detail"]) for one in error.faults
        ]
        raise InvalidSpec([*faults, *below]) from None
    if faults:
        raise InvalidSpec(faults)
    return job


def stored_spec(spec: Spec) -> dict[str, Any]:
    """The spec as it was written, without its team, which may be renamed, and without anchors of YAML."""
    return {name: value for name, value in spec.items() if name != "team" and not name.startswith("x-")}


def without_times(spec: Spec) -> dict[str, Any]:
    """The spec of a job, without what it cannot have as a recurring one."""
    return {name: value for name, value in spec.items() if name not in OF_ONE_RUN}


def refuse_replaced_array(concurrency: str, spec: Spec) -> None:
    """Raise `InvalidSpec` for an array that would be cancelled: the loop of engines has no time for its members."""
    if concurrency == RecurringJob.Concurrency.REPLACE and spec.get("array"):
        raise InvalidSpec.at("/concurrency", "array", ARRAY_IS_NOT_REPLACED)


def why_stopped(recurring: RecurringJob) -> str:
    """Why nothing may be submitted in the name of its owner; empty if it may be."""
    team, owner = recurring.team, recurring.owner
    if recurring.paused_because == RecurringJob.OWNER_LINKED:
        return recurring.paused_because
    return f"The team {team} is retired." if team.retired_at else why_owner_is_gone(owner, team)


def why_owner_is_gone(owner: User, team: Team) -> str:
    if not owner.is_active:
        return f"The account of its owner, {owner}, is deactivated."
    if not owner.is_staff and not team.members.filter(pk=owner.pk).exists():
        return f"Its owner, {owner}, is no longer in the team {team}."
    return ""


def _for_team(spec: Any, team: Team | None) -> Any:
    if team is None or not isinstance(spec, Mapping):
        return spec
    if spec.get("team", team.name) != team.name:
        raise InvalidSpec.at("/team", "immutable", f"A recurring job stays in its team, {team}: add one for the other.")
    return {**spec, "team": team.name}


def _fault(name: str) -> Fault:
    return Fault(pointer=f"/spec/{name}", code="not_recurring", detail=OF_ONE_RUN[name])
