"""Engine of agents: commands are rows that the agents fetch, reports are rows that the agents have written.

A volunteer's machine is an engine by itself; the servers of the site are one engine, whose gangs span them.

No method waits for a network. A launch is withdrawn only while no agent can have it; after that, the agent says what
became of it, or the lease has ended it (see `engines.lease_file`).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from cluster_app.models import Engine
from cluster_app.storage import Volunteers
from connections_app.agents.files import ARCHIVE, archive_of, list_at, open_archive, open_at
from connections_app.agents.gang_report import RankReport, gang_report
from connections_app.agents.gangs import STOP_COLUMNS, stop_row
from connections_app.agents.job_folders import kept_sizes
from connections_app.agents.reports import report_of
from connections_app.agents.sessions import listening_command
from connections_app.agents.silence import is_heard, is_recent, lease_is_over
from connections_app.agents.uploads import attempt_folder, discard, readings_of, size_of
from connections_app.models import OF_RANKS, Agent, AgentAttempt, EngineProbe
from engines.agent.codec import BadMessage, decode, encode
from engines.agent.network import is_loopback
from engines.gpu_readings import emulated_readings
from engines.linux import seconds_since_boot
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    EngineError,
    GpuReading,
    JobFile,
    Launch,
    LogChunk,
    NodeFault,
    NodeReport,
    NodeShare,
    NodeState,
    NoSuchFile,
    OpenedFile,
    Phase,
    PowerCommand,
    SessionCommand,
    StopReason,
    Stream,
    WatchedGpu,
)
from engines.supervision.engine_root import read_log
from jobs_app.models import Attempt, Job
from jobs_app.secrets import seal
from jobs_app.submission.volunteers import volunteers_now

FAULT_KEPT = timedelta(minutes=5)
"""For so long a server that was not ready for a gang gets no new jobs: the cause may pass by itself."""
last_readings: dict[str, tuple[datetime | None, int]] = {}
"""By the agent's name: when it joined, and the number of the readings that this process used last. Agents send them
more often than the service looks, so each process finds new ones."""


class AgentEngine:
    """The engine of this name, whose agents are one volunteer's, or those of the site's servers."""

    def __init__(self, name: str) -> None:
        self._name = name

    def nodes(self) -> list[NodeReport]:
        return nodes_of(self._name, list(Agent.objects.reporting().filter(engine__name=self._name).order_by("name")))

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {}  # nobody else gives out what is on such a machine

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        return None

    @transaction.atomic
    def launch(self, launch: Launch) -> None:
        """Store the launch for each agent of the gang, encrypted because it has the job's secrets.

        None for an attempt that was stopped; one that both sides have lost is stored anew.
        """
        known = list(AgentAttempt.objects.select_for_update().filter(attempt=launch.attempt).order_by("rank"))
        if known and not all(map(_is_lost, known)):
            return
        gang = _gang_of(launch, self._agents())
        _refuse_launch(launch, gang)
        if launch.attempt < 0:
            self._discard_tests(launch.job)
        for rank, agent in enumerate(gang):
            own = json.dumps(encode(_part_of(launch, rank, gang)))
            facts = {"job": UUID(launch.job), "launch": seal(own), "report": None, "ready_at": None, "go_at": None}
            place = {"agent": agent, "ranks": len(gang)}
            AgentAttempt.objects.update_or_create(attempt=launch.attempt, rank=rank, defaults=facts | place)

    def _discard_tests(self, job: str) -> None:
        """Remove what is left of tests of this engine that have ended; an agent that still has files removes them."""
        ended = EngineProbe.objects.filter(engine__name=self._name, ended_at__isnull=False)
        tests = [-pk for pk in ended.values_list("pk", flat=True)]
        known = AgentAttempt.objects.filter(attempt__in=tests)
        discard(job, sorted(set(known.values_list("attempt", flat=True))))
        known.delete()

    @transaction.atomic
    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Store the stop for the agents; a launch not yet fetched is withdrawn. A repeat may shorten the grace period.

        Of an attempt that was not launched, rows stay behind: a launch that comes late finds them.
        """
        rows = list(AgentAttempt.objects.select_for_update().filter(attempt=attempt).order_by("rank"))
        rows = rows or self._unlaunched(attempt)
        for row in rows:
            stop_row(row, reason=reason, grace_s=max(grace.total_seconds(), 0.0))
        AgentAttempt.objects.bulk_update(rows, STOP_COLUMNS)

    def _unlaunched(self, attempt: int) -> list[AgentAttempt]:
        """New rows of an attempt that was not launched."""
        agents = {agent.name: agent for agent in self._agents()}
        gang = [agents[node] for node in _nodes_of(attempt) if node in agents] or [*agents.values()][:1]
        job = _job_of(attempt)
        return [
            AgentAttempt.objects.create(agent=agent, attempt=attempt, job=job, rank=rank, ranks=len(gang))
            for rank, agent in enumerate(gang)
        ]

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        """Do nothing: agents are told the shares of their attempts in each answer to their messages."""

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        """Do nothing: they are in each answer, too."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return JoinedMachines().poll(attempts)

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return JoinedMachines().read_gpus({self._name: gpus})

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        row = AgentAttempt.objects.filter(attempt=attempt, rank=rank).first()
        over = row is None or row.forgotten or row.handed_over
        return read_log(attempt_folder(attempt), stream, rank, offset, limit, over=over)

    def list_files(self, job: str, path: str) -> list[JobFile]:
        """Content of a folder on the server of the latest attempt's first rank, with the archive of checkpoints."""
        archive = archive_of(UUID(job)) if not path else None
        try:
            listed = self._listed(job, path)
        except SilentServer:
            if archive is None:
                raise
            listed = []  # of a server that has died for good, say: the archive is here
        return listed if archive is None else [*listed, archive]

    def _listed(self, job: str, path: str) -> list[JobFile]:
        """Content of the folder on the server; empty for the empty path where no server has the job's files."""
        at = self._holder_of(job)
        if at is not None and at.agent.rights.sessions:
            return list_at(at.agent.name, at.attempt, job, path)
        if path:
            raise NoSuchFile
        return []

    def open_file(self, job: str, path: str) -> OpenedFile:
        if path == ARCHIVE:
            return open_archive(UUID(job))
        at = self._holder_of(job)
        if at is None or not at.agent.rights.sessions:
            raise NoSuchFile
        return open_at(at.agent.name, at.attempt, job, path)

    def _holder_of(self, job: str) -> AgentAttempt | None:
        """Rank 0 of the job's latest attempt here, while its machine has its files; raises for a silent server."""
        rows = AgentAttempt.objects.filter(agent__engine__name=self._name, job=UUID(job), rank=0, attempt__gt=0)
        row = rows.select_related("agent").order_by("-attempt").first()
        if row is None or (row.forgotten and not row.kept) or row.delivered_at is None:
            return None
        if row.agent.rights.sessions and not is_heard(row.agent):
            raise SilentServer(f"The server {row.agent.name} is not heard: its files are not reached until it is.")
        return row

    def session(self, attempt: int, rank: int) -> SessionCommand:
        row = AgentAttempt.objects.filter(attempt=attempt, rank=rank).select_related("agent").first()
        if row is None or not row.agent.rights.sessions:
            raise EngineError("There are no sessions on a machine that joined: the service cannot reach it.")
        if not is_heard(row.agent):
            raise EngineError(f"The server {row.agent.name} is not heard: there is no session until it is.")
        return listening_command(attempt, rank)

    def attempts(self) -> dict[int, bool]:
        found: dict[int, bool] = {}
        for row in AgentAttempt.objects.filter(agent__engine__name=self._name):
            found[row.attempt] = found.get(row.attempt, True) and (row.forgotten or row.handed_over)
        return found

    def sizes(self, jobs: Mapping[str, Sequence[int]]) -> dict[str, int]:
        kept = kept_sizes(jobs)
        here = {job: size_of(job, list(of)) for job, of in jobs.items()}
        return {job: size + there for job, size in here.items() if (there := kept.get(job, 0)) is not None}

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        """Remove what is here, and the rows: a server is told to remove a folder of which there is none (any more)."""
        for job, attempts in jobs.items():
            discard(job, list(attempts))
            gone = Attempt.objects.filter(pk__in=list(attempts), gone_at__isnull=False).values("pk")
            of_these = Q(forgotten=True) | Q(attempt__in=gone)  # a server that is scrapped forgets nothing
            AgentAttempt.objects.filter(of_these, attempt__in=list(attempts)).delete()

    def _agents(self) -> list[Agent]:
        """Its agents, by name."""
        agents = list(Agent.objects.short().filter(engine__name=self._name).order_by("name"))
        if not agents:
            raise NotJoined(self._name)
        return agents


