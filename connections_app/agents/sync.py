"""One message of an agent and its answer: store its reports, and return its commands."""

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F

from cluster_app.errors import NotLentNow
from cluster_app.models import Node
from cluster_app.services import drain, resume
from connections_app.agents.job_folders import attempts_to_keep, follow_folders, kept_before, kept_rows_asked_for
from connections_app.agents.join_agent import account_number
from connections_app.agents.sessions import orders_of
from connections_app.agents.silence import new_mark
from connections_app.agents.updates import program_for
from connections_app.errors import ForkedAgent
from connections_app.models import Agent, AgentAttempt, EngineProbe
from engines.agent.codec import decode, encode
from engines.agent.messages import AttemptNews, CheckpointOrder, Condition, Orders, ShareOrder, StopCommand, Sync
from engines.protocol import AttemptReport, CheckpointTimes, Launch, NodeShare, Phase, StopReason
from jobs_app.models import Attempt, GpuClaim
from jobs_app.secrets import SecretGone, unseal

log = logging.getLogger(__name__)
Value = TypeVar("Value")

LEAVING = "Its owner has it back: the agent leaves"
AGENTS_PER_SECOND = 20
"""Messages to which the pauses of all agents are spread."""
MOST_ANSWERS = 16
"""Marks that are kept of answers of which the agent has shown none: more answers in a row are not lost."""
ANY_MARK = "any"
"""In the place of the mark that an agent has shown last, from the restore of a backup until it shows one of ours."""
MOST_FINDINGS = 20
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 5.0
REMOTE = Path("at-the-service")
"""In the place of a path that the agent does not need: it fetches the file by the number of its attempt."""


OF_EACH_MESSAGE = (
    *("name", "site", "trusted", "engine", "left_at", "heard", "answers"),
    *("program", "update_to", "update_fault", "update_tries"),
)
"""To make the query of all columns takes longer than to run it."""
READ_EVERY_S = 5.0


class ReadSeldom(Generic[Value]):
    """What is read from the database every few seconds, and not for each of 40 messages a second."""

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read, self._until_s = read, 0.0

    def __call__(self) -> Value:
        if monotonic() >= self._until_s:
            self._value = self._read()
            self._until_s = monotonic() + READ_EVERY_S
        return self._value

    def forget(self) -> None:
        """Read it anew the next time."""
        self._until_s = 0.0


agents_known = ReadSeldom(lambda: Agent.objects.filter(engine__isnull=False, revoked_at=None).count())
"""Number of machines that have joined: the pause between two messages of each follows from it."""
nodes_leaving = ReadSeldom(lambda: {*Node.objects.filter(reason=LEAVING).order_by().values_list("name", flat=True)})
"""Nodes whose machines leave, or have left: one that is back is returned a few seconds later at most."""


class AgentState(NamedTuple):
    """The stored state of one attempt at an agent."""

    launch: bool
    """Whether the agent does not have the launch yet."""
    stop: StopCommand | None
    stored: bool
    """Whether its end is stored, and nothing of it is needed at the agent."""


class SyncAnswer(NamedTuple):
    """Commands for the agent, by attempt."""

    launches: list[int]
    stops: list[StopCommand]
    forget: list[int]


