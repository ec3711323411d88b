"""REST: logs, by polling, by byte ranges, and as server-sent events."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from connections_app.logs.download import LogDownload
from connections_app.logs.following import Followed, FollowingResponse
from connections_app.logs.reading import AttemptLog, read_log, start_of_last_lines
from connections_app.logs.slots import pace, stream_slots
from connections_app.logs.stream import LogEventStream
from connections_app.long_requests import is_long, log_downloads, log_streams
from engines.protocol import OUTPUT, LogChunk, Stream
from jobs_app.errors import FilesDeleted
from jobs_app.models import Attempt, Job
from jobs_app.permissions import caller, jobs_seen_by, still_sees
from jobs_app.submission.fields import MOST_GPUS
from web.api.job_history import archived_for
from web.rest.choices import Choice
from web.rest.downloads import byte_range_of, is_range_request
from web.rest.query import query_of

LARGEST_CHUNK = 1024 * 1024
MOST_LINES = 100_000
LARGEST_OFFSET = 2**62
AS_IT_IS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Accept-Ranges": "bytes"}
"""Headers that keep a browser from interpreting the output of a job."""
PLAIN_TEXT = "text/plain; charset=utf-8"
UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
RANGE = OpenApiParameter(
    "Range",
    str,
    OpenApiParameter.HEADER,
    description="One range of bytes, e.g. `bytes=1000-`. The status is 206, or 416 past the end.",
)
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    int,
    OpenApiParameter.HEADER,
    description="Id of the last received event; the stream continues there.",
)
DESCRIPTION = """Read a log. The response has bytes from `offset`, or from where the last lines begin. The header \
`Motley-Next-Offset` is the offset to continue from, `Motley-Log-Size` the size of the log now; `Motley-Log-Complete` \
says whether the log is complete because the attempt has ended. With many followers, the answer to a request with \
`wait` has `Retry-After`: the seconds after which to ask again.

