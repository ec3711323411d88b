"""REST: messages of agents (`/agent/`). The token of a machine is good here and nowhere else.

These routes are not in the schema: agents and service of one release speak by them (`engines.agent.messages`).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from io import BytesIO
from pathlib import Path
from socket import SHUT_RD, socket
from threading import Timer
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import FileResponse, HttpResponseBase, UnreadablePostError
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import APIException, NotFound, ParseError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from connections_app.agents.authentication import agent_of, refuse_other_machine
from connections_app.agents.join_agent import join, service_name, try_to_join
from connections_app.agents.sessions import session_of
from connections_app.agents.sync import hear, launch_stored
from connections_app.agents.uploads import (
    ArchiveLimits,
    CutShort,
    LargerThanAllowed,
    NotGzip,
    Readable,
    UnpacksToMore,
    append_log,
    own_slot,
    shared_slot,
    store_checkpoints,
)
from connections_app.errors import AgentRefused, NoSuchAgent
from connections_app.long_requests import server_sessions
from connections_app.models import Agent, AgentAttempt
from connections_app.sessions.websocket import SessionResponse, require_websocket
from engines.agent.codec import BadMessage, decode, encode
from engines.agent.messages import Joined, Joining, Sync
from engines.protocol import Launch, Phase, Stream
from jobs_app.models import Attempt
from web.rest.errors import Fault, InvalidRequest
from web.rest.parsers import Bytes, Gzip, TooLarge

Message = TypeVar("Message")
ATTEMPT = re.compile(r"-?[0-9]{1,18}")
"""Tests of engines have negative numbers."""
LARGEST_PIECE = 1 << 20
LARGEST_MESSAGE_BYTES = 5 << 19
LONGEST_SILENCE_S = 60.0
"""Between two pieces of a body."""
LEAST_BYTES_PER_S = 1 << 14
"""Mean rate of an archive."""
BEYOND_THE_LIMIT = 1 << 16
"""Bytes of a log beyond its limit: the mark that says that it was cut."""


class AgentToken(BaseAuthentication):
    """`Authorization: Bearer <token of a machine that joined>`."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Agent]:
        return AnonymousUser(), agent_of(bearer_of(request))

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="motley"'


class IsAgent(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, Agent)


class OfAgents(APIView):
    """A route for the token of a machine alone; the pace of agents is theirs to keep."""

    largest_bodies = {"post": LARGEST_MESSAGE_BYTES}
    authentication_classes = (AgentToken,)
    permission_classes = (IsAgent,)
    throttle_classes = ()

    def row(self, request: Request, attempt: str) -> AgentAttempt:
        """The attempt, if it is at this agent."""
        rows = AgentAttempt.objects.filter(agent=agent_in(request), forgotten=False)
        found = rows.filter(attempt=attempt).first() if ATTEMPT.fullmatch(attempt) else None
        if found is None:
            raise NotFound(f"There is no attempt {attempt} at this machine.")
        return found


@extend_schema(exclude=True)
class JoinView(APIView):
    """The only route for join tokens."""

    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request) -> Response:
        text, joining, now = bearer_of(request), message_of(Joining, request), timezone.now()
        if joining.trial:
            agent, job_uid = try_to_join(text, joining, now)
            return Response(encode(Joined(agent.name, site=agent.site, job_uid=job_uid)))
        agent = join(text, joining, now)
        return Response(encode(Joined(agent.name, site=agent.site, service=service_name())))


@extend_schema(exclude=True)
class SyncView(OfAgents):
    def post(self, request: Request) -> Response:
        told = message_of(Sync, request)
        refuse_other_machine(agent_in(request), version=told.version, machine=told.machine)
        return Response(encode(hear(agent_in(request), told, timezone.now())))


@extend_schema(exclude=True)
class ServerSessionView(OfAgents):
    def get(self, request: Request, key: str) -> HttpResponseBase:
        """Open the server's end of a session by WebSocket."""
        require_websocket(request.META)
        agent = agent_in(request)
        session = session_of(agent, key)
        if session is None:
            raise NotFound("There is no such session at this machine (any more).")
        return SessionResponse(session, server_sessions.take(agent.pk))


@extend_schema(exclude=True)
class LogsView(OfAgents):
    parser_classes = (Bytes,)

    def put(self, request: Request, attempt: str, stream: str, rank: int) -> Response:
        row, offset = self.row(request, attempt), request.query_params.get("offset", "")
        if stream not in [one.value for one in Stream] or rank != 0 or not offset.isdigit():
            raise NotFound("There is no such log.")
        with own_slot(row.agent_id, "logs"), upload_of(request) as body:
            data = body.read(LARGEST_PIECE + 1)
            if len(data) > LARGEST_PIECE:
                raise TooLarge(f"A piece of a log has at most {LARGEST_PIECE} bytes.")
            most = settings.MOTLEY_LOG_LIMIT_BYTES + BEYOND_THE_LIMIT
            size = append_log(row.attempt, Stream(stream), int(offset), data, most=most, rank=row.rank)
        return Response({"size": size})