class SilentServer(EngineError):
    """The server that has the files is not heard."""


class NotJoined(EngineError):
    """The engine has no machine."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No machine has joined as {name}.")


class JoinedMachines:
    """All agents, polled together in one query."""

    def nodes(self, names: Collection[str]) -> dict[str, list[NodeReport] | Exception]:
        """Reports of the machines by engine; an error in place of those that cannot be read."""
        of_engine: dict[str, list[Agent]] = {name: [] for name in names}
        engines = dict(Engine.objects.filter(name__in=names).values_list("pk", "name"))
        for agent in Agent.objects.reporting().filter(engine__in=engines).order_by("name"):
            of_engine[engines[agent.engine_id or 0]].append(agent)
        return {name: _nodes_or_fault(name, agents) for name, agents in of_engine.items()}

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        wanted, now = list(attempts), timezone.now()
        rows: dict[int, list[AgentAttempt]] = {attempt: [] for attempt in wanted}
        known = AgentAttempt.objects.filter(attempt__in=wanted).select_related("agent").only(*OF_RANKS)
        for row in known.order_by("attempt", "rank"):
            rows[row.attempt].append(row)
        return [_report_of_rows(attempt, of_ranks, now) for attempt, of_ranks in rows.items()]

    def read_gpus(self, gpus: Mapping[str, Sequence[WatchedGpu]]) -> list[GpuReading]:
        """The latest readings of the machines of these engines, each once; generated ones for emulated GPUs."""
        watched = [gpu for of in gpus.values() for gpu in of]
        of_node: dict[str, list[WatchedGpu]] = {gpu.node: [] for gpu in watched}
        for gpu in watched:
            of_node[gpu.node].append(gpu)
        columns = ("name", "joined_at", "heard_at", "gpus_read", "gpu_readings")
        agents = Agent.objects.filter(name__in=of_node, engine__name__in=gpus).only(*columns)
        told = [one for agent in agents for one in readings_of(_new_readings(agent), of_node[agent.name])]
        return [*told, *emulated_readings(watched, seconds_since_boot())]

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        name = Attempt.objects.filter(pk=attempt).values_list("engine", flat=True).get()
        AgentEngine(name).stop(attempt, reason=reason, grace=grace)


def _new_readings(agent: Agent) -> list[GpuReading]:
    """The agent's latest readings, unless this process has returned them before or another release wrote them."""
    latest, known = (agent.joined_at, agent.gpus_read), last_readings.get(agent.name)
    last_readings[agent.name] = latest
    if latest == known or (known is None and not is_recent(agent)):
        return []
    with suppress(BadMessage):
        return [decode(GpuReading, one) for one in agent.gpu_readings]
    return []


