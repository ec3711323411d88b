"""Submitting: from a spec that a person wrote to jobs in the queue."""

import re
import shlex
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from cluster_app.feasibility import Request, inventory, why_never
from jobs_app.errors import Fault, InvalidSpec
from jobs_app.models import Job, JobArray, JobDependency, JobEvent, JobTag, Reason, Team
from jobs_app.spec import parse_spec, spec_of


def submit_job(data: Any, *, owner: User) -> Job:
    """Queue the job that the spec describes; for an array all of it, and the answer is its first."""
    columns, needs, array = _checked(parse_spec(data), owner)
    return _queue(columns, needs, array)


def clone_job(job: Job, *, owner: User) -> Job:
    """Submit the same again, as the person who asks."""
    return submit_job({name: value for name, value in spec_of(job).items() if name != "after"}, owner=owner)


Needs = list[dict[str, Any]]


def _checked(columns: dict[str, Any], owner: User) -> tuple[dict[str, Any], Needs, dict[str, int] | None]:
    """What the spec alone cannot know: the team, its limits, the cluster, the other jobs."""
    needs, array = columns.pop("after", []), columns.pop("array", None)
    team = _team_of(columns.pop("team_name", None), owner)
    faults = [*_weight_faults(columns, team, owner), *_cluster_faults(columns, team), *_need_faults(needs, owner)]
    if faults:
        raise InvalidSpec(faults)
    columns.setdefault("workload", default_workload(columns["name"], columns["command"]))
    return columns | {"team": team, "owner": owner}, needs, array


@transaction.atomic
def _queue(columns: dict[str, Any], needs: Needs, array: dict[str, int] | None) -> Job:
    indices: Iterable[int | None] = range(array["start"], array["end"] + 1) if array else [None]
    parent = JobArray.objects.create(**array) if array else None
    fresh = {"reason": Reason.DEPENDENCY if needs else Reason.NEXT_ROUND, "message": Reason.NEXT_ROUND.label}
    if needs:
        fresh["message"] = Reason.DEPENDENCY.label
    jobs = Job.objects.bulk_create(
        [Job(**columns, **fresh, array=parent, array_index=index) for index in indices], batch_size=500
    )
    JobDependency.objects.bulk_create(
        [JobDependency(child=job, parent_id=need["job"], on=need["on"]) for job in jobs for need in needs]
    )
    JobTag.objects.bulk_create(
        [JobTag(job=job, name=name, value=value) for job in jobs for name, value in job.tags.items()], batch_size=500
    )
    JobEvent.objects.bulk_create(
        [JobEvent(job=job, kind=JobEvent.Kind.SUBMITTED, actor=job.owner) for job in jobs], batch_size=500
    )
    return jobs[0]


def default_workload(name: str, command: str | list[str]) -> str:
    """Jobs share measured rates when their names differ in digits only and they run the same program."""
    words = command if isinstance(command, list) else _words(command)
    return f"{re.sub(r'[0-9]+', '', name)}/{words[0] if words else ''}"[:200]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an unbalanced quote: the shell will say so; the workload needs only a name
        return command.split()


def _team_of(name: str | None, owner: User) -> Team:
    """The named team, or the submitter's only one."""
    teams = Team.objects.all() if owner.is_staff else Team.objects.filter(members=owner)
    mine = list(teams if name is None else teams.filter(name=name))
    if name is None and owner.is_staff:
        mine = list(Team.objects.filter(members=owner)) or mine
    if len(mine) == 1:
        return mine[0]
    if name is not None:
        raise InvalidSpec.at("/team", "no_such_team", f"You are in no team {name!r}. {_choices(teams)}")
    raise InvalidSpec.at("/team", "team_needed", f"Say for which team. {_choices(teams)}")


def _choices(teams: Iterable[Team]) -> str:
    names = [team.name for team in teams]
    return f"Yours: {', '.join(names)}." if names else "You are in none yet: an administrator adds you to one."


def _weight_faults(columns: dict[str, Any], team: Team, owner: User) -> Iterable[Fault]:
    """Staff may exceed the team's limit."""
    if columns.get("weight", 1.0) > max(team.max_job_weight, 1.0) and not owner.is_staff:
        text = f"Team {team} allows a job at most weight {max(team.max_job_weight, 1.0):g}."
        yield Fault(pointer="/weight", code="weight_too_large", detail=text)


def _cluster_faults(columns: dict[str, Any], team: Team) -> Iterable[Fault]:
    request = Request(
        gpus=columns["gpus_min"],
        gpu_types=tuple(columns.get("gpu_types", ())),
        gpu_memory_mib=columns.get("gpu_memory_mib", 0),
        cpus_per_gpu=columns.get("cpus_per_gpu", 0),
        memory_per_gpu_mib=columns.get("memory_per_gpu_mib", 0),
        uneven_gang=columns.get("uneven_gang", False),
    )
    if refusal := why_never(request, inventory()):
        yield Fault(pointer=refusal.pointer, code=refusal.code, detail=refusal.detail)
    for cap, whose in ((team.max_gpus, ""), (team.max_gpus_per_member, " in one member's jobs")):
        if cap is not None and request.gpus > cap:
            text = f"Team {team} may use at most {cap} GPUs at once{whose}; ask for that or fewer."
            yield Fault(pointer="/gpus", code="quota", detail=text)


def _need_faults(needs: Needs, owner: User) -> Iterable[Fault]:
    visible: set[UUID] = set(
        Job.objects.visible_to(owner).filter(pk__in=[need["job"] for need in needs]).values_list("pk", flat=True)
    )
    named: set[UUID] = set()
    for position, need in enumerate(needs):
        pointer, parent = f"/after/{position}/job", need["job"]
        if parent not in visible:
            yield Fault(pointer=pointer, code="no_such_job", detail=f"There is no job {parent} that you may see.")
        if parent in named:
            yield Fault(pointer=pointer, code="named_twice", detail=f"The job {parent} is named twice; say it once.")
        named.add(parent)