@transaction.atomic
def hear(agent: Agent, told: Sync, now: datetime) -> Orders:
    """Store the agent's message and answer it; launches in the answer count as started from then on.

    Raises `ForkedAgent` if another copy of the machine has had a later answer.
    """
    agent = Agent.objects.only(*OF_EACH_MESSAGE).select_for_update().get(pk=agent.pk)
    mark = _follow_marks(agent, told.heard)
    news_of_server = _news_of_server(agent, told.condition, now) if told.condition is not None else {}
    news_of_gpus = {"gpu_readings": encode(told.gpus), "gpus_read": F("gpus_read") + 1} if told.gpus else {}
    Agent.objects.filter(pk=agent.pk).update(
        told=F("told") + 1,
        heard_at=now,
        node_report=encode(told.node),
        heard=agent.heard,
        answers=agent.answers,
        **news_of_gpus,
        **news_of_server,
    )
    for column, value in news_of_server.items():  # what is ordered now follows from them
        setattr(agent, column, value)
    rows = {row.attempt: row for row in agent.attempts.select_for_update().filter(forgotten=False).order_by("attempt")}
    news = {one.report.attempt: one for one in told.attempts}
    _store(rows, news, now)
    answer = answer_to(news, _standing(rows))
    launches = _outgoing(agent, [rows[attempt] for attempt in answer.launches])
    kept = attempts_to_keep(agent, [rows[one] for one in answer.forget if one in rows])
    _note_answered(rows, answer._replace(launches=[*launches]), kept, now)
    may_go = _follow_leaving(agent, told.leaving, now)
    shares, checkpoint_times = _chosen_for(agent, rows.values())
    return Orders(
        lease=timedelta(seconds=settings.MOTLEY_AGENT_LEASE_S),
        pause=_pause(rows.values()),
        launches=[*launches.values()],
        stops=answer.stops,
        go=[attempt for attempt, row in rows.items() if row.go_at and not row.stop_reason],
        shares=shares,
        checkpoint_times=checkpoint_times,
        sessions=orders_of(rows.values(), kept_rows_asked_for(agent)) if agent.rights.sessions else (),
        program=program_for(agent),
        tries=agent.update_tries,
        forget=answer.forget,
        keep=[*kept, *kept_before(agent, [one for one in answer.forget if one not in rows])],
        discard=follow_folders(agent, told),
        may_go=may_go and not rows.keys() - {*answer.forget},
        mark=mark,
    )


def _chosen_for(agent: Agent, rows: Collection[AgentAttempt]) -> tuple[list[ShareOrder], list[CheckpointOrder]]:
    """What rounds have chosen for the attempts that the agent says it runs: CPUs and memory, and checkpoint times.

    One query, and one more for a gang: on how many GPUs of this server it is.
    """
    running = [row.attempt for row in rows if (row.report or {}).get("phase") == Phase.RUNNING]
    if not running:
        return [], []
    found = list(Attempt.objects.filter(pk__in=running).order_by("pk").values_list(*OF_CHOICES, named=True))
    gpus = _gpus_at(agent, [one for one in found if one.cpu_memory])
    shares = [
        ShareOrder(one.pk, NodeShare(gpus[one.pk] * one.cpus_per_gpu, gpus[one.pk] * one.memory_per_gpu_mib))
        for one in found
        if one.cpu_memory
    ]
    return shares, [
        CheckpointOrder(one.pk, CheckpointTimes(**one.checkpoint_times)) for one in found if one.checkpoint_times
    ]


OF_CHOICES = ("pk", "gpu_count", "nodes", "cpu_memory", "cpus_per_gpu", "memory_per_gpu_mib", "checkpoint_times")


def _gpus_at(agent: Agent, chosen: Sequence[Any]) -> dict[int, int]:
    """GPUs of these attempts on the agent's node; those of one node have all of theirs there."""
    alone = {one.pk: one.gpu_count for one in chosen if one.nodes == [agent.name]}
    others = [one.pk for one in chosen if one.pk not in alone]
    if not others:
        return alone
    claims = GpuClaim.objects.filter(attempt__in=others, gpu__node__name=agent.name).order_by()
    held = dict(claims.values("attempt").annotate(gpus=Count("pk")).values_list("attempt", "gpus"))
    return alone | {pk: held.get(pk, 0) for pk in others}


def _news_of_server(agent: Agent, condition: Condition, now: datetime) -> dict[str, Any]:
    """Columns of the agent; a volunteer's machine may say anything, so that texts are cut.

    A fault of an update from before an administrator had it tried again is none any more.
    """
    fault = condition.update_fault if condition.tries is None or condition.tries >= agent.update_tries else ""
    job_uid = account_number(condition.job_uid)
    findings = [replace(one, name=one.name[:20], said=one.said[:500]) for one in condition.findings[:MOST_FINDINGS]]
    return {
        "release": condition.release[:40],
        "program": condition.program[:12],
        "python": condition.python[:20],
        "findings": encode(findings),
        "checked_at": now,
        "update_fault": fault[:500],
        **({"job_uid": job_uid} if job_uid is not None else {}),
    }


def _follow_marks(agent: Agent, heard: str) -> str:
    """Note which answer the agent has had, and return the mark of the next one.

    The answers since the last that it has shown may have been lost, so that one may be shown again. Of two copies of a
    machine that show it, each has an answer of its own then; once one of these is shown, the others are not taken.
    """
    if heard in agent.answers:
        agent.heard, agent.answers = heard, []
    elif agent.heard not in (heard, ANY_MARK):
        log.warning("%s: a copy of the machine, with the same token and machine id, is refused", agent.name)
        raise ForkedAgent("Another copy of this machine works here with the same token: ask for a join token for this.")
    mark = new_mark()
    agent.answers = [*agent.answers[1 - MOST_ANSWERS :], mark]
    return mark


