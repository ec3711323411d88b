"""Admission: checks of a parsed spec against the team, its limits, the cluster and the other jobs."""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef
from uuid_utils.compat import uuid7

from cluster_app.feasibility import VOLUNTEERS_ONLY, NodeShape, Refusal, Request, inventory, why_never
from cluster_app.feasibility_cache import ACCEPTANCE
from cluster_app.replica_size import GpusPerReplica
from cluster_app.storage import needs_of, places_of
from jobs_app.errors import InvalidSpec
from jobs_app.models import CodeArchive, Job, Reason, Team, TeamQuota
from jobs_app.secrets import missing_secrets
from jobs_app.submission.images import image_faults
from jobs_app.submission.volunteers import narrowing_words, volunteers_of
from web.rest.errors import Fault

MOST_IDS_PER_QUERY = 5000
MOST_PARSED = 10_000
"""Characters of a command in which its program is looked for: shlex takes quadratic time for a long word."""
PLAIN_FIRST_WORD = re.compile(r"""\s*([^\s'"\\]+)(?:\s|\Z)""")


@dataclass(frozen=True)
class ParsedSpec:
    """Parsed spec: columns of `Job`, dependencies, and the indices of an array."""

    columns: dict[str, Any]
    needs: list[dict[str, Any]]
    array: dict[str, Any] | None
    id: UUID = field(default_factory=uuid7)
    """Of the job, or of the array's first member."""

    @classmethod
    def of(cls, columns: dict[str, Any], **fixed: UUID) -> "ParsedSpec":
        needs, array = columns.pop("after", None), columns.pop("array", None)
        return cls(columns, needs or [], array, **fixed)


@dataclass(frozen=True)
class Admitted(ParsedSpec):
    """Admitted spec, with its team, owner and code."""

    team: Team = field(kw_only=True)
    owner: User = field(kw_only=True)
    code: CodeArchive | None = field(kw_only=True, default=None)
    waits: tuple[Reason, str] | None = field(kw_only=True, default=None)
    """Why it waits whatever GPUs are free, where the scheduler knows that."""
    note: str = field(kw_only=True, default="")
    """For the job's history."""


