"""Registration of agents: join tokens, an engine with a node for each machine, rows of lists."""

import secrets
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Count, F, Min, Q

from audit_app.models import Action
from audit_app.services import note
from cluster_app.errors import GpuTypeRetired, NodeRetired
from cluster_app.lending import hours_of
from cluster_app.models import MOST_GPUS_PER_NODE, SERVERS_ENGINE, WITH_AGENTS, Engine, Gpu, Node, name_is_plain
from cluster_app.models.validators import time_zones
from cluster_app.services import add_node
from connections_app.agents.agent_replacement import leave_attempts_behind
from connections_app.errors import AgentRefused, NoSuchAgent
from connections_app.models import Agent, Standing
from connections_app.register_machine import registered_gpu_type
from engines.agent.codec import encode
from engines.agent.messages import VERSION, Joining
from jobs_app.models import Team
from jobs_app.models.team import digest_of

LIFETIME = timedelta(hours=24)
LONGEST_NOTICE = timedelta(hours=24)
LONGEST_UUID = 80
"""Of a GPU; that of its column."""
MOST_ACCOUNT_NUMBER = 2**32 - 2
MOST_OF_A_MACHINE = 2**31 - 1
"""CPUs, or MiB of memory: as many as their columns take."""


@transaction.atomic
def issue_join_token(
    name: str,
    *,
    trusted: bool,
    actor: AbstractBaseUser | None,
    now: datetime,
    lifetime: timedelta = LIFETIME,
    team: Team | None = None,
    site: bool = False,
) -> tuple[Agent, str]:
    """Make a token with which one machine may join as the node of this name, and return its text, shown this once.

    `site`: it is a server of the site, which is trusted. What a machine of the name is, no later token changes.

    `team`: whose machine it is; None: that of the name's machine of before.

    For a name that has joined, it lets another machine take its place, or the same one join anew. Until then the
    machine of before is not trusted more than it was, and one that was revoked stays so; trust is withdrawn at once.
    """
    known = Agent.objects.select_for_update().filter(name=name).first()
    if known is None:
        _refuse_name(name)
    elif known.engine is not None and known.site != site:
        raise AgentRefused(f"{name} is {Standing.of(site=known.site, trusted=known.trusted).label}: take another name.")
    trusted = trusted or site
    text = f"join_{secrets.token_urlsafe(32)}"
    facts = {
        "join_digest": digest_of(text),
        "join_expires_at": now + lifetime,
        "join_trusted": trusted,
        "site": site,
        "joined_at": None,
        "revoked_at": None,
        **({"team": team} if team is not None else {}),
    }
    agent, _ = Agent.objects.update_or_create(name=name, defaults=facts | _of_the_machine(known, trusted=trusted))
    if not trusted:
        Engine.objects.filter(agents=agent).update(trusted=False)
    said = f"lets a machine join as {Standing.of(site=site, trusted=trusted).label}"
    note(Action.TOKEN_CREATE, actor=actor, target=name, target_id=agent.pk, message=said)
    return agent, text


def _of_the_machine(known: Agent | None, *, trusted: bool) -> dict[str, Any]:
    """Update the machine that has joined for a new join token: it may lose trust; a revoked token stays invalid."""
    has_joined = known is not None and known.engine is not None
    columns: dict[str, Any] = {} if has_joined and trusted else {"trusted": trusted}
    if known is not None and known.digest and known.revoked_at is not None:
        columns["digest"] = digest_of(secrets.token_urlsafe(32))  # of a token that nobody has
    return columns


@transaction.atomic
def revoke_agent(agent: Agent, *, actor: AbstractBaseUser | None, now: datetime) -> None:
    """Revoke the machine's tokens: its jobs stop, and are queued when it counts as lost."""
    if Agent.objects.filter(pk=agent.pk, revoked_at=None).update(revoked_at=now):
        note(Action.TOKEN_REVOKE, actor=actor, target=agent.name, target_id=agent.pk, message="of a machine")


