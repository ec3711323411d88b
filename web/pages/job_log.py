"""Log of a job on its pages: the tab with the merged log and the search, the download, and the last lines of it."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from connections_app.errors import TooManyLongRequests
from connections_app.logs.download import LogDownload, merged_blocks
from connections_app.logs.lines import (
    ALL,
    SEARCH_S,
    STREAMS,
    ShownLine,
    cursor_of,
    positions_at,
    ranks_of,
    search,
    shown,
    streams_named,
)
from connections_app.logs.merged import MOST_RANKS, ends_of, start_of
from connections_app.logs.reading import AttemptLog
from connections_app.logs.tail import read_tail
from connections_app.long_requests import log_downloads, log_searches
from engines.output_order import ORDERED
from engines.protocol import EngineError, Stream
from insight_app.explain.attempt_explanations import explain_exit
from jobs_app.models import Attempt, Job
from web.pages.base import SignedInRequest

TAIL_BYTES = 64 * 1024
LAST_BYTES = 16 * 1024
LAST_LINES = 20
WORDS = {ALL: "both streams"}

Context = dict[str, Any]
Chosen = tuple[Attempt | None, str, int | None]
"""Attempt, name of the stream or `all`, and rank; None: all ranks."""


def log_tab(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    """The last lines of the chosen log, or those that have the text that is searched for."""
    launched = [attempt for attempt in attempts if attempt.launched_at]
    attempt, stream, rank = _chosen(request, launched)
    if job.files_deleted_at is not None or attempt is None:
        return {"chosen": None}
    wanted, begin = request.GET.get("search", "").strip()[:200], request.GET.get("from", "")
    asked = ({} if rank is None else {"rank": rank}) | {"search": wanted}
    context: Context = {
        "launched": launched,
        "chosen": attempt,
        "stream": stream,
        "streams": [(name, WORDS.get(name, name)) for name in STREAMS if job.setup or name != Stream.SETUP],
        "rank": rank,
        "and_rank": "" if rank is None else f"&rank={rank}",
        "and_search": "&" + urlencode(asked | ({"from": begin} if begin else {})),
        "first_ranks": MOST_RANKS if rank is None and len(attempt.nodes) > MOST_RANKS else 0,
        "tail_kib": TAIL_BYTES // 1024,
        "wanted": wanted,
    }
    try:
        if not wanted:
            return context | _tail(attempt, stream, rank)
        with log_searches.slot(request.user.pk):
            found = _found(attempt, stream, rank, wanted, begin)
    except (EngineError, TooManyLongRequests) as error:
        return context | {"fault": str(error)}
    further = asked | {"tab": "logs", "attempt": attempt.number, "stream": stream, "from": found["cursor"]}
    return context | found | {"further": urlencode(further)}


def _tail(attempt: Attempt, stream: str, rank: int | None) -> Context:
    ranks, streams = ranks_of(attempt, rank), streams_named(stream)
    part = read_tail(AttemptLog(attempt), ranks, streams=streams, limit=TAIL_BYTES)
    return {
        "lines": list(shown(part.lines)),
        "unfinished": list(shown(part.unfinished)),
        "cursor": cursor_of(part.positions),
        "is_ordered": part.is_ordered,
        "complete": part.is_complete and attempt.state == Attempt.State.ENDED,
    }


def _found(attempt: Attempt, stream: str, rank: int | None, wanted: str, begin: str) -> Context:
    """Lines with the text, from this cursor on, of a search that was not whole; else from the start."""
    log, streams, ranks = AttemptLog(attempt), streams_named(stream), ranks_of(attempt, rank)
    try:
        positions = positions_at(begin, streams) if begin else start_of(ranks, streams)
    except ValueError as error:
        raise Http404 from error
    if not positions.keys() <= set(ranks):
        raise Http404
    found = search(log, wanted, positions, streams=streams, within_s=SEARCH_S)
    cursor = cursor_of(found.positions)
    return {"found": found.lines, "cursor": cursor, "is_whole": found.is_whole, "is_ordered": True}


def _chosen(request: SignedInRequest, launched: Sequence[Attempt]) -> Chosen:
    """Log selected by the query parameters; default: both streams of all ranks of the latest attempt."""
    number, rank = request.GET.get("attempt", ""), request.GET.get("rank", "")
    stream = request.GET.get("stream", ALL)
    by_number = {str(attempt.number): attempt for attempt in launched}
    attempt = by_number.get(number) if number else (launched[-1] if launched else None)
    chosen = int(rank) if re.fullmatch(r"[0-9]{1,9}", rank) else None
    if stream not in STREAMS or (number and attempt is None):
        raise Http404
    if attempt and chosen is not None and chosen >= max(len(attempt.nodes), 1):
        raise Http404
    return attempt, stream, chosen


def last_lines_of(job: Job, attempts: Sequence[Attempt]) -> Context:
    """Last lines of the latest attempt; of a failed one, standard error and the meaning of its exit code."""
    launched = [attempt for attempt in attempts if attempt.launched_at]
    if not launched or job.files_deleted_at is not None:
        return {}
    failed = job.state == Job.State.FAILED
    try:
        lines = _last_lines(AttemptLog(launched[-1]), FAILED_STREAMS if failed else RUNNING_STREAMS)
    except EngineError:  # the tab of logs says why
        return {}
    meaning = explain_exit(launched[-1], [line.text for line in lines]) if failed else ""
    of_one = {line.stream.value for line in lines}
    last_stream = of_one.pop() if len(of_one) == 1 else ""
    return {"last_lines": lines, "last_stream": last_stream, "has_failed": failed, "exit_meaning": meaning}


FAILED_STREAMS = ((Stream.STDERR,), (Stream.SETUP,), ORDERED)
RUNNING_STREAMS = (ORDERED, (Stream.SETUP,))
"""Which streams are shown: the first of these that has anything."""


def _last_lines(log: AttemptLog, choices: Sequence[Sequence[Stream]]) -> list[ShownLine]:
    for streams in choices:
        part = read_tail(log, ranks_of(log.attempt, None), streams=streams, lines=LAST_LINES, limit=LAST_BYTES)
        lines = list(shown([*part.lines, *part.unfinished]))
        if any(line.text.strip() for line in lines):
            return lines
    return []


@login_required
@require_safe
def raw_log(request: SignedInRequest, pk: UUID) -> HttpResponseBase:
    """Download a log as the job wrote it; both streams merged unless one is chosen."""
    seen = get_object_or_404(Job.objects.visible_to(request.user).prefetch_related("attempts"), pk=pk)
    attempt, stream, rank = _chosen(request, [a for a in seen.attempts.all() if a.launched_at])
    if attempt is None or seen.files_deleted_at is not None:
        raise Http404
    which = "all" if rank is None else str(rank)
    name = f"{slugify(seen.name) or seen.pk}-{attempt.number}-{stream}-{which}.log"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    try:
        download = _download(attempt, stream, rank, request.user.pk)
    except (EngineError, TooManyLongRequests) as error:
        answer = render(request, "503.html", {"detail": str(error)}, status=503)
        answer["Retry-After"] = str(TooManyLongRequests.retry_after_s)
        return answer
    return StreamingHttpResponse(download, content_type="text/plain; charset=utf-8", headers=headers)


def _download(attempt: Attempt, stream: str, rank: int | None, user: int) -> LogDownload:
    """The log up to its size now; of one stream, of one rank."""
    log, streams = AttemptLog(attempt), streams_named(stream)
    ranks = ranks_of(attempt, rank if stream == ALL else rank or 0)
    ends = ends_of(log, ranks, streams)
    size = sum(sum(of_rank) for of_rank in ends.values())
    blocks = merged_blocks(log, streams, ends) if stream == ALL else log.between(streams[0], ranks[0], 0, size)
    return LogDownload(blocks, size, log_downloads.take(user))
