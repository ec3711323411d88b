"""Delivery of the outbox: at least once, under a lease on each row, with back-off by target.

Several senders may run: a row is taken by a conditional update, and given out again if its sender does not come back
before the lease ends. The messages of one target are sent in order, those of several targets at the same time.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from jobs_app.models import Notification, NotificationTarget
from jobs_app.notifications.mail_and_slack import send_mail, send_slack
from jobs_app.notifications.outbox import Outcome
from jobs_app.notifications.texts import payload_of, text_of
from jobs_app.notifications.webhook import post_webhook
from jobs_app.secrets import SecretGone, unseal

log = logging.getLogger(__name__)

Kind = NotificationTarget.Kind
State = Notification.State
LEASE = timedelta(minutes=5)
ROWS_AT_ONCE = 500
MOST_GATHERED = 100
TARGETS_AT_ONCE = 8
GAP = timedelta(minutes=1)
"""Between two messages to people at one target: what happens meanwhile is gathered in the next."""
LONGEST_PER_TARGET_S = 60.0
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(hours=1)
MOST_TRIES = 12
GIVEN_UP_AFTER = timedelta(days=1)


@dataclass(frozen=True)
class Message:
    """Notifications that are sent to one target in one message."""

    target: NotificationTarget
    notifications: Sequence[Notification]


@dataclass(frozen=True)
class Delivery:
    """A message and the outcome of its delivery; None if there was no time, or an earlier message failed."""

    message: Message
    outcome: Outcome | None


def send_due(now: datetime) -> int:
    """Send due notifications until there are none; returns the number of attempted messages."""
    tried = 0
    while taken := take(now):
        tried += _send(taken)
        now = max(now, timezone.now())
    return tried


def take(now: datetime) -> list[Notification]:
    """Claim due notifications under a lease of this call, without those that another sender has claimed."""
    gathered = Q(target__kind=Kind.WEBHOOK) | Q(target__sent_at=None) | ~Q(target__sent_at__range=(now - GAP, now))
    rows = list(Notification.objects.due(now).filter(gathered).values_list("pk", flat=True)[:ROWS_AT_ONCE])
    lease = uuid4()
    still = Notification.objects.filter(pk__in=rows, state=State.PENDING, due_at__lte=now)
    still.update(lease=lease, due_at=now + LEASE)
    return list(Notification.objects.filter(lease=lease, pk__in=rows).select_related("target").order_by("pk"))


def _send(taken: Sequence[Notification]) -> int:
    """Deliver by threads that do not use the database; outcomes are stored as soon as a target's are known.

    What would be begun so late that its lease may end meanwhile is left to the next call.
    """
    by_target, begin_by = messages_of(taken), monotonic() + LEASE.total_seconds() - LONGEST_PER_TARGET_S
    tried = 0
    with ThreadPoolExecutor(TARGETS_AT_ONCE) as pool:
        targets = [pool.submit(_deliver_all, messages, begin_by) for messages in by_target]
        for done in as_completed(targets):
            for delivery in done.result():
                settle(delivery, timezone.now())
                tried += delivery.outcome is not None
    return tried


def messages_of(taken: Iterable[Notification]) -> list[list[Message]]:
    """The messages of each target: one for each notification, or for up to a hundred where people read them."""
    rows: dict[int, list[Notification]] = defaultdict(list)
    for one in taken:
        rows[one.target_id].append(one)
    return [list(_messages_of_target(mine)) for mine in rows.values()]


def _messages_of_target(rows: Sequence[Notification]) -> Iterator[Message]:
    target = rows[0].target
    size = MOST_GATHERED if target.is_gathered else 1
    return (Message(target, rows[first : first + size]) for first in range(0, len(rows), size))


def _deliver_all(messages: Sequence[Message], begin_by: float) -> list[Delivery]:
    """Deliver the messages of one target in order; after a failure, a minute, or that time, the others wait."""
    until, found, failed = min(monotonic() + LONGEST_PER_TARGET_S, begin_by), [], False
    for message in messages:
        outcome = None if failed or monotonic() > until else _deliver(message)
        failed = failed or (outcome is not None and not outcome.sent and not outcome.final)
        found.append(Delivery(message, outcome))
    return found


def _deliver(message: Message) -> Outcome:
    try:
        return _by_kind(message)
    except SecretGone:
        text = (
            "Its address was encrypted with a key that the service has no longer: delete the target, and add it anew."
        )
        return Outcome(sent=False, error=text, final=True)
    except Exception as error:  # of this message alone; its text may quote the address
        log.error("a notification could not be sent: %s", type(error).__name__)
        return Outcome(sent=False, error=f"{type(error).__name__}: an error of the service.")


def _by_kind(message: Message) -> Outcome:
    target, first = message.target, message.notifications[0]
    address = unseal(target.encrypted)
    match target.kind:
        case Kind.MAIL:
            return send_mail(address, text_of(message.notifications), str(first.pk))
        case Kind.SLACK:
            return send_slack(address, text_of(message.notifications))
    key, allowed = unseal(target.encrypted_key), settings.MOTLEY_WEBHOOK_NETWORKS
    return post_webhook(address, key, payload_of(first), timezone.now(), allowed=allowed)


@transaction.atomic
def settle(delivery: Delivery, now: datetime) -> None:
    """Write the outcome, if the lease is still ours."""
    message, outcome = delivery.message, delivery.outcome
    lease = message.notifications[0].lease
    mine = Notification.objects.filter(pk__in=[one.pk for one in message.notifications], lease=lease)
    if outcome is None:
        mine.update(lease=None, due_at=now)
    elif outcome.sent:
        mine.update(state=State.SENT, sent_at=now, tries=F("tries") + 1, error="", lease=None)
        NotificationTarget.objects.filter(pk=message.target.pk).update(sent_at=now, failures=0, retry_at=None)
    else:
        _fail(message, outcome, now)


def _fail(message: Message, outcome: Outcome, now: datetime) -> None:
    target = message.target
    for one in message.notifications:
        facts = _after_failure(one, outcome, now)
        Notification.objects.filter(pk=one.pk, lease=one.lease).update(**facts)
    if not outcome.final:
        failing = NotificationTarget.objects.filter(pk=target.pk)
        failing.update(failures=F("failures") + 1, retry_at=now + pause_after(target.failures))


def _after_failure(one: Notification, outcome: Outcome, now: datetime) -> Mapping[str, object]:
    """Columns of a notification whose message was not accepted: given up, or due again after a pause."""
    last = outcome.final or one.tries + 1 >= MOST_TRIES or now - one.created_at > GIVEN_UP_AFTER
    facts = {"tries": one.tries + 1, "error": outcome.error[:300], "lease": None}
    return facts | ({"state": State.DEAD} if last else {"due_at": now + pause_after(one.tries)})


def pause_after(failures: int) -> timedelta:
    """Exponential back-off: 10 s, 30 s, 90 s and so on, up to an hour."""
    times: int = 3 ** min(failures, 10)
    return min(FIRST_PAUSE * times, LONGEST_PAUSE)