With `Accept: text/event-stream`, lines are sent as events `log` while they are written; a line longer than 64 KiB \
comes in several events; the last event is `eof`. With \
many followers the stream ends before; the client comes again after `retry`, from the last event on."""


class PlainText(JSONRenderer):
    """Makes the type negotiable; errors are still rendered as JSON."""

    media_type = "text/plain"


class EventStream(JSONRenderer):
    media_type = "text/event-stream"


class LogQuery(serializers.Serializer[Any]):
    stream = Choice([stream.value for stream in OUTPUT], default=Stream.STDOUT.value)
    rank = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, default=0, help_text="Rank of the node in the gang, from 0."
    )
    attempt = serializers.IntegerField(
        min_value=1, max_value=2**31 - 1, required=False, help_text="Number of the job's attempt. Default: the latest."
    )
    offset = serializers.IntegerField(
        min_value=0, max_value=LARGEST_OFFSET, default=0, help_text="Offset in bytes from the start of the log."
    )
    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_CHUNK, default=65_536)
    wait = serializers.FloatField(min_value=0, max_value=5, default=0, help_text="Seconds to wait for new output.")
    tail = serializers.IntegerField(
        min_value=1,
        max_value=MOST_LINES,
        required=False,
        help_text="Number of last lines to return, instead of offset; more than 1 MiB of them in several parts.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "tail" in attrs and "offset" in self.initial_data:
            raise serializers.ValidationError({"tail": "Give either tail or offset, not both."})
        return attrs


class LogView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = LogQuery
    renderer_classes = (PlainText, EventStream, JSONRenderer)

    @extend_schema(
        parameters=[LogQuery, RANGE, LAST_EVENT_ID],
        responses={
            (200, "text/plain"): OpenApiTypes.BINARY,
            (200, "text/event-stream"): OpenApiTypes.STR,
            (206, "text/plain"): OpenApiTypes.BINARY,
            410: OpenApiResponse(description="The job ended so long ago that its files were deleted."),
        },
        description=DESCRIPTION,
    )
    def get(self, request: Request, pk: str) -> HttpResponseBase:
        job = job_asked(request, pk)
        if job.files_deleted_at is not None:
            raise FilesDeleted(job.files_deleted_at)
        asked = query_of(request, LogQuery)
        log = Log(job, attempt_asked(job, asked.get("attempt")), Stream(asked["stream"]), asked["rank"])
        if isinstance(request.accepted_renderer, EventStream):
            offset, may_go_on = _start(request, log, asked), lambda: still_sees(request, job.pk)
            if is_long(request.META):
                return log.following(offset, user=caller(request).pk, may_go_on=may_go_on)
            return log.events(offset, may_go_on=may_go_on)
        header = request.headers.get("Range", "")
        if is_range_request(header) and "tail" not in asked and "If-Range" not in request.headers:
            return log.part(header, user=caller(request).pk)
        return log.chunk(asked)


def job_asked(request: Request, pk: str) -> Job:
    try:
        return get_object_or_404(jobs_seen_by(request), pk=pk)
    except Http404:
        if archived := archived_for(request, pk):
            raise FilesDeleted(datetime.fromisoformat(archived.whole["files_deleted_at"])) from None
        raise


def attempt_asked(job: Job, number: int | None) -> Attempt | None:
    if number is not None:
        if attempt := job.attempts.filter(number=number).first():
            return attempt
        raise NotFound(f"The job has no attempt {number}.")
    return job.attempts.exclude(launched_at=None).last()


def _start(request: Request, log: "Log", asked: dict[str, Any]) -> int:
    """Offset at which the events begin: after `Last-Event-ID`, at the last lines, or at `offset`."""
    seen = request.headers.get("Last-Event-ID", "")
    if seen:
        field = serializers.IntegerField(min_value=0, max_value=LARGEST_OFFSET)
        try:
            return int(field.run_validation(seen))
        except serializers.ValidationError as error:
            raise serializers.ValidationError({"Last-Event-ID": error.detail}) from error
    return log.tail(asked["tail"]).offset if "tail" in asked else int(asked["offset"])


def no_such_rank(attempt: Attempt) -> NotFound:
    nodes = len(attempt.nodes)
    return NotFound(f"Attempt {attempt.number} has {nodes} node{'s' * (nodes != 1)}; ranks start at 0.")


class Log:
    """One log of one attempt; empty while the job has no launched attempt."""

    def __init__(self, job: Job, attempt: Attempt | None, stream: Stream, rank: int) -> None:
        self._job, self._attempt, self._stream, self._rank = job, attempt, stream, rank
        if attempt and rank >= len(attempt.nodes):
            raise no_such_rank(attempt)

    @property
    def _launched(self) -> Attempt | None:
        return self._attempt if self._attempt and self._attempt.launched_at else None

    def tail(self, lines: int) -> LogChunk:
        if self._launched is None:
            return self._nothing(0)
        log = AttemptLog(self._launched)
        start = start_of_last_lines(log, self._stream, rank=self._rank, lines=lines)
        return log.read(self._stream, self._rank, start, LARGEST_CHUNK)

    def chunk(self, asked: dict[str, Any]) -> HttpResponse:
        """The requested part of the log, as far as it has been written."""
        chunk = self.tail(asked["tail"]) if "tail" in asked else self._from(asked)
        answer = HttpResponse(chunk.data, content_type=PLAIN_TEXT, headers=AS_IT_IS)
        answer["Motley-Offset"] = str(chunk.offset)
        answer["Motley-Next-Offset"] = str(chunk.next_offset)
        answer["Motley-Log-Size"] = str(chunk.size)
        answer["Motley-Log-Complete"] = "true" if chunk.eof and self._is_over() else "false"
        if asked["wait"] and answer["Motley-Log-Complete"] == "false" and (pause_s := pace.pause_s()):
            answer["Retry-After"] = str(pause_s)
        answer["Motley-Attempt"] = str(self._attempt.number if self._attempt else 0)
        return answer

    def part(self, header: str, *, user: int) -> HttpResponseBase:
        """A byte range with status 206; raises `NoSuchRange` past the end, `TooManyLongRequests` for large ones."""
        log = AttemptLog(self._launched) if self._launched else None
        part = byte_range_of(header, log.size(self._stream, self._rank) if log else 0)
        assert log is not None  # noqa: S101 - a log without bytes has no parts
        headers = AS_IT_IS | {"Content-Range": part.content_range, "Content-Length": str(part.end - part.start)}
        blocks = log.between(self._stream, self._rank, part.start, part.end)
        if part.end - part.start <= LARGEST_CHUNK:
            return HttpResponse(b"".join(blocks), status=206, content_type=PLAIN_TEXT, headers=headers)
        download = LogDownload(blocks, part.end - part.start, log_downloads.take(user))
        return StreamingHttpResponse(download, status=206, content_type=PLAIN_TEXT, headers=headers)

    def events(self, offset: int, *, may_go_on: Callable[[], bool]) -> StreamingHttpResponse:
        """Server-sent events until the end, while `may_go_on`."""
        following = LogEventStream(
            self._job, self._attempt, self._stream, rank=self._rank, offset=offset, may_go_on=may_go_on
        )
        return StreamingHttpResponse(following, content_type="text/event-stream", headers=AS_IT_IS | UNBUFFERED)

    def following(self, offset: int, *, user: int, may_go_on: Callable[[], bool]) -> FollowingResponse:
        """The same on the server of long requests; raises `TooManyStreams`."""
        followed = Followed(self._job, self._attempt, self._stream, self._rank, offset, may_go_on)
        return FollowingResponse(followed, log_streams.take(user), AS_IT_IS | UNBUFFERED)

    def _from(self, asked: dict[str, Any]) -> LogChunk:
        if self._launched is None:
            return self._nothing(asked["offset"])
        with stream_slots.slot_if_free() as is_ours:  # waiting occupies a thread as a stream does
            wait = timedelta(seconds=asked["wait"] if is_ours else 0)
            return read_log(
                self._launched, self._stream, rank=self._rank, offset=asked["offset"], wait=wait, limit=asked["limit"]
            )

    def _nothing(self, offset: int) -> LogChunk:
        return LogChunk(b"", offset=offset, next_offset=offset, size=0, eof=self._is_over())

    def _is_over(self) -> bool:
        return self._job.is_final if self._attempt is None else self._attempt.state == Attempt.State.ENDED
