"""Store the reports of engines, one engine at a time; those of all agents in bulk.

The turn costs the same number of queries whatever the number of machines that joined, as long as nothing is new.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from cluster_app.engine_reports import (
    Inventory,
    reasons_out_of_service,
    record_answer,
    record_answers,
    record_fault,
    record_heartbeats,
)
from cluster_app.gpu_faults import ReportedGpu, note_gpu_reports
from cluster_app.models import FOREIGN_USE
from cluster_app.models import Engine as EngineRow
from connections_app.agents.engine import JoinedMachines
from connections_app.agents.gangs import gangs_to_advance, steps_of, take_step
from connections_app.agents.updates import server_to_update, tell_to_update
from connections_app.engine_registry import registered_engines
from engines.protocol import Engine, EngineError, NodeReport
from scheduler_app.round.attempt_reports import hear_attempts
from scheduler_app.round.lease import Fence
from scheduler_app.round.set_aside import OF_NO_ITEM, Kind, error_text, isolate, set_aside, set_aside_at

log = logging.getLogger(__name__)
BACKOFF, LONGEST_BACKOFF = 5, timedelta(seconds=60)
"""An engine that does not answer is left alone for five times as long as it took to find out: others wait meanwhile."""


def hear_engines(fence: Fence, now: datetime) -> dict[str, Inventory]:
    """Store the report of every engine, or its fault; returns the conditions of nodes of engines that answer."""
    due = [(row, engine) for row, engine in registered_engines() if not _is_left_alone(row, now)]
    joined = [row for row, _ in due if row.has_agents]
    alone = [(row, _hear(fence, row, engine, now)) for row, engine in due if not row.has_agents]
    if any(row.kind == EngineRow.Kind.SERVERS for row in joined):
        advance_gangs(fence, now)
        advance_servers_update(fence)
    heard = {row.name: conditions for row, conditions in alone if conditions is not None}
    return heard | (_hear_joined(fence, joined, now) if joined else {})


def _is_left_alone(row: EngineRow, now: datetime) -> bool:
    return row.retry_at is not None and now < row.retry_at <= now + LONGEST_BACKOFF  # else a clock was set back


def _hear(fence: Fence, row: EngineRow, engine: Engine, now: datetime) -> Inventory | None:
    """Store one engine's report, or its fault, so that the other engines are not affected.

    Returns the conditions of its nodes; None: it does not answer.
    """
    began_s = monotonic()
    try:
        nodes = engine.nodes()
        _store_nodes(fence, [row.name], nodes, now)
        hear_attempts(fence, [row.name], engine, now)
        refusals = engine.sync_drains(reasons_out_of_service(row.name))
    except EngineError as error:
        fault: Exception = error
    except OF_NO_ITEM:
        raise
    except Exception as error:  # of this engine alone: the others are heard all the same
        fault = error
    else:
        _log_recovery(row)
        record_answer(row, inventory_of(nodes, refusals), now=now)
        return conditions_of(nodes)
    _note_fault(row, fault, now, took_s=monotonic() - began_s)
    return None


def _hear_joined(fence: Fence, rows: Sequence[EngineRow], now: datetime) -> dict[str, Inventory]:
    """Store the reports of machines that joined; one whose report cannot be read is at fault by itself."""
    machines = JoinedMachines()
    reports = machines.nodes([row.name for row in rows])
    nodes = {name: report for name, report in reports.items() if not isinstance(report, Exception)}
    faults = {name: report for name, report in reports.items() if isinstance(report, Exception)}
    try:
        _store_nodes(fence, [*nodes], [node for of in nodes.values() for node in of], now)
        hear_attempts(fence, [*nodes], machines, now)
    except OF_NO_ITEM:
        raise
    except Exception as error:  # other engines are heard all the same
        faults, nodes = dict.fromkeys(reports, error), {}
    for row in (row for row in rows if row.name in faults):
        _note_fault(row, faults[row.name], now, took_s=0.0)
    _note_answers([row for row in rows if row.name in nodes], nodes, now)
    return {name: conditions_of(of) for name, of in nodes.items()}


def advance_gangs(fence: Fence, now: datetime) -> None:
    """Start gangs over servers that are ready on all, and end those of which a rank has failed.

    One at a time: an error of one delays no other, and no engine.
    """
    gangs = gangs_to_advance()
    for attempt, step in steps_of(gangs).items():
        try:
            with fence.transaction():
                take_step(attempt, step, grace_s=gangs[attempt].grace_s, now=now)
        except OF_NO_ITEM:
            raise
        except Exception:
            log.exception("the gang of attempt %s could not be started or ended", attempt)


def advance_servers_update(fence: Fence) -> None:
    """Have the next server change to the program of this service, if one is due."""
    try:
        if (server := server_to_update()) is not None:
            with fence.transaction():
                tell_to_update(server)
    except OF_NO_ITEM:
        raise
    except Exception:
        log.exception("the agents of servers could not be updated")


def _note_answers(rows: Sequence[EngineRow], nodes: Mapping[str, Sequence[NodeReport]], now: datetime) -> None:
    for row in rows:
        _log_recovery(row)
    record_answers([(row, inventory_of(nodes[row.name], {})) for row in rows], now=now)


def _note_fault(row: EngineRow, error: Exception, now: datetime, *, took_s: float) -> None:
    if not isinstance(error, EngineError):
        log.error("the engine %s could not be heard", row.name, exc_info=error)
    elif str(error)[:500] != row.fault:
        log.warning("the engine %s does not answer: %s", row.name, error)
    fault = str(error) if isinstance(error, EngineError) else error_text(error)
    backoff = min(BACKOFF * timedelta(seconds=took_s), LONGEST_BACKOFF)
    record_fault(row, fault, now=now, retry_at=now + backoff)


def _log_recovery(row: EngineRow) -> None:
    if row.fault:
        log.info("the engine %s answers again", row.name)


def _store_nodes(fence: Fence, engines: Collection[str], nodes: Sequence[NodeReport], now: datetime) -> None:
    aside, reports = set_aside_at(Kind.NODE, now), {node.name: node for node in nodes}

    def store(names: Sequence[str]) -> None:
        with fence.transaction():
            record_heartbeats(engines, [n for n in names if reports[n].state.is_heard], now=now)
            note_gpu_reports(engines, {name: _gpus_of(reports[name]) for name in names})

    if poison := isolate([name for name in reports if name not in aside], store):
        set_aside(Kind.NODE, poison, now)


def _gpus_of(node: NodeReport) -> dict[str, ReportedGpu]:
    return {gpu.uuid: ReportedGpu(gpu.fault, gpu.xid, gpu.xid_at) for gpu in node.gpus if gpu.uuid}


def conditions_of(nodes: Iterable[NodeReport]) -> dict[str, dict[str, Any]]:
    """Whether the engine gives each node new jobs, and what others use of it; also of nodes that are only declared."""
    return {
        node.name: {
            "state": str(node.state),
            "reason": node.reason,
            "limits": node.limits,
            "containers": node.containers,
            **{name: getattr(node, name) for name in FOREIGN_USE},
        }
        for node in nodes
    }


def inventory_of(nodes: Iterable[NodeReport], refusals: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The hardware that an engine reports, by node, and the drains that its site refuses; of declared nodes none."""
    nodes = list(nodes)
    conditions = conditions_of(nodes)
    return {
        node.name: {
            "gpu_type": node.gpu_type,
            "gpus": len(node.gpus),
            "gpu_memory_mib": min((gpu.memory_mib for gpu in node.gpus if gpu.memory_mib), default=0),
            "uuids": [gpu.uuid for gpu in node.gpus if gpu.uuid],
            "cpus": node.cpus,
            "memory_mib": node.memory_mib,
            "cpus_per_core": node.cpus_per_core,
            **conditions[node.name],
            "refusal": refusals.get(node.name, ""),
        }
        for node in nodes
        if node.gpus or node.cpus
    }