def _report_of_rows(attempt: int, rows: Sequence[AgentAttempt], now: datetime) -> AttemptReport:
    """Report on the attempt; that of a volunteer's machine is its own."""
    if not rows or not rows[0].agent.site:
        return report_of(attempt, rows[0] if rows else None, now)
    ranks = [
        RankReport(
            row.rank,
            row.agent.name,
            report_of(attempt, row, now),
            lease_is_over=lease_is_over(row.agent),
            cause=row.cause,
            note=row.cause_note,
        )
        for row in rows
    ]
    first = rows[0]
    return gang_report(attempt, ranks, first.delivered_at if first.ranks == 1 else first.go_at)


def _nodes_or_fault(name: str, agents: Sequence[Agent]) -> list[NodeReport] | Exception:
    try:
        return nodes_of(name, agents)
    except Exception as error:  # as an agent of another release, or a broken one, has left it
        return error


def nodes_of(name: str, agents: Sequence[Agent]) -> list[NodeReport]:
    """Reports of the machines of an engine; a server whose report cannot be read is silent by itself."""
    if not agents:
        raise NotJoined(name)
    return [_server_of(agent) if agent.site else _node_of(agent) for agent in agents]


def _server_of(agent: Agent) -> NodeReport:
    """Report of a server: one that was not ready for its last gang gets no new jobs for a while."""
    try:
        report = _node_of(agent)
    except BadMessage as error:
        return NodeReport(agent.name, state=NodeState.SILENT, reason=f"its report cannot be read: {error}")
    is_late = agent.fault_at is not None and abs(timezone.now() - agent.fault_at) < FAULT_KEPT
    return (
        replace(report, state=NodeState.CORDONED, reason=agent.fault) if is_late and report.state.is_heard else report
    )


