"""REST: the merged log of an attempt, line by line, with times, streams, ranks and colours; and the search in it."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from connections_app.logs.lines import (
    ALL,
    SEARCH_S,
    STREAMS,
    SearchHits,
    ShownLine,
    cursor_of,
    end_of,
    ends_at,
    positions_at,
    ranks_of,
    search,
    shown,
    streams_named,
)
from connections_app.logs.merged import Ends, LogPart, Position, ends_of, read_merged, start_of
from connections_app.logs.reading import AttemptLog
from connections_app.logs.slots import pace, stream_slots
from connections_app.logs.tail import last_parts, read_tail
from connections_app.long_requests import log_searches
from engines.protocol import Stream
from jobs_app.errors import FilesDeleted
from jobs_app.models import Attempt, Job
from jobs_app.permissions import caller
from jobs_app.submission.fields import MOST_GPUS
from web.api.logs import attempt_asked, job_asked, no_such_rank
from web.rest.choices import Choice
from web.rest.query import query_of

T = TypeVar("T")
LARGEST_TAIL = 1024 * 1024
MOST_LINES, MOST_LINES_OF_RANKS = 100_000, 400_000
"""Last lines, and their number times that of ranks: the last lines of each have to be looked at."""
MOST_LINES_AT_ONCE = 2000
"""Last lines that are found without a slot of a search."""
DESCRIPTION = """Read the merged log of an attempt: the lines of standard output and standard error of all its ranks, \
in the order in which they were received. `next` is the cursor to continue from, `more` whether there is more now; \
`unfinished` has the lines that have no end yet: they come again. To read what there is and no more, ask with `until`, \
the `end` of the first answer, until `more` is false.

Of a line longer than 64 KiB, or what a terminal would show of it, the beginning is returned; a last piece has its \
length. The route `logs` and the download have all of it.

Each line has its text in pieces, of which `style` names the colours that the job's terminal sequences asked for. \
Without times (`at` is null), the attempt ran before they were kept: standard output then comes before standard error.

