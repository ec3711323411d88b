"""REST: the merged log of an attempt, line by line, with times, streams, ranks and colours; and the search in it."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from connections_app.logs.lines import (
    ALL,
    SEARCH_S,
    STREAMS,
    SearchHits,
    cursor_of,
    positions_at,
    ranks_of,
    search,
    shown,
    streams_named,
)
from connections_app.logs.merged import LogPart, Position, read_merged, read_tail, start_of
from connections_app.logs.slots import pace, stream_slots
from jobs_app.errors import FilesDeleted
from jobs_app.models import Attempt, Job
from jobs_app.submission.fields import MOST_GPUS
from web.api.logs import attempt_asked, job_asked
from web.rest.choices import Choice
from web.rest.query import query_of

LARGEST_TAIL = 1024 * 1024
DESCRIPTION = """Read the merged log of an attempt: the lines of standard output and standard error of all its ranks, \
in the order in which they were received. `next` is the cursor to continue from; `unfinished` has the lines that have \
no end yet: they come again.

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
    wait = serializers.FloatField(min_value=0, max_value=5, default=0, help_text="Seconds to wait for new output.")
    search = serializers.CharField(required=False, max_length=200, help_text="Text that the lines have, in any case.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "tail" in attrs and ("cursor" in attrs or "search" in attrs):
            raise serializers.ValidationError({"tail": "Give it without cursor and search."})
        if "cursor" in attrs:
            try:
                attrs["positions"] = positions_at(attrs["cursor"], streams_named(attrs["stream"]))
            except ValueError:
                raise serializers.ValidationError(
                    {"cursor": "Give `next` of an answer for the same attempt and stream."}
                ) from None
        return attrs


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
            return Response(_answer(attempt, LogPart([], [], {}, over)))
        return _read(attempt, asked)


def _read(attempt: Attempt, asked: dict[str, Any]) -> Response:
    if asked.get("rank", 0) >= max(len(attempt.nodes), 1) or any(
        rank >= len(attempt.nodes) for rank in asked.get("positions", ())
    ):
        raise NotFound(f"Attempt {attempt.number} has {len(attempt.nodes)} nodes; ranks start at 0.")
    streams, ranks = streams_named(asked["stream"]), ranks_of(attempt, asked.get("rank"))
    if "tail" in asked:
        return Response(_answer(attempt, read_tail(attempt, ranks, streams=streams, limit=asked["tail"])))
    positions = asked.get("positions") or start_of(ranks, streams)
    if "search" in asked:
        found = search(attempt, asked["search"], positions, streams=streams, within_s=SEARCH_S)
        return Response(_found(attempt, found))
    return _next_part(attempt, positions, asked)


def _next_part(attempt: Attempt, positions: dict[int, Position], asked: dict[str, Any]) -> Response:
    with stream_slots.slot_if_free() as is_ours:  # waiting occupies a thread as a stream does
        wait = timedelta(seconds=asked["wait"] if is_ours else 0)
        part = read_merged(attempt, positions, streams=streams_named(asked["stream"]), wait=wait)
    answer = Response(_answer(attempt, part))
    if asked["wait"] and not answer.data["complete"] and (pause_s := pace.pause_s()):
        answer["Retry-After"] = str(pause_s)
    return answer


def _answer(attempt: Attempt | None, part: LogPart) -> dict[str, Any]:
    over = attempt is None or attempt.state == Attempt.State.ENDED
    content = {
        "attempt": attempt.number if attempt else 0,
        "lines": list(shown(part.lines)),
        "unfinished": list(shown(part.unfinished)),
        "next": cursor_of(part.positions),
        "complete": part.is_complete and over,
    }
    return MergedLogSerializer(content).data


def _found(attempt: Attempt, found: SearchHits) -> dict[str, Any]:
    content = {
        "attempt": attempt.number,
        "lines": found.lines,
        "unfinished": [],
        "next": cursor_of(found.positions),
        "complete": found.is_whole,
    }
    return MergedLogSerializer(content).data