@extend_schema(exclude=True)
class CodeView(OfAgents):
    def get(self, request: Request, attempt: str) -> FileResponse:
        return _file(self.row(request, attempt), lambda launch: launch.code)


@extend_schema(exclude=True)
class CheckpointsView(OfAgents):
    parser_classes = (Gzip,)

    def get(self, request: Request, attempt: str) -> FileResponse:
        return _file(self.row(request, attempt), lambda launch: launch.checkpoints)

    def put(self, request: Request, attempt: str) -> Response:
        """Store the job's checkpoints; refused once the attempt counts as ended, for a later one may have begun."""
        row, size = self.row(request, attempt), _size_of(request)
        with (
            own_slot(row.agent_id, "checkpoints"),
            shared_slot(settings.MOTLEY_AGENT_UPLOADS, is_last=_is_over(row)),
            upload_of(request, most_s=LONGEST_SILENCE_S + size / LEAST_BYTES_PER_S) as body,
        ):
            _store(row, body, size)
        return Response({})


def _is_over(row: AgentAttempt) -> bool:
    """Whether the agent says so: the end counts once its files are here."""
    return row.report is not None and Phase(row.report["phase"]).is_over


def _store(row: AgentAttempt, body: Readable, size: int) -> None:
    limits = ArchiveLimits(settings.MOTLEY_AGENT_CHECKPOINT_BYTES, settings.MOTLEY_AGENT_UNPACKED_BYTES)
    still = partial(_held_live, row.attempt)
    try:
        stored = store_checkpoints(row.job, body, size=size, limits=limits, sender=row.agent_id, still=still)
    except LargerThanAllowed:
        raise TooLarge(f"The checkpoints of a job may have at most {limits.packed} bytes, packed.") from None
    except UnpacksToMore:
        raise TooLarge(f"The checkpoints of a job may have at most {limits.unpacked} bytes, unpacked.") from None
    except NotGzip as error:
        raise ParseError(f"This is no gzipped archive: {error}.") from None
    if not stored:
        raise AgentRefused("The attempt has ended for the service.")


@contextmanager
def _held_live(attempt: int) -> Iterator[bool]:
    """Whether the attempt is live; it does not end within: a process that stands still stores nothing after its end."""
    with transaction.atomic():
        yield bool(Attempt.objects.live().select_for_update().filter(pk=attempt).values_list("pk"))


@contextmanager
def upload_of(request: Request, *, most_s: float = 2 * LONGEST_SILENCE_S) -> Iterator[Readable]:
    """The body; a sender that is slow or stands still does not hold a thread of the web server for ever."""
    connection = request.META.get("gunicorn.socket")
    try:
        with _bounded(connection, most_s) if connection is not None else nullcontext():
            yield request.stream or BytesIO()
    except (CutShort, UnreadablePostError):
        raise ParseError("The transfer was cut short, or slower than is allowed: send it again.") from None


@contextmanager
def _bounded(connection: socket, most_s: float) -> Iterator[None]:
    """Bounds of the silence between two pieces, and of the whole time: then nothing more is read."""
    before = connection.gettimeout()
    end = Timer(most_s, connection.shutdown, [SHUT_RD])
    end.daemon = True
    connection.settimeout(LONGEST_SILENCE_S)
    end.start()
    try:
        yield
    finally:
        end.cancel()
        connection.settimeout(before)


class LengthRequired(APIException):
    """Without a length, nobody can tell an archive from the beginning of one."""

    status_code = 411
    default_code = "length_required"
    default_detail = "Say the length of the archive: Content-Length."


def _size_of(request: Request) -> int:
    text = request.META.get("CONTENT_LENGTH") or ""
    if not text.isdigit():
        raise LengthRequired
    return int(text)


def agent_in(request: Request) -> Agent:
    """The machine that asks: `IsAgent` admits no other caller."""
    agent: Any = request.auth
    found: Agent = agent
    return found


def bearer_of(request: Request) -> str:
    scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise NoSuchAgent("Show the machine's token: Authorization: Bearer.")
    return text.strip()


def message_of(kind: type[Message], request: Request) -> Message:
    data: Any = request.data
    try:
        return decode(kind, data)
    except BadMessage as error:
        raise InvalidRequest([Fault(pointer="", code="invalid", detail=str(error))]) from error


def _file(row: AgentAttempt, choose: Callable[[Launch], Path | None]) -> FileResponse:
    launch = launch_stored(row)
    path = choose(launch) if launch is not None else None
    try:
        file = path.open("rb") if path is not None else None
    except FileNotFoundError:
        file = None
    if file is None:
        raise NotFound("There is no such file of this attempt.")
    return FileResponse(file, content_type=Gzip.media_type)
