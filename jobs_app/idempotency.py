"""Requests that may be repeated without being done twice: the first answer to a key is kept, and given again."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from jobs_app.errors import InProgress, KeyReused
from jobs_app.models import IdempotencyKey

Admitted = TypeVar("Admitted")
KEPT = timedelta(hours=72)


@dataclass(frozen=True)
class Named:
    """A request by the key that its sender gave it."""

    user: User
    route: str
    key: str
    digest: str
    """Of what the body says; white space and the order of fields say nothing."""

    @classmethod
    def of(cls, user: User, route: str, key: str, body: Any) -> "Named":
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        return cls(user, route, key, digest)

    def kept(self) -> Any:
        """The first answer, None if there is none; `KeyReused` if it was to something else."""
        rows = IdempotencyKey.objects.filter(user=self.user, route=self.route, key=self.key)
        row = rows.filter(created_at__gt=timezone.now() - KEPT).first()
        if row and row.digest != self.digest:
            raise KeyReused(self.key)
        return row and row.answer

    def lock(self) -> None:
        """Until the transaction ends nobody else answers to this key; `InProgress` if somebody does already.

        SQLite lets only one writer in, and the next finds the answer of the one before.
        """
        if connection.vendor == "postgresql":
            number = hashlib.sha256(f"{self.user.pk} {self.route} {self.key}".encode()).digest()[:8]
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_try_advisory_xact_lock(%s)", [int.from_bytes(number, byteorder="big", signed=True)]
                )
                if cursor.fetchone() != (True,):
                    raise InProgress

    def keep(self, answer: Any, status: int) -> None:
        """In place of one that is too old, if there is one."""
        row = IdempotencyKey(
            user=self.user, route=self.route, key=self.key, digest=self.digest, status=status, answer=answer
        )
        IdempotencyKey.objects.bulk_create(
            [row],
            update_conflicts=True,
            unique_fields=["user", "route", "key"],
            update_fields=["digest", "status", "answer", "created_at"],
        )


def answer_once(
    named: Named | None, admit: Callable[[], Admitted], enter: Callable[[Admitted], Any], *, status: int
) -> tuple[Any, bool]:
    """Admit, then enter and answer; or the answer of the first time. Also: whether it is that.

    What is admitted is looked at before anything is locked. A refusal is not kept: the same key may come with better.
    """
    if named is None:
        return enter(admit()), False
    if kept := named.kept():
        return kept, True
    admitted = admit()
    with transaction.atomic():
        named.lock()
        if kept := named.kept():
            return kept, True
        answer = enter(admitted)
        named.keep(answer, status)
    return answer, False


def forget_old_keys(now: datetime) -> None:
    IdempotencyKey.objects.filter(created_at__lt=now - KEPT).delete()
