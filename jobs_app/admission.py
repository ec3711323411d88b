"""What a spec alone cannot know of its job: the team, its limits, the cluster, the other jobs."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from uuid_utils.compat import uuid7

from cluster_app.acceptance import ACCEPTANCE
from cluster_app.feasibility import NodeShape, Refusal, Request, inventory, why_never
from jobs_app.errors import Fault, InvalidSpec
from jobs_app.limits import weight_faults
from jobs_app.models import Job, Team
from jobs_app.workload import default_workload

MOST_IDS_PER_QUERY = 5000


@dataclass(frozen=True)
class Asked:
    """One parsed spec: the columns of its jobs, the jobs that they wait for, and the indices of an array."""

    columns: dict[str, Any]
    needs: list[dict[str, Any]]
    array: dict[str, int] | None
    id: UUID = field(default_factory=uuid7)
    """Of the job, or of the array's first."""

    @classmethod
    def of(cls, columns: dict[str, Any], **fixed: UUID) -> "Asked":
        needs, array = columns.pop("after", None), columns.pop("array", None)
        return cls(columns, needs or [], array, **fixed)


@dataclass(frozen=True)
class Admitted(Asked):
    """One that was found good: for whom it is queued."""

    team: Team = field(kw_only=True)
    owner: User = field(kw_only=True)


class Admission:
    """Checks the jobs of one person; what was looked up for one of them is not looked up for the next."""

    def __init__(self, owner: User, parents: Collection[UUID] = (), *, siblings: Collection[UUID] = ()) -> None:
        """`parents`: the jobs waited for; `siblings` are submitted in the same breath, and need not exist yet."""
        self.owner = owner
        self._visible = {*siblings, *_visible_to(owner, [parent for parent in parents if parent not in siblings])}
        self._teams: dict[str | None, Team | InvalidSpec] = {}
        self._refusals: dict[Request, Refusal | None] = {}

    def admit(self, asked: Asked) -> Admitted:
        """The job as it will be queued, or `InvalidSpec` with every fault."""
        columns = dict(asked.columns)
        team = self._team(columns.pop("team_name", None))
        faults = [
            *weight_faults(columns.get("weight", 1.0), team, self.owner),
            *self._cluster_faults(columns, team),
            *self._need_faults(asked.needs),
        ]
        if faults:
            raise InvalidSpec(faults)
        if "workload" not in columns:
            columns["workload"] = default_workload(columns["name"], columns["command"])
        return Admitted(columns, asked.needs, asked.array, asked.id, team=team, owner=self.owner)

    def _team(self, name: str | None) -> Team:
        if name not in self._teams:
            try:
                self._teams[name] = _team_of(name, self.owner)
            except InvalidSpec as refusal:
                self._teams[name] = refusal
        found = self._teams[name]
        if isinstance(found, InvalidSpec):
            raise found
        return found

    @cached_property
    def _inventory(self) -> list[NodeShape]:
        """As it is now: to refuse by."""
        return inventory()

    def _cluster_faults(self, columns: dict[str, Any], team: Team) -> Iterator[Fault]:
        request = request_of(columns)
        if request not in self._refusals:
            self._refusals[request] = None if ACCEPTANCE.holds(request) else why_never(request, self._inventory)
        if refusal := self._refusals[request]:
            yield Fault(pointer=refusal.pointer, code=refusal.code, detail=refusal.detail)
        for cap, whose in ((team.max_gpus, ""), (team.max_gpus_per_member, " in one member's jobs")):
            if cap is not None and request.gpus > cap:
                text = f"Team {team} may use at most {cap} GPUs at once{whose}; ask for that or fewer."
                yield Fault(pointer="/gpus", code="quota", detail=text)

    def _need_faults(self, needs: Iterable[dict[str, Any]]) -> Iterator[Fault]:
        named: set[UUID] = set()
        for position, need in enumerate(needs):
            pointer, parent = f"/after/{position}/job", need["job"]
            if parent not in self._visible:
                yield Fault(pointer=pointer, code="no_such_job", detail=f"There is no job {parent} that you may see.")
            if parent in named:
                yield Fault(
                    pointer=pointer, code="named_twice", detail=f"The job {parent} is named twice; say it once."
                )
            named.add(parent)


def request_of(columns: dict[str, Any]) -> Request:
    """What the job asks of its nodes."""
    return Request(
        gpus=columns["gpus_min"],
        gpu_types=tuple(columns.get("gpu_types", ())),
        gpu_memory_mib=columns.get("gpu_memory_mib", 0),
        cpus_per_gpu=columns.get("cpus_per_gpu", 0),
        memory_per_gpu_mib=columns.get("memory_per_gpu_mib", 0),
        uneven_gang=columns.get("uneven_gang", False),
    )


def _visible_to(owner: User, wanted: list[UUID]) -> Iterator[UUID]:
    for start in range(0, len(wanted), MOST_IDS_PER_QUERY):
        some = wanted[start : start + MOST_IDS_PER_QUERY]
        yield from Job.objects.visible_to(owner).filter(pk__in=some).order_by().values_list("pk", flat=True)


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