With `search`, only lines that have this text are returned, from the start or from `cursor`; `complete` is false if \
the search stopped before the end of the log: continue from `next`."""


class MergedLogQuery(serializers.Serializer[Any]):
    stream = Choice(STREAMS, default=ALL, help_text="`all`: standard output and standard error.")
    rank = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, required=False, help_text="Rank of the node in the gang. Default: all."
    )
    attempt = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="Number of the job's attempt. Default: the latest."
    )
    cursor = serializers.CharField(required=False, max_length=2000, help_text="`next` of the answer before.")
    tail = serializers.IntegerField(
        min_value=1, max_value=LARGEST_TAIL, required=False, help_text="Bytes from the end, instead of a cursor."
    )
    lines = serializers.IntegerField(
        min_value=1, max_value=MOST_LINES, required=False, help_text="Lines from the end, instead of a cursor."
    )
    until = serializers.CharField(required=False, max_length=2000, help_text="`end` of the first answer.")
    wait = serializers.FloatField(min_value=0, max_value=5, default=0, help_text="Seconds to wait for new output.")
    search = serializers.CharField(required=False, max_length=200, help_text="Text that the lines have, in any case.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        for name in attrs.keys() & {"tail", "lines"}:
            if attrs.keys() & {"cursor", "search", "tail", "lines", "until"} - {name}:
                raise serializers.ValidationError({name: "Give it without cursor, search, until and another tail."})
        streams = streams_named(attrs["stream"])
        if "cursor" in attrs:
            attrs["positions"] = _parsed("cursor", "next", positions_at, attrs["cursor"], streams)
        if "until" in attrs:
            attrs["ends"] = _parsed("until", "end", ends_at, attrs["until"], streams)
        return attrs


def _parsed(name: str, field: str, parse: Callable[[str, Sequence[Stream]], T], text: str, of: Sequence[Stream]) -> T:
    try:
        return parse(text, of)
    except ValueError:
        said = f"Give `{field}` of an answer for the same attempt and stream."
        raise serializers.ValidationError({name: said}) from None


class LogPieceSerializer(serializers.Serializer[Any]):
    text = serializers.CharField()
    style = serializers.CharField(help_text="Words such as `in-red`, `on-blue`, `bold`; empty: plain.")  # type: ignore[assignment]


class LogLineSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField(allow_null=True, help_text="When it was received.")
    rank = serializers.IntegerField()
    stream = serializers.CharField()
    pieces = LogPieceSerializer(many=True)


class MergedLogSerializer(serializers.Serializer[Any]):
    attempt = serializers.IntegerField(help_text="Number of the attempt; 0: none has been launched.")
    lines = LogLineSerializer(many=True)
    unfinished = LogLineSerializer(many=True)
    next = serializers.CharField()
    end = serializers.CharField(
        allow_blank=True, help_text="Up to where the log reached: in answers to requests without a cursor, or `until`."
    )
    more = serializers.BooleanField(help_text="Whether the log has more now, up to `until`.")
    complete = serializers.BooleanField(help_text="Whether the attempt has ended and nothing comes after this.")


class MergedLogView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = MergedLogSerializer

    @extend_schema(
        parameters=[MergedLogQuery],
        responses={
            200: MergedLogSerializer,
            410: OpenApiResponse(description="The job ended so long ago that its files were deleted."),
        },
        description=DESCRIPTION,
    )
    def get(self, request: Request, pk: str) -> Response:
        job = job_asked(request, pk)
        if job.files_deleted_at is not None:
            raise FilesDeleted(job.files_deleted_at)
        asked = query_of(request, MergedLogQuery)
        attempt = attempt_asked(job, asked.get("attempt"))
        if attempt is None or not attempt.launched_at:
            over = job.is_final if attempt is None else attempt.state == Attempt.State.ENDED
            return Response(_answer(attempt, LogPart([], [], {}, over), ""))
        return _read(attempt, asked, caller(request).pk)


def _read(attempt: Attempt, asked: dict[str, Any], user: int) -> Response:
    if asked.get("rank", 0) >= max(len(attempt.nodes), 1) or any(
        rank >= len(attempt.nodes) for name in ("positions", "ends") for rank in asked.get(name, ())
    ):
        raise no_such_rank(attempt)
    log, streams = AttemptLog(attempt), streams_named(asked["stream"])
    ranks = ranks_of(attempt, asked.get("rank"))
    if "tail" in asked:
        return Response(_answer(attempt, read_tail(log, ranks, streams=streams, limit=asked["tail"]), ""))
    positions = asked.get("positions") or start_of(ranks, streams)
    if "search" in asked:
        with log_searches.slot(user):
            found = search(log, asked["search"], positions, streams=streams, within_s=SEARCH_S)
        return Response(_found(attempt, found))
    ends = asked.get("ends") or ({} if "positions" in asked else ends_of(log, positions, streams))
    if "lines" in asked:
        if asked["lines"] * len(ranks) > MOST_LINES_OF_RANKS:
            said = f"Of {len(ranks)} ranks at most {MOST_LINES_OF_RANKS // len(ranks)} lines: ask for one rank."
            raise serializers.ValidationError({"lines": said})
        return Response(_last_lines(log, ends, streams, asked["lines"], user))
    return _next_part(log, positions, ends, asked)


def _last_lines(log: AttemptLog, ends: Ends, streams: Sequence[Stream], lines: int, user: int) -> dict[str, Any]:
    """The first part of the last lines."""
    with log_searches.slot(user) if lines > MOST_LINES_AT_ONCE else nullcontext():
        part = next(last_parts(log, list(ends), streams=streams, lines=lines, ends=ends))
    return _answer(log.attempt, part, end_of(ends))


def _next_part(log: AttemptLog, positions: dict[int, Position], ends: Ends, asked: dict[str, Any]) -> Response:
    until = ends if "until" in asked else None
    if until is not None and until.keys() != positions.keys():
        raise serializers.ValidationError({"until": "Give it with a cursor of the same ranks."})
    with stream_slots.slot_if_free() as is_ours:  # waiting occupies a thread as a stream does
        wait = timedelta(seconds=asked["wait"] if is_ours else 0)
        part = read_merged(log, positions, streams=streams_named(asked["stream"]), wait=wait, until=until)
    part = replace(part, has_more=part.has_more and part.positions != positions)
    answer = Response(_answer(log.attempt, part, end_of(ends)))
    if asked["wait"] and not answer.data["complete"] and (pause_s := pace.pause_s()):
        answer["Retry-After"] = str(pause_s)
    return answer


def _answer(attempt: Attempt | None, part: LogPart, end: str) -> dict[str, Any]:
    over = attempt is None or attempt.state == Attempt.State.ENDED
    return {
        "attempt": attempt.number if attempt else 0,
        "lines": _represented(shown(part.lines)),
        "unfinished": _represented(shown(part.unfinished)),
        "next": cursor_of(part.positions),
        "end": end,
        "more": part.has_more,
        "complete": part.is_complete and over,
    }


def _found(attempt: Attempt, found: SearchHits) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "lines": _represented(found.lines),
        "unfinished": [],
        "next": cursor_of(found.positions),
        "end": "",
        "more": not found.is_whole,
        "complete": found.is_whole,
    }


def _represented(lines: Iterable[ShownLine]) -> list[dict[str, Any]]:
    """As the serializers of the description would, in a tenth of their time: a part has thousands of lines."""
    return [
        {
            "at": line.at.isoformat().replace("+00:00", "Z") if line.at else None,
            "rank": line.rank,
            "stream": line.stream.value,
            "pieces": [{"text": piece.text, "style": piece.style} for piece in line.pieces],
        }
        for line in lines
    ]