class Admission:
    """Admits the jobs of one user; teams, feasibility and dependencies are looked up once for all of them."""

    def __init__(
        self,
        owner: User,
        parents: Collection[UUID] = (),
        *,
        siblings: Collection[UUID] = (),
        administrator: bool = False,
    ) -> None:
        """`parents` are dependencies; `siblings` are submitted in the same batch, and need not exist yet.

        An `administrator` is not bound by the limits of teams: staff, unless by a token of a narrower scope.
        """
        self.owner, self.administrator = owner, administrator
        self._visible = {*siblings, *_visible_to(owner, [parent for parent in parents if parent not in siblings])}
        self._teams: dict[str | None, Team | InvalidSpec] = {}
        self._refusals: dict[Request, Refusal | None] = {}
        self._limits: dict[int, dict[str, int | None]] = {}
        """Team → GPU types on which it has quotas → the most GPUs that it may have there."""
        self._archives: dict[tuple[int, str], CodeArchive | None] = {}
        self._missing_secrets: dict[tuple[int, tuple[str, ...]], list[str]] = {}

    def admit(self, asked: ParsedSpec) -> Admitted:
        """Check a parsed spec; raise `InvalidSpec` with every fault."""
        columns = dict(asked.columns)
        team = self._team(columns.pop("team_name", None))
        columns["volunteers"] = volunteers_of(columns, team)
        digest = columns.pop("code_digest", None)
        code = self._code(digest, team) if digest else None
        faults = [
            *weight_faults(columns.get("weight", 1.0), team, administrator=self.administrator),
            *([] if code or not digest else [_no_such_code(digest, team)]),
            *image_faults(columns.get("image", "")),
            *self._cluster_faults(columns, team, asked_volunteers=asked.columns.get("volunteers", "")),
            *self._secret_faults(columns.get("secrets", []), columns.get("env", {}), team),
            *self._need_faults(asked.needs),
        ]
        if faults:
            raise InvalidSpec(faults)
        if "workload" not in columns:
            columns["workload"] = default_workload(columns["name"], columns["command"])
        if code is not None:
            columns["code_id"] = code.pk
        return Admitted(columns, asked.needs, asked.array, asked.id, team=team, owner=self.owner, code=code)

    def _code(self, digest: str, team: Team) -> CodeArchive | None:
        if (team.pk, digest) not in self._archives:
            self._archives[team.pk, digest] = CodeArchive.objects.stored().filter(team=team, digest=digest).first()
        return self._archives[team.pk, digest]

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
        """The nodes as they are now: a refusal never rests on the cached inventory."""
        return inventory()

    def _cluster_faults(self, columns: dict[str, Any], team: Team, *, asked_volunteers: str) -> Iterator[Fault]:
        request = request_of(columns)
        if request not in self._refusals:
            self._refusals[request] = None if ACCEPTANCE.holds(request) else why_never(request, self._inventory)
        if refusal := self._refusals[request]:
            narrowed = refusal.code == VOLUNTEERS_ONLY and asked_volunteers not in ("", columns["volunteers"])
            why = f" {narrowing_words(asked_volunteers, team)}" if narrowed else ""
            yield Fault(pointer=refusal.pointer, code=refusal.code, detail=refusal.detail + why)
        caps = (
            (team.max_gpus, "", "an administrator"),
            (team.max_gpus_per_member, " for one member", "a lead of the team"),
        )
        for cap, whose, whom in caps:
            if cap is not None and request.gpus > cap:
                remedy = (
                    f"Request {cap} or fewer."
                    if cap
                    else f"Ask {whom} to raise the limit, or submit it to another team."
                )
                text = f"Team {team} may use at most {cap} GPUs at once{whose}. {remedy}"
                yield Fault(pointer="/gpus", code="quota", detail=text)
        if (most := self._most_on_any_type(team, request.gpu_types)) is not None and request.gpus > most:
            text = f"Quotas of team {team} allow it at most {most} GPUs at once of any type that this job may use."
            remedy = f"Request {most} or fewer, or other types." if most else "Request other types."
            yield Fault(pointer="/gpus", code="quota", detail=f"{text} {remedy}")

    def _most_on_any_type(self, team: Team, gpu_types: Collection[str]) -> int | None:
        """Most GPUs of one type that quotas let the team's job have; None: there is a type without a limit."""
        if not team.has_quotas:  # type: ignore[attr-defined]  # annotated: most teams cost no query more
            return None
        if team.pk not in self._limits:
            quotas = TeamQuota.objects.filter(team=team).select_related("gpu_type")
            self._limits[team.pk] = {quota.gpu_type.name: quota.most for quota in quotas}
        limits = self._limits[team.pk]
        allowed = gpu_types or [node.gpu_type for node in self._inventory]
        most = [limits.get(name) for name in allowed]
        return None if None in most else max((limit for limit in most if limit is not None), default=None)

    def _secret_faults(self, names: list[str], env: Mapping[str, str], team: Team) -> Iterator[Fault]:
        wanted = (team.pk, tuple(names))
        if names and wanted not in self._missing_secrets:
            self._missing_secrets[wanted] = missing_secrets(names, self.owner, team)
        for position, name in enumerate(names):
            pointer = f"/secrets/{position}"
            if name in env:
                text = f"{name} is in `env`, too: leave it out there, where everybody in the team can read it."
                yield Fault(pointer=pointer, code="named_twice", detail=text)
            if name in self._missing_secrets[wanted]:
                text = f"Neither you nor team {team} has a secret {name}: set it with `motley secret set {name}`."
                yield Fault(pointer=pointer, code="no_such_secret", detail=text)

    def _need_faults(self, needs: Iterable[dict[str, Any]]) -> Iterator[Fault]:
        named: set[UUID] = set()
        for position, need in enumerate(needs):
            pointer, parent = f"/after/{position}/job", need["job"]
            if parent not in self._visible:
                yield Fault(
                    pointer=pointer, code="no_such_job", detail=f"There is no job {parent}, or you may not see it."
                )
            if parent in named:
                yield Fault(pointer=pointer, code="named_twice", detail=f"The job {parent} is listed twice.")
            named.add(parent)