def _node_of(agent: Agent) -> NodeReport:
    """Report of the machine under its own name; use of the machine by its owner is not reported."""
    report = _own_report(agent.report_text, agent.name)  # type: ignore[attr-defined]  # of `reporting`
    if agent.revoked_at is None and is_heard(agent):
        return report
    return replace(report, state=NodeState.SILENT, reason="its agent has not been heard")


@lru_cache(maxsize=4096)
def _own_report(text: str, name: str) -> NodeReport:
    """The report of this text. Nearly all are those of the turn before: to read 200 anew took half of a turn."""
    own = {"name": name, "foreign_gpus": 0, "foreign_cpus": 0, "foreign_memory_mib": 0}
    return replace(decode(NodeReport, json.loads(text)), **own)  # type: ignore[arg-type]  # names of fields


def _gang_of(launch: Launch, agents: Sequence[Agent]) -> list[Agent]:
    """The agents of the launch, in the order of ranks; a volunteer's machine is alone in its engine."""
    if not agents[0].site:
        return list(agents[:1])
    of_node = {agent.name: agent for agent in agents}
    if gone := [task.node for task in launch.tasks if task.node not in of_node]:
        raise NodeFault(f"No server of the site is {', '.join(gone)} (any more).")
    return [of_node[task.node] for task in launch.tasks]


def _part_of(launch: Launch, rank: int, gang: Sequence[Agent]) -> Launch:
    """The launch of one rank."""
    if len(gang) == 1:
        return launch
    address = gang[0].node_report.get("address", "")
    return replace(launch, tasks=[launch.tasks[rank]], master_address=address, waits=True)


def _refuse_launch(launch: Launch, gang: Sequence[Agent]) -> None:
    """Raise `NodeFault` for a machine that may not have the launch (any more)."""
    for agent in gang:
        if agent.revoked_at is not None:
            raise NodeFault(f"The machine {agent.name} may no longer work here: its token was revoked.")
        if launch.secrets and not agent.rights.secrets:
            raise NodeFault(f"The machine {agent.name} is not trusted with secrets (any more).")
        if launch.workdir is not None and not agent.rights.storage:
            raise NodeFault(f"The machine {agent.name} has no file system of the site for the job's `workdir`.")
        if len(gang) > 1 and not agent.rights.gangs:
            raise NodeFault(f"The machine {agent.name} cannot be reached by the others of a gang.")
        if _is_withheld(launch.attempt, agent):
            raise NodeFault(f"The job, or its team, does not allow it on the machine {agent.name} (any more).")
    if len(gang) > 1:
        _refuse_addresses({agent.name: agent.node_report.get("address", "") for agent in gang})


def _refuse_addresses(addresses: Mapping[str, str]) -> None:
    """Raise `NodeFault` where the servers cannot reach each other at the addresses that they have reported.

    Those of servers on one machine, for trials, may all be of this machine alone.
    """
    first, *_ = addresses
    if not addresses[first]:
        raise NodeFault(f"The other servers find no address of {first}: start its agent with --address.")
    here = [name for name, address in addresses.items() if is_loopback(address)]
    if here and len(here) < len(addresses):
        raise NodeFault(
            f"{here[0]} has the address {addresses[here[0]]}, which no other server reaches: "
            "start its agent with --address."
        )


def _is_lost(row: AgentAttempt) -> bool:
    """Whether neither the service nor the agent has the launch any more, although it has not been stopped."""
    unknown = row.report is not None and row.report["phase"] == Phase.UNKNOWN
    return unknown and not (row.launch or row.stop_reason or row.forgotten)


def _is_withheld(attempt: int, agent: Agent) -> bool:
    """Whether the present settings of the job or its team forbid this machine; tests of the engine have neither."""
    if agent.site:
        return False
    allowed = Job.objects.filter(attempts=attempt).values_list(volunteers_now(), flat=True).first()
    return allowed == Volunteers.NONE or (allowed == Volunteers.TRUSTED and not agent.trusted)


def _job_of(attempt: int) -> UUID:
    """A test of the engine, whose number is negative, has no job."""
    return Attempt.objects.filter(pk=attempt).values_list("job_id", flat=True).first() or UUID(int=0)


def _nodes_of(attempt: int) -> list[str]:
    """Names of the nodes of an attempt, in the order of ranks; of a test of the engine, its one."""
    if attempt < 0:
        return list(EngineProbe.objects.filter(pk=-attempt).values_list("nodes", flat=True).first() or [])
    return list(Attempt.objects.filter(pk=attempt).values_list("nodes", flat=True).first() or [])
