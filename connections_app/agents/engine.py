"""Engine of one agent: commands are rows that the agent fetches, reports are rows that the agent has written.

No method waits for a network. A launch is withdrawn only while no agent can have it; after that, the agent says what
became of it, or the lease has ended it (see `engines.lease_file`).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from cluster_app.storage import Volunteers
from connections_app.agents.reports import report_of
from connections_app.agents.uploads import attempt_folder, discard, readings_of, size_of
from connections_app.models import Agent, AgentAttempt
from engines.agent.codec import BadMessage, decode, encode
from engines.gpu_readings import emulated_readings
from engines.linux import seconds_since_boot
from engines.protocol import (
    AttemptReport,
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

SILENT_AFTER_S = 10.0
"""Without a new message for so long, the node is reported as silent: its heartbeats end."""
last_news: dict[str, tuple[tuple[int, datetime | None], float]] = {}
"""By the agent's name: its last new message, and when this process found it. Engines are made anew at will."""
NEVER = -inf
last_readings: dict[str, tuple[datetime | None, int]] = {}
"""By the agent's name: when it joined, and the number of the readings that this process used last. Agents send them
more often than the service looks, so each process finds new ones."""


class AgentEngine:
    """The engine of the agent with this name.

    Whether the agent is heard is told by the count of its messages and our own monotonic clock. Only of the message
    that a new process finds first, its time is compared with this machine's.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def nodes(self) -> list[NodeReport]:
        return [_node_of(self._agent())]

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {}  # its owner does with it as the owner likes

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        return None

    @transaction.atomic
    def launch(self, launch: Launch) -> None:
        """Store the launch for the agent, encrypted because it has the job's secrets; none for a stopped attempt."""
        row = AgentAttempt.objects.select_for_update().filter(attempt=launch.attempt).first()
        if row is not None and not _is_lost(row):
            return
        agent = self._agent()
        if agent.revoked_at is not None:
            raise NodeFault(f"The machine {self._name} may no longer work here: its token was revoked.")
        if launch.secrets and not agent.trusted:
            raise NodeFault(f"The machine {self._name} is not trusted with secrets (any more).")
        if _is_withheld(launch.attempt, agent):
            raise NodeFault(f"The job, or its team, does not allow it on the machine {self._name} (any more).")
        facts = {"agent": agent, "job": UUID(launch.job), "launch": seal(json.dumps(encode(launch))), "report": None}
        AgentAttempt.objects.update_or_create(attempt=launch.attempt, defaults=facts)

    @transaction.atomic
    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        """Store the stop for the agent; a launch not yet fetched is withdrawn. A repeat may shorten the grace period.

        Of an attempt that was not launched, a row stays behind: a launch that comes late finds it.
        """
        new = {"agent": self._agent(), "job": _job_of(attempt)}
        row, _ = AgentAttempt.objects.select_for_update().get_or_create(attempt=attempt, defaults=new)
        grace_s = max(grace.total_seconds(), 0.0)
        row.stop_grace_s = min(row.stop_grace_s, grace_s) if row.stop_reason else grace_s
        row.stop_reason = row.stop_reason or reason
        if row.delivered_at is None:
            row.launch, row.forgotten = "", True
        row.save(update_fields=["stop_reason", "stop_grace_s", "launch", "forgotten"])

    def lower(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        """Do nothing: CPUs and memory of a job on such a machine are fixed when it starts."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        return JoinedMachines().poll(attempts)

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return JoinedMachines().read_gpus({self._name: gpus})

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        row = AgentAttempt.objects.filter(attempt=attempt).first()
        over = row is None or row.forgotten or row.handed_over
        return read_log(attempt_folder(attempt), stream, rank, offset, limit, over=over)

    def list_files(self, job: str, path: str) -> list[JobFile]:
        raise EngineError("The files of a job on a machine that joined are there: the service cannot reach them.")

    def open_file(self, job: str, path: str) -> OpenedFile:
        raise NoSuchFile

    def session(self, attempt: int, rank: int) -> SessionCommand:
        raise EngineError("There are no sessions on a machine that joined: the service cannot reach it.")

    def attempts(self) -> dict[int, bool]:
        rows = AgentAttempt.objects.filter(agent__name=self._name)
        return {row.attempt: row.forgotten or row.handed_over for row in rows}

    def sizes(self, jobs: Mapping[str, Sequence[int]]) -> dict[str, int]:
        return {job: size_of(job, list(attempts)) for job, attempts in jobs.items()}

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        for job, attempts in jobs.items():
            discard(job, list(attempts))
            AgentAttempt.objects.filter(attempt__in=list(attempts), forgotten=True).delete()

    def _agent(self) -> Agent:
        agent = Agent.objects.filter(name=self._name).first()
        if agent is None:
            raise NotJoined(self._name)
        return agent


class NotJoined(EngineError):
    """The engine has no machine."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No machine has joined as {name}.")