def request_of(columns: dict[str, Any]) -> Request:
    """Resources that the job requests of its nodes."""
    return Request(
        gpus=columns["gpus_min"],
        gpu_types=tuple(columns.get("gpu_types", ())),
        gpu_memory_mib=columns.get("gpu_memory_mib", 0),
        cpus_per_gpu=columns.get("cpus_per_gpu", 0),
        memory_per_gpu_mib=columns.get("memory_per_gpu_mib", 0),
        uneven_gang=columns.get("uneven_gang", False),
        gpus_per_replica=GpusPerReplica.of(columns.get("gpus_per_replica", {})),
        mounts=needs_of(
            columns.get("mounts", ()),
            columns.get("image", ""),
            places_of(columns.get("volunteers", "")),
        ),
    )


def _visible_to(owner: User, wanted: list[UUID]) -> Iterator[UUID]:
    for start in range(0, len(wanted), MOST_IDS_PER_QUERY):
        some = wanted[start : start + MOST_IDS_PER_QUERY]
        yield from Job.objects.visible_to(owner).filter(pk__in=some).order_by().values_list("pk", flat=True)


def _team_of(name: str | None, owner: User) -> Team:
    """The named team; without a name the submitter's default."""
    quotas = TeamQuota.objects.filter(team=OuterRef("pk"))
    every = Team.objects.current().select_related("budget").annotate(has_quotas=Exists(quotas))
    teams = every if owner.is_staff else every.filter(members=owner)
    if found := every.default_of(owner) if name is None else teams.filter(name=name).first():
        return found
    if name is not None:
        known = Team.objects.all() if owner.is_staff else Team.objects.filter(members=owner)
        if known.filter(name=name).exists():
            raise InvalidSpec.at("/team", "team_retired", f"The team {name} is retired. {_choices(teams)}")
        raise InvalidSpec.at("/team", "no_such_team", f"You are not a member of a team {name!r}. {_choices(teams)}")
    raise InvalidSpec.at("/team", "team_needed", f"Choose a team. {_choices(teams)}")


def _choices(teams: Iterable[Team]) -> str:
    names = [team.name for team in teams]
    return (
        f"Your teams: {', '.join(names)}." if names else "You are in no team yet: an administrator can add you to one."
    )


def _no_such_code(digest: str, team: Team) -> Fault:
    text = (
        f"Team {team} has stored no code {digest[:12]}…: upload it with PUT /api/v1/teams/{team}/code/{digest}, or let "
        "`motley submit --code FOLDER` do it."
    )
    return Fault(pointer="/code", code="no_such_code", detail=text)


# -- weight ------------------------------------------------------------------------------------------------------


def weight_faults(weight: float, team: Team, *, administrator: bool) -> Iterator[Fault]:
    """Fault if the weight exceeds the team's limit; an administrator may, and `note_of_weight` records that."""
    if exceeds(weight, team) and not administrator:
        text = f"Team {team} allows a weight of at most {team.most_job_weight:g} per job."
        yield Fault(pointer="/weight", code="weight_too_large", detail=text)


def note_of_weight(weight: float, team: Team) -> str:
    """Note for the job's history; empty within the limit."""
    return f"weight {weight:g} is above the team's limit of {team.most_job_weight:g}" if exceeds(weight, team) else ""


def exceeds(weight: float, team: Team) -> bool:
    return weight > team.most_job_weight


# -- workload ----------------------------------------------------------------------------------------------------


def default_workload(name: str, command: str | list[str]) -> str:
    """Default workload: the same for jobs that run the same program and whose names differ only in digits."""
    kind = re.sub(r"[0-9]+", "", name).strip("-_. ") or name
    return f"{kind}/{_program(command)}"[:200]


def _program(command: str | list[str]) -> str:
    if isinstance(command, list):
        return command[0]
    if (plain := PLAIN_FIRST_WORD.match(command)) and "=" not in plain[
        1
    ]:  # the usual case, and a hundred times as fast
        return plain[1]
    try:
        words = shlex.split(command[:MOST_PARSED])
    except ValueError:  # an unbalanced quote, which the shell will report, or one that closes later
        words = command.split()
    programs = (word for word in words if not re.match(r"[A-Za-z_]\w*=", word))  # `A=1 python` runs python
    return next(programs, "")
