"""Logs over REST."""

from datetime import timedelta
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request

from engines.protocol import Stream
from jobs_app.api import jobs_seen_by
from jobs_app.models import Attempt, Job
from jobs_app.fields import MOST_GPUS
from scheduler_app.looking import read_log

LARGEST_CHUNK = 1024 * 1024


class LogQuery(serializers.Serializer[Any]):
    stream = serializers.ChoiceField([stream.value for stream in Stream], default=Stream.STDOUT.value)
    rank = serializers.IntegerField(
        min_value=0, max_value=MOST_GPUS, default=0, help_text="The node's rank in the gang."
    )
    attempt = serializers.IntegerField(min_value=1, required=False, help_text="The job's attempt; default: the latest.")
    offset = serializers.IntegerField(min_value=0, default=0, help_text="Bytes from the start.")
    limit = serializers.IntegerField(min_value=1, max_value=LARGEST_CHUNK, default=65_536)
    wait = serializers.FloatField(min_value=0, max_value=5, default=0, help_text="Seconds to wait for something new.")


class LogView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = LogQuery

    @extend_schema(
        parameters=[LogQuery],
        responses={(200, "text/plain"): OpenApiTypes.BINARY},
        description="The bytes of the log from `offset`. `Motley-Next-Offset` says where to go on, "
        "`Motley-Log-Complete` whether the attempt has ended and this was all.",
    )
    def get(self, request: Request, pk: str) -> HttpResponse:
        job = get_object_or_404(jobs_seen_by(request), pk=pk)
        query = LogQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        attempt = self._attempt(job, query.validated_data.get("attempt"))
        return log_answer(job, attempt, query.validated_data)

    def _attempt(self, job: Job, number: int | None) -> Attempt | None:
        if number is not None:
            return get_object_or_404(job.attempts, number=number)
        return job.attempts.exclude(launched_at=None).last()


def log_answer(job: Job, attempt: Attempt | None, query: dict[str, Any]) -> HttpResponse:
    """Plain bytes: what a job prints is never interpreted by the browser."""
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    answer = HttpResponse(content_type="text/plain; charset=utf-8", headers=headers)
    if attempt is None:
        next_offset, complete = query["offset"], job.is_final
    elif attempt.launched_at is None:
        next_offset, complete = query["offset"], attempt.state == Attempt.State.ENDED
    else:
        chunk = read_log(
            attempt,
            Stream(query["stream"]),
            rank=query["rank"],
            offset=query["offset"],
            wait=timedelta(seconds=query["wait"]),
            limit=query["limit"],
        )
        answer.write(chunk.data)
        next_offset, complete = chunk.next_offset, chunk.eof and attempt.state == Attempt.State.ENDED
    answer["Motley-Next-Offset"] = str(next_offset)
    answer["Motley-Log-Complete"] = "true" if complete else "false"
    answer["Motley-Attempt"] = str(attempt.number if attempt else 0)
    return answer