def answer_to(news: Mapping[int, AttemptNews], standing: Mapping[int, AgentState]) -> SyncAnswer:
    """Commands that make the agent's attempts those that the service wants. Pure.

    Of an attempt that the service does not know (any more), or whose end it has stored, nothing is to be left. One
    that runs all the same is stopped before its files are removed.
    """
    unknown = [one for attempt, one in news.items() if attempt not in standing or standing[attempt].stored]
    strays = [StopCommand(one.report.attempt, StopReason.CANCEL, timedelta()) for one in unknown if not _is_over(one)]
    silent = [attempt for attempt, one in standing.items() if one.stored and attempt not in news]
    needed = [(attempt, one.stop) for attempt, one in standing.items() if one.stop and not one.stored]
    stops = [stop for attempt, stop in needed if not _has_ended(news.get(attempt))]
    forget = [one.report.attempt for one in unknown if _is_over(one)]
    return SyncAnswer(
        launches=[attempt for attempt, one in standing.items() if one.launch and not _is_there(news.get(attempt))],
        stops=[*stops, *strays],
        forget=[*forget, *silent],
    )


def _is_over(one: AttemptNews) -> bool:
    return one.handed_over or one.report.phase is Phase.UNKNOWN


def _is_there(one: AttemptNews | None) -> bool:
    """Whether the agent has the launch."""
    return one is not None and one.report.phase is not Phase.UNKNOWN


def _has_ended(one: AttemptNews | None) -> bool:
    return one is not None and one.report.phase.is_over and one.report.proven_gone


def _store(rows: Mapping[int, AgentAttempt], news: Mapping[int, AttemptNews], now: datetime) -> None:
    """Store reports that have changed; delete a launch once the agent has stored it.

    An agent names all attempts that it has: one that it had and does not name any more is unknown to it.
    """
    for attempt, row in rows.items():
        one = news.get(attempt) or (_unknown(attempt) if _was_there(row) else None)
        if one is None or row.delivered_at is None:  # it cannot know of the latter
            continue
        before = row.report, row.handed_over, row.launch, row.ready_at
        row.report, row.handed_over = encode(one.report), row.handed_over or one.handed_over
        row.launch = "" if _is_there(one) and not one.fetching else row.launch
        row.ready_at = row.ready_at or (now if one.ready else None)
        if before != (row.report, row.handed_over, row.launch, row.ready_at):
            row.save(update_fields=["report", "handed_over", "launch", "ready_at"])


def _was_there(row: AgentAttempt) -> bool:
    """Whether the agent has said that it has the attempt, and was not told that the service has all of it."""
    return row.report is not None and not (row.launch or row.handed_over)


def _unknown(attempt: int) -> AttemptNews:
    return AttemptNews(AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True))


def _standing(rows: Mapping[int, AgentAttempt]) -> dict[int, AgentState]:
    stored = _stored([attempt for attempt, row in rows.items() if _may_be_forgotten(row)])
    return {
        attempt: AgentState(launch=bool(row.launch), stop=_stop_of(row), stored=attempt in stored)
        for attempt, row in rows.items()
    }


def _may_be_forgotten(row: AgentAttempt) -> bool:
    return row.handed_over or (row.report or {}).get("phase") == Phase.UNKNOWN


def _stored(attempts: Collection[int]) -> set[int]:
    """Attempts whose end the service has stored; a test of an engine has a negative number."""
    if not attempts:
        return set()
    jobs = Attempt.objects.filter(pk__in=attempts, gone_at__isnull=False).values_list("pk", flat=True)
    probes = EngineProbe.objects.filter(pk__in=[-one for one in attempts], ended_at__isnull=False)
    return {*jobs, *(-pk for pk in probes.values_list("pk", flat=True))}


def _stop_of(row: AgentAttempt) -> StopCommand | None:
    if not row.stop_reason:
        return None
    return StopCommand(row.attempt, StopReason(row.stop_reason), timedelta(seconds=row.stop_grace_s))


