"""REST: interactive sessions in running jobs, by WebSocket."""

import json
from typing import Any

from django.http import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request

from audit_app.models import Action
from audit_app.services import note
from connections_app.engine_registry import engine_named
from connections_app.long_requests import sessions
from connections_app.sessions.websocket import (
    NotAsked,
    SessionResponse,
    require_websocket,
)
from engines.protocol import EngineError, SessionCommand
from engines.sessions.frames import HEADER, Kind
from jobs_app.authentication import BearerToken
from jobs_app.errors import Conflict
from jobs_app.models import Attempt, Job
from jobs_app.permissions import MaySubmit, caller, jobs_seen_by, still_sees
from jobs_app.secrets import refuse_session_beside_secrets
from jobs_app.submission.fields import MOST_GPUS, is_text
from web.rest.bodies import Strict
from web.rest.errors import faults_of
from web.rest.query import query_of

LONGEST_REASON = 120
"""A closing frame has room for 123 bytes."""
MOST_WORDS = 1000
LONGEST_WORD = 64 * 1024


class Terminal(Strict):
    rows = serializers.IntegerField(min_value=1, max_value=10_000)
    columns = serializers.IntegerField(min_value=1, max_value=10_000)
    term = serializers.CharField(max_length=100)


class Word(serializers.CharField):
    def to_internal_value(self, data: Any) -> str:
        if not is_text(data):
            raise serializers.ValidationError("Write text without NUL bytes.")
        return str(data)


class SessionRequest(Strict):
    """First message of a session, as text."""

    argv = serializers.ListField(
        child=Word(max_length=LONGEST_WORD, allow_blank=True),
        allow_null=True,
        required=False,
        default=None,
        min_length=1,
        max_length=MOST_WORDS,
        help_text="A command and its arguments; null: a shell.",
    )
    terminal = Terminal(allow_null=True, required=False, default=None)
    port = serializers.IntegerField(min_value=1, max_value=65_535, allow_null=True, required=False, default=None)


class SessionQuery(serializers.Serializer[Any]):
    rank = serializers.IntegerField(min_value=0, max_value=MOST_GPUS, default=0, help_text="Rank of the node.")


class SessionView(GenericAPIView[Job]):
    authentication_classes = (BearerToken,)  # not a browser's cookie, which other sites can make it send
    permission_classes = (MaySubmit,)

    @extend_schema(
        parameters=[SessionQuery],
        responses={101: OpenApiResponse(description="The connection is a WebSocket now.")},
    )
    def get(self, request: Request, pk: str) -> HttpResponseBase:
        """Open a session in a running job by WebSocket: a command, a shell, or connections to a port.

        The first message is text, JSON: `{"argv": [...] or null, "terminal": {"rows", "columns", "term"} or null}` or
        `{"port": 8888}`. All others are bytes, the frames of `engines.sessions.frames`. The command runs as the job
        does, sees what the job sees, and ends with it. In a job with secrets of its owner alone, only the owner opens
        one.
        """
        rank = query_of(request, SessionQuery)["rank"]
        job = get_object_or_404(jobs_seen_by(request), pk=pk)
        require_websocket(request.META)
        attempt = _running(job, rank)
        refuse_session_beside_secrets(attempt, caller(request))
        session = JobSession(request, attempt, _command(attempt, rank))
        return SessionResponse(session, sessions.take(caller(request).pk))


class JobSession:
    """A session in an attempt of a job, for the server of long requests."""

    to_the_end = False

    def __init__(self, request: Request, attempt: Attempt, command: SessionCommand) -> None:
        self._request, self._attempt, self.command = request, attempt, command

    def begin(self, message: str | bytes) -> bytes:
        """Check and note the first message; the first bytes for the process. Raises `NotAsked`."""
        asked = _asked(message)
        _note(self._request, self._attempt.job, asked)
        _note_use(self._attempt)
        return HEADER.pack(Kind.REQUEST, 0, len(asked)) + asked

    def check(self, in_use: bool) -> bool:
        """Record the use; whether its token and its user's membership are valid, and the attempt runs."""
        if in_use:
            _note_use(self._attempt)
        return still_sees(self._request, self._attempt.job_id) and self.runs()

    def runs(self) -> bool:
        """Whether the attempt runs."""
        return Attempt.objects.live().filter(pk=self._attempt.pk).exists()


def _command(attempt: Attempt, rank: int) -> SessionCommand:
    try:
        return engine_named(attempt.engine).session(attempt.pk, rank)
    except EngineError as error:
        raise Conflict(str(error)) from error


def _why_none(job: Job) -> str:
    state = job.get_state_display().lower()
    if job.is_final:
        return f"The job has ended ({state}), and its sessions with it: submit it again, or read its log."
    return f"The job is {state}, and a session needs a running one: try again once it runs."


def _running(job: Job, rank: int) -> Attempt:
    attempt = job.attempts.filter(state=Attempt.State.RUNNING).last()
    if attempt is None:
        raise Conflict(_why_none(job))
    if rank >= len(attempt.nodes):
        raise Conflict(f"The job runs on {len(attempt.nodes)} nodes: give a rank below that.")
    return attempt


def _asked(message: str | bytes) -> bytes:
    """The first message, checked."""
    try:
        body = SessionRequest(data=json.loads(message))
        if body.is_valid():
            return json.dumps(body.validated_data).encode()
    except (ValueError, RecursionError):
        raise NotAsked("the first message must be JSON") from None
    fault = next(iter(faults_of(body.errors)))
    raise NotAsked(f"{fault['pointer']}: {fault['detail']}".encode()[:LONGEST_REASON].decode(errors="ignore"))


def _note_use(attempt: Attempt) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(session_at=timezone.now())


def _note(request: Request, job: Job, asked: bytes) -> None:
    wanted = json.loads(asked)
    what = f"port {wanted['port']}" if wanted["port"] else " ".join(wanted["argv"] or ["a shell"])
    note(Action.JOB_SESSION, actor=caller(request), target=str(job), target_id=job.pk, message=what[:500])