@transaction.atomic
def join(text: str, joining: Joining, now: datetime) -> Agent:
    """Register the machine that presents this join token, as an engine with one node. Idempotent.

    Raises `NoSuchAgent` for a token that is unknown, expired, revoked or used, `AgentRefused` for a machine that does
    not do, and while that of before may still run jobs.
    """
    agent = Agent.objects.select_for_update().filter(join_digest=digest_of(text), revoked_at=None).first()
    if agent is None or now >= agent.join_expires_at:
        raise NoSuchAgent("The join token is unknown, expired or revoked.")
    digest = digest_of(joining.token)
    if agent.joined_at is not None and agent.digest != digest:
        raise NoSuchAgent("The join token was used by another machine.")
    _refuse_machine(joining)
    if agent.site and not joining.gangs:
        raise AgentRefused("This agent cannot run gangs over servers: use the agent of this service's release.")
    _refuse_gpus(agent.name, [gpu.uuid for gpu in joining.node.gpus if gpu.uuid])
    if agent.joined_at is None:
        leave_attempts_behind(agent, now)
        agent.heard, agent.answers = "", []
    engine = _engine_of_servers() if agent.site else _engine_of_volunteer(agent)
    _register_node(agent, engine, joining)
    agent.engine, agent.digest, agent.machine, agent.joined_at = engine, digest, joining.machine, now
    agent.trusted, agent.job_uid = agent.join_trusted, account_number(joining.job_uid)
    agent.node_report = encode(joining.node) | {"name": agent.name}
    agent.save()
    return agent


@transaction.atomic
def try_to_join(text: str, joining: Joining, now: datetime) -> tuple[Agent, int | None]:
    """Whether the machine may join, and the number of the account of jobs on the other servers. Nothing is stored.

    Raises what `join` does, and `AgentRefused` where that account has another number here.
    """
    agent = join(text, joining, now)
    numbers = _account_numbers(agent) if agent.site else {}
    transaction.set_rollback(True)
    if numbers and joining.job_uid is not None and joining.job_uid not in numbers:
        usual, node = next(iter(numbers.items()))
        raise AgentRefused(
            f"The account of jobs has the number {joining.job_uid} here and {usual} on {node}: give it one (usermod -u "
            f"{usual}), or files on shared storage are not its own."
        )
    return agent, next(iter(numbers), None)


def service_name() -> str:
    """What tells this service from others that have, or had, its address: when its database was made.

    A backup that is restored has it, too.
    """
    made = MigrationRecorder.Migration.objects.aggregate(at=Min("applied"))["at"]
    return made.isoformat() if made is not None else ""


def account_number(told: int | None) -> int | None:
    """The number of an account as a machine tells it; None for one that Linux has not."""
    return told if told is not None and 0 <= told <= MOST_ACCOUNT_NUMBER else None


def _account_numbers(agent: Agent) -> dict[int, str]:
    """Numbers of the account of jobs on the other servers, the most usual first, each with one of these."""
    others = Agent.objects.filter(site=True, engine__isnull=False, revoked_at=None, job_uid__isnull=False)
    names: dict[int, list[str]] = defaultdict(list)
    for other in others.exclude(pk=agent.pk).order_by("name"):
        if other.job_uid is not None:
            names[other.job_uid].append(other.name)
    return {number: of[0] for number, of in sorted(names.items(), key=lambda item: -len(item[1]))}


def _engine_of_volunteer(agent: Agent) -> Engine:
    facts = {"kind": Engine.Kind.AGENT, "trusted": agent.join_trusted}
    return Engine.objects.update_or_create(name=agent.name, defaults=facts)[0]


def _engine_of_servers() -> Engine:
    """The engine of all servers of the site, which the first of them adds."""
    engine, _ = Engine.objects.get_or_create(name=SERVERS_ENGINE, defaults={"kind": Engine.Kind.SERVERS})
    if engine.kind != Engine.Kind.SERVERS:
        raise AgentRefused(
            f"The engine {SERVERS_ENGINE} is of the kind {engine.kind}: servers need this name for theirs."
        )
    return engine