def _note_answered(rows: Mapping[int, AgentAttempt], answer: SyncAnswer, kept: Collection[int], now: datetime) -> None:
    if new := [attempt for attempt in answer.launches if rows[attempt].delivered_at is None]:
        AgentAttempt.objects.filter(pk__in=[rows[attempt].pk for attempt in new]).update(delivered_at=now)
    if gone := [rows[attempt].pk for attempt in answer.forget if attempt in rows]:
        over = AgentAttempt.objects.filter(pk__in=gone)
        over.update(forgotten=True)
        over.filter(attempt__in=kept).update(kept=True)


def _outgoing(agent: Agent, rows: Sequence[AgentAttempt]) -> dict[int, Launch]:
    """Launches in the form for the agent. Those that cannot be sent become unknown, so that the service repeats them.

    That is so where a key is gone or the form of launches has changed, and where trust has gone since.
    """
    found = {row.attempt: _for_the_agent(row, agent) for row in rows}
    withheld = [row for row in rows if not _may_go_out(found[row.attempt], row, agent)]
    for row in withheld:
        row.launch, row.report = "", encode(AttemptReport(row.attempt, Phase.UNKNOWN, proven_gone=True))
    AgentAttempt.objects.bulk_update(withheld, ["launch", "report"])
    kept = {row.attempt for row in withheld}
    return {attempt: launch for attempt, launch in found.items() if launch is not None and attempt not in kept}


def _may_go_out(launch: Launch | None, row: AgentAttempt, agent: Agent) -> bool:
    """Whether the launch can be decrypted, and its secrets may be sent to this machine, or have been sent already."""
    return launch is not None and (not launch.secrets or agent.rights.secrets or row.delivered_at is not None)


def _for_the_agent(row: AgentAttempt, agent: Agent) -> Launch | None:
    """The launch without paths of the service's machine, and without its account unless the machine is the site's.

    None if it cannot be decrypted.
    """
    try:
        launch = decode(Launch, json.loads(unseal(row.launch)))
    except (SecretGone, ValueError):
        log.exception("the launch of attempt %s cannot be read", row.attempt)
        return None
    code, checkpoints = (REMOTE if path is not None else None for path in (launch.code, launch.checkpoints))
    account = launch.account if agent.rights.accounts else ""
    return replace(launch, code=code, checkpoints=checkpoints, account=account)


def launch_stored(row: AgentAttempt) -> Launch | None:
    """The stored launch, until the agent has it."""
    return decode(Launch, json.loads(unseal(row.launch))) if row.launch else None


def _follow_leaving(agent: Agent, notice: timedelta | None, now: datetime) -> bool:
    """Drain the node of a machine that leaves, return that of one that is back; returns whether the node is empty.

    One that an administrator has taken out of service stays so, with its reason.
    """
    if notice is None and agent.left_at is None and agent.name not in nodes_leaving():  # as in nearly all messages
        return False
    of_agent = Node.objects.filter(engine__agents=agent.pk, name=agent.name)
    if notice is None and agent.left_at is None:
        of_agent = of_agent.filter(reason=LEAVING)
    node = of_agent.first()
    if node is None:
        return notice is not None
    if notice is None:
        _return(agent, node)
        return False
    if node.state == Node.State.READY:
        Node.objects.filter(pk=node.pk).update(notice_s=int(notice.total_seconds()))
        drain(node, reason=LEAVING, actor=None)
        nodes_leaving.forget()
    empty = not GpuClaim.objects.open().filter(gpu__node=node).exists()
    if empty:
        Agent.objects.filter(pk=agent.pk, left_at=None).update(left_at=now)
    return empty


def _return(agent: Agent, node: Node) -> None:
    if agent.left_at is not None:
        Agent.objects.filter(pk=agent.pk).update(left_at=None)
    if node.reason == LEAVING:
        with suppress(NotLentNow):  # its hours are over: it returns by itself when they begin
            resume(node, actor=None, reason="its agent is back")


def _pause(rows: Collection[AgentAttempt]) -> timedelta:
    """Until the next message: short where a rank is ready, and waits for the others of its gang."""
    if any(row.ready_at and not (row.go_at or row.stop_reason) for row in rows):
        return timedelta(seconds=SHORTEST_PAUSE_S)
    pause_s = agents_known() / AGENTS_PER_SECOND
    return timedelta(seconds=min(max(pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
