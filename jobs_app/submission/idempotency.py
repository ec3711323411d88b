"""Idempotency keys: a request sent again with the same key gets its first answer, and is not executed twice."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from jobs_app.errors import InProgress, KeyReused
from jobs_app.models import IdempotencyKey

HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": 200},
    OpenApiParameter.HEADER,
    description="A text of your choice, 1 to 200 printable ASCII characters. For 72 hours, unless the administrator set"
    " another time, a request with the same key, query and body gets the first answer again, with "
    "`Idempotency-Replayed: true`. The same key with another query or body is answered with 422, and with 409 while "
    "the first request is still in progress.",
)


@dataclass(frozen=True)
class KeyedRequest:
    """A request with the idempotency key that its sender gave it; without a key nothing is looked up or stored."""

    user: User
    route: str
    key: str | None
    digest: str
    """SHA-256 of the body as canonical JSON, and of the query: white space and the order of fields do not count."""

    @classmethod
    def of(cls, request: Request) -> "KeyedRequest":
        key = request.headers.get(HEADER)
        if key is not None and not re.fullmatch(r"[ -~]{1,200}", key):
            raise ValidationError({HEADER: ["Use 1 to 200 printable ASCII characters."]})
        body = "" if key is None else json.dumps(request.data, sort_keys=True) + _query_of(request)
        user: User = request.user  # type: ignore[assignment]  # `InScope` admits no other
        return cls(user, f"{request.method} {request.path}", key, hashlib.sha256(body.encode()).hexdigest())

    def stored_answer(self) -> Any:
        """The first answer, None if there is none; raises `KeyReused` if it answered another body."""
        if self.key is None:
            return None
        rows = IdempotencyKey.objects.filter(user=self.user, route=self.route, key=self.key)
        row = rows.filter(created_at__gt=timezone.now() - settings.MOTLEY_KEEP_IDEMPOTENCY_KEYS).first()
        if row and row.digest != self.digest:
            raise KeyReused(self.key)
        return row and row.answer

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Transaction that excludes other requests with this key; raises `InProgress` if one is being answered."""
        with transaction.atomic():
            if self.key is not None:
                self._lock()
            yield

    def _lock(self) -> None:
        """Take an advisory lock until the transaction ends; SQLite admits only one writer anyway."""
        if connection.vendor == "postgresql":
            number = hashlib.sha256(f"{self.user.pk} {self.route} {self.key}".encode()).digest()[:8]
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_try_advisory_xact_lock(%s)", [int.from_bytes(number, byteorder="big", signed=True)]
                )
                if cursor.fetchone() != (True,):
                    raise InProgress

    def store(self, answer: Any, *, status: int) -> None:
        """Insert the answer, or overwrite one that has expired."""
        if self.key is None:
            return
        row = IdempotencyKey(
            user=self.user, route=self.route, key=self.key, digest=self.digest, status=status, answer=answer
        )
        IdempotencyKey.objects.bulk_create(
            [row],
            update_conflicts=True,
            unique_fields=["user", "route", "key"],
            update_fields=["digest", "status", "answer", "created_at"],
        )


def _query_of(request: Request) -> str:
    """The parameters in the order of their names; empty without any."""
    given = sorted(request.query_params.lists())
    return json.dumps(given) if given else ""