class JoinedMachines:
    """All agents, polled together in one query."""

    def nodes(self, names: Collection[str]) -> dict[str, NodeReport | Exception]:
        """Reports of the machines by name; an error in place of a report that cannot be read."""
        agents = {agent.name: agent for agent in Agent.objects.filter(name__in=names)}
        return {name: _node_or_fault(agents[name]) if name in agents else NotJoined(name) for name in names}

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        wanted, now = list(attempts), timezone.now()
        rows = {row.attempt: row for row in AgentAttempt.objects.filter(attempt__in=wanted).select_related("agent")}
        return [report_of(attempt, rows.get(attempt), now) for attempt in wanted]

    def read_gpus(self, gpus: Mapping[str, Sequence[WatchedGpu]]) -> list[GpuReading]:
        """The latest readings of the machines by name, each once; generated ones for emulated GPUs."""
        agents = Agent.objects.filter(name__in=gpus).only("name", "joined_at", "heard_at", "gpus_read", "gpu_readings")
        told = [one for agent in agents for one in readings_of(_new_readings(agent), gpus[agent.name])]
        return [*told, *emulated_readings([gpu for of in gpus.values() for gpu in of], seconds_since_boot())]

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        name = Attempt.objects.filter(pk=attempt).values_list("engine", flat=True).get()
        AgentEngine(name).stop(attempt, reason=reason, grace=grace)


def _new_readings(agent: Agent) -> list[GpuReading]:
    """The agent's latest readings, unless this process has returned them before or another release wrote them."""
    latest, known = (agent.joined_at, agent.gpus_read), last_readings.get(agent.name)
    last_readings[agent.name] = latest
    if latest == known or (known is None and not _is_recent(agent)):
        return []
    with suppress(BadMessage):
        return [decode(GpuReading, one) for one in agent.gpu_readings]
    return []


def _node_or_fault(agent: Agent) -> NodeReport | Exception:
    try:
        return _node_of(agent)
    except Exception as error:  # as an agent of another release, or a broken one, has left it
        return error


def _node_of(agent: Agent) -> NodeReport:
    """Report of the machine under its own name; use of the machine by its owner is not reported."""
    own = {"name": agent.name, "foreign_gpus": 0, "foreign_cpus": 0, "foreign_memory_mib": 0}
    report = replace(decode(NodeReport, agent.node_report), **own)  # type: ignore[arg-type]  # names of fields
    if agent.revoked_at is None and _is_heard(agent):
        return report
    return replace(report, state=NodeState.SILENT, reason="its agent has not been heard")


def _is_lost(row: AgentAttempt) -> bool:
    """Whether neither the service nor the agent has the launch any more, although it has not been stopped."""
    unknown = row.report is not None and row.report["phase"] == Phase.UNKNOWN
    return unknown and not (row.launch or row.stop_reason or row.forgotten)


def _is_withheld(attempt: int, agent: Agent) -> bool:
    """Whether the present settings of the job or its team forbid this machine; tests of the engine have neither."""
    allowed = Job.objects.filter(attempts=attempt).values_list(volunteers_now(), flat=True).first()
    return allowed == Volunteers.NONE or (allowed == Volunteers.TRUSTED and not agent.trusted)


def _job_of(attempt: int) -> UUID:
    """A test of the engine, whose number is negative, has no job."""
    return Attempt.objects.filter(pk=attempt).values_list("job_id", flat=True).first() or UUID(int=0)


def _is_heard(agent: Agent) -> bool:
    """Whether a new message has arrived lately: the one that a new process finds may be a week old."""
    news = agent.told, agent.heard_at
    known, at = last_news.get(agent.name, (None, NEVER))
    if news != known:
        at = monotonic() if known or _is_recent(agent) else NEVER
        last_news[agent.name] = news, at
    return bool(agent.told) and monotonic() - at <= SILENT_AFTER_S


def _is_recent(agent: Agent) -> bool:
    """Whether the last message has come lately by the clocks of two processes of the service."""
    return agent.heard_at is not None and abs((timezone.now() - agent.heard_at).total_seconds()) <= SILENT_AFTER_S
