"""Report on an attempt at servers, from those of its ranks. Pure.

It ends once: when each rank has ended, or the lease of its server is over.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from connections_app.models import AgentAttempt
from engines.protocol import AttemptReport, Phase, SiteReason

Cause = AgentAttempt.Cause
GOING_ON = (Phase.LAUNCHING, Phase.RUNNING)
LATEST = datetime.max.replace(tzinfo=UTC)


class RankReport(NamedTuple):
    """Report of one server on its rank."""

    rank: int
    server: str
    report: AttemptReport
    lease_is_over: bool
    """Whether no process of it can be left, heard or not."""
    cause: str = ""
    """How it ended the gang; empty: it did not."""
    note: str = ""

    @property
    def may_run(self) -> bool:
        return self.report.phase in GOING_ON and not self.lease_is_over

    @property
    def is_lost(self) -> bool:
        """Whether how it ended is not known."""
        return self.report.phase in (*GOING_ON, Phase.LOST) or self.cause == Cause.SILENT


def gang_report(attempt: int, ranks: Sequence[RankReport], go_at: datetime | None) -> AttemptReport:
    """The report on the attempt; `go_at`: when the ranks were told to start, None: not yet."""
    if any(one.may_run for one in ranks):
        return _of_going_on(attempt, ranks, go_at)
    began = [one for one in ranks if one.report.phase is not Phase.UNKNOWN or one.cause]
    if not began:
        return AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True)
    silent = [one.server for one in ranks if one.report.phase in GOING_ON]
    return replace(
        _of_end(attempt, began, go_at),
        proven_gone=not silent and all(one.report.proven_gone for one in ranks),
        silent_nodes=silent,
        busy_gpus=[gpu for one in ranks for gpu in one.report.busy_gpus],
        missing_storage={node: name for one in ranks for node, name in one.report.missing_storage.items()},
        faulty_gpus={gpu: fault for one in ranks for gpu, fault in one.report.faulty_gpus.items()},
    )


def _of_going_on(attempt: int, ranks: Sequence[RankReport], go_at: datetime | None) -> AttemptReport:
    if go_at is None or not any(one.report.started_at for one in ranks):
        return AttemptReport(attempt, Phase.LAUNCHING)
    return _with_sums(AttemptReport(attempt, Phase.RUNNING), ranks, go_at)


def _of_end(attempt: int, ranks: Sequence[RankReport], go_at: datetime | None) -> AttemptReport:
    """The end as the rank had it that ended the gang, or else the first that ended badly."""
    first = _first_to_end(ranks)
    ended_at = max((one.report.ended_at for one in ranks if one.report.ended_at), default=None)
    said = _message(first, ranks)
    end = replace(first.report, attempt=attempt, phase=Phase.ENDED, started_at=None, ended_at=ended_at, message=said)
    if first.cause == Cause.NOT_READY:
        return replace(end, exit_code=None, reason=SiteReason.NOT_READY)
    is_lost = any(one.is_lost for one in ranks)
    return _with_sums(replace(end, phase=Phase.LOST if is_lost else Phase.ENDED), ranks, go_at)


def _first_to_end(ranks: Sequence[RankReport]) -> RankReport:
    """The rank that ended the gang; of several that failed one that its server lost, else the earliest.

    A rank may fail because another has, and be heard before it. No supervisor dies of that, and no lease ends.
    """
    named = next((one for one in ranks if one.cause), None)
    if named is not None and named.cause != Cause.FAILED:
        return named
    return min(ranks, key=_order_of_ends)


def _order_of_ends(one: RankReport) -> tuple[bool, bool, datetime, int]:
    of_server = one.is_lost or one.report.reason is SiteReason.PREEMPTED
    return not of_server, one.report.exit_code == 0, one.report.ended_at or LATEST, one.rank


def _with_sums(report: AttemptReport, ranks: Sequence[RankReport], go_at: datetime | None) -> AttemptReport:
    """With the begin of the gang, its longest rank, and the progress of the lowest rank that reports some.

    The ranks of several servers have their environments before the gang begins: how long these took is not told.
    """
    starts = [one.report.started_at for one in ranks if one.report.started_at]
    return replace(
        report,
        started_at=max(min(starts), go_at) if starts and go_at else None,
        ran_s=max((one.report.ran_s for one in ranks if one.report.ran_s is not None), default=None),
        progress=next((one.report.progress for one in ranks if one.report.progress), None),
        invalid_lines=sum(one.report.invalid_lines for one in ranks),
        code_s=max((one.report.code_s for one in ranks if one.report.code_s is not None), default=None),
        setup_s=ranks[0].report.setup_s if len(ranks) == 1 else None,
        peak_memory_mib=max(one.report.peak_memory_mib for one in ranks),
    )


def _message(first: RankReport, ranks: Sequence[RankReport]) -> str:
    said = first.note or first.report.message or _what_of_server(first)
    if len(ranks) == 1 or not any(one.cause for one in ranks):
        return said
    return f"Rank {first.rank} on {first.server} ended the gang: {said or f'exit code {first.report.exit_code}'}"


def _what_of_server(one: RankReport) -> str:
    """What became of a rank of which no more is known."""
    if one.report.phase in GOING_ON:
        return f"{one.server} was not heard, and its lease is over."
    return f"{one.server} had no contact to the service until its lease ended." if one.report.reason else ""
