"""Engine reports on attempts, from an agent's message, limited to its own machine and to possible times."""

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

from cluster_app.models import Gpu
from connections_app.models import AgentAttempt
from engines.agent.codec import decode
from engines.progress import MOST_COUNTED
from engines.protocol import AttemptReport, Phase, Progress

MOST_EXIT_CODE = 255
YEARS = range(1970, 9999)
"""Years in which times can be compared and stored in any time zone."""


class OwnMachine(NamedTuple):
    """The node and the GPUs that an agent may report on."""

    node: str
    uuids: Callable[[], Collection[str]]
    """Read only where a report names GPUs."""


def told_report(stored: Any) -> AttemptReport:
    """The report as an agent has told it, before it is limited; raises `BadMessage`."""
    return _report_of_text(json.dumps(stored))


@lru_cache(maxsize=4096)
def _report_of_text(text: str) -> AttemptReport:
    """The report of this text. A turn needs each twice, and most are those of the turn before."""
    return decode(AttemptReport, json.loads(text))


def report_of(attempt: int, row: AgentAttempt | None, now: datetime) -> AttemptReport:
    """Report on the attempt. It ends once logs and checkpoints are here: its job may then continue elsewhere."""
    if row is None or (row.forgotten and row.report is None):
        return AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True)
    if row.report is None:
        return AttemptReport(attempt, Phase.LAUNCHING)
    own = OwnMachine(row.agent.name, partial(_uuids_of, row.agent.name))
    report = within(told_report(row.report), own, row.delivered_at or now, now)
    if report.phase is Phase.UNKNOWN and row.launch and not row.stop_reason:  # its launch is on its way again
        return AttemptReport(attempt, Phase.LAUNCHING)
    return _going_on(report) if report.phase.is_over and not row.handed_over else report


def _uuids_of(name: str) -> set[str]:
    """UUIDs of the GPUs of the agent's own node: an engine of servers has the nodes of others, too."""
    own = Gpu.objects.filter(node__name=name, node__engine__agents__name=name)
    return set(own.exclude(uuid="").values_list("uuid", flat=True))


def within(report: AttemptReport, own: OwnMachine, delivered_at: datetime, now: datetime) -> AttemptReport:
    """The report without impossible values: times before the launch or in the future, and other machines. Pure.

    The agent's clock may be wrong, and so may the agent.
    """
    most_s = max((now - delivered_at).total_seconds(), 0.0)
    uuids = own.uuids() if report.faulty_gpus else ()
    return replace(
        report,
        started_at=_between(report.started_at, delivered_at, now),
        ended_at=_between(report.ended_at, delivered_at, now),
        exit_code=None if report.exit_code is None else min(max(report.exit_code, 0), MOST_EXIT_CODE),
        progress=_possible_progress(report.progress, most_s),
        invalid_lines=min(max(report.invalid_lines, 0), MOST_COUNTED),
        peak_memory_mib=min(max(report.peak_memory_mib, 0), MOST_COUNTED),
        ran_s=_seconds(report.ran_s, most_s),
        code_s=_seconds(report.code_s, most_s),
        setup_s=_seconds(report.setup_s, most_s),
        missing_storage={node: storage for node, storage in report.missing_storage.items() if node == own.node},
        faulty_gpus={uuid: fault for uuid, fault in report.faulty_gpus.items() if uuid in uuids},
    )


def _possible_progress(progress: Progress | None, most_s: float) -> Progress | None:
    """The progress, or None where a value is impossible or does not fit its column; the same for its restore."""
    if progress is None or not 0 <= progress.reports <= MOST_COUNTED:
        return None
    numbers = progress.first_step, progress.step, progress.batch_size or 0, progress.total_steps or 0
    moments = progress.first_at, progress.at, progress.checkpoint_at, progress.restored_at
    if min(numbers) < 0 or any(at is not None and at.year not in YEARS for at in moments):
        return None
    restored_at, restore_s = progress.restored_at, progress.restore_s
    is_possible = restored_at is None or restored_at <= progress.first_at
    if is_possible and (restore_s is None or 0 <= restore_s <= most_s):
        return progress
    return replace(progress, restore_s=None, restored_at=None)


def _between(at: datetime | None, first: datetime, last: datetime) -> datetime | None:
    return None if at is None else max(min(at, last), first)


def _seconds(told: float | None, most: float) -> float | None:
    return None if told is None else min(max(told, 0.0), most)


def _going_on(report: AttemptReport) -> AttemptReport:
    """The report of an attempt that has ended, before its files have arrived."""
    return AttemptReport(
        report.attempt,
        Phase.RUNNING if report.started_at is not None else Phase.LAUNCHING,
        started_at=report.started_at,
        ran_s=report.ran_s,
        progress=report.progress,
        invalid_lines=report.invalid_lines,
        peak_memory_mib=report.peak_memory_mib,
        code_s=report.code_s,
        setup_s=report.setup_s,
    )