def _register_node(agent: Agent, engine: Engine, joining: Joining) -> None:
    report, lending, name = joining.node, joining.lending, agent.name
    memory_mib = min((gpu.memory_mib for gpu in report.gpus if gpu.memory_mib), default=0)
    try:
        node = add_node(
            name,
            registered_gpu_type(report.gpu_type, memory_mib),
            gpus=len(report.gpus),
            cpus=report.cpus,
            memory_mib=report.memory_mib,
            engine=engine.name,
            emulated=joining.emulated,
            uuids=[gpu.uuid for gpu in report.gpus if gpu.uuid],
        )
    except (GpuTypeRetired, NodeRetired) as error:
        raise AgentRefused(str(error)) from error
    window: dict[str, Any] = {"lent_from": None, "lent_until": None}
    if lending is not None:
        window = {"lent_from": lending.begins, "lent_until": lending.ends, "lent_zone": lending.zone}
    kind = Node.CapacityType.STABLE if agent.site else Node.CapacityType.VOLUNTEER
    Node.objects.filter(pk=node.pk).update(capacity_type=kind, notice_s=int(joining.notice.total_seconds()), **window)


def _refuse_name(name: str) -> None:
    try:
        name_is_plain(name)
    except ValidationError as error:
        raise AgentRefused(" ".join(error.messages)) from error
    if name == SERVERS_ENGINE or Engine.objects.filter(name=name).exists() or Node.objects.filter(name=name).exists():
        raise AgentRefused(f"An engine or a node has the name {name}: choose another.")


def _refuse_machine(joining: Joining) -> None:
    report, lending = joining.node, joining.lending
    if joining.version != VERSION:
        raise AgentRefused(f"This service speaks version {VERSION} with agents: use the agent of its release.")
    if not 1 <= len(report.gpus) <= MOST_GPUS_PER_NODE or report.cpus < 1 or report.memory_mib < 1:
        raise AgentRefused(f"A machine has 1 to {MOST_GPUS_PER_NODE} GPUs, CPUs and memory.")
    if max(report.cpus, report.memory_mib, *(gpu.memory_mib for gpu in report.gpus)) > MOST_OF_A_MACHINE:
        raise AgentRefused(f"CPUs and MiB of memory are at most {MOST_OF_A_MACHINE:,}.")
    try:
        name_is_plain(report.gpu_type)
    except ValidationError as error:
        raise AgentRefused(f"Its GPUs have a type without a plain name. {' '.join(error.messages)}") from error
    if not timedelta() <= joining.notice <= LONGEST_NOTICE:
        raise AgentRefused("A notice is from 0 s to 24 h.")
    if lending is not None and (lending.zone not in time_zones() or lending.begins == lending.ends):
        raise AgentRefused("The hours need a time zone such as Europe/Berlin, and a begin that is not their end.")


def _refuse_gpus(node: str, uuids: Sequence[str]) -> None:
    """Raise `AgentRefused` for GPUs that are named twice, or that another node has."""
    if len(set(uuids)) < len(uuids) or any(len(uuid) > LONGEST_UUID for uuid in uuids):
        raise AgentRefused(f"Each GPU of a machine has a UUID of its own, of at most {LONGEST_UUID} characters.")
    other = Gpu.objects.filter(uuid__in=uuids).exclude(node__name=node).first()
    if other is not None:
        raise AgentRefused(
            f"The GPU {other.uuid} belongs to the node {other.node}: a machine is one node only. Leave one out."
        )


MOST_SHOWN = 200


class JoinedMachine(NamedTuple):
    """A machine with its node, once it has joined."""

    agent: Agent
    state: Agent.State
    node: Node | None
    gpus: int
    hours: str


def joined_machines(user: User, now: datetime) -> list[JoinedMachine]:
    """The machines that the user may see, by name; those that were revoked come last."""
    agents = Agent.objects.visible_to(user).select_related("team")
    shown = list(agents.order_by(F("revoked_at").asc(nulls_first=True), "name")[:MOST_SHOWN])
    nodes = Node.objects.filter(name__in=[agent.name for agent in shown], engine__kind__in=WITH_AGENTS)
    counted = nodes.select_related("gpu_type").annotate(gpus_present=Count("gpu", filter=Q(gpu__present=True)))
    of_name = {node.name: node for node in counted}
    return [_shown(agent, of_name.get(agent.name), now) for agent in shown]


def _shown(agent: Agent, node: Node | None, now: datetime) -> JoinedMachine:
    gpus = getattr(node, "gpus_present", 0)
    return JoinedMachine(agent, agent.state_at(now), node, gpus, hours_of(node) if node is not None else "")
