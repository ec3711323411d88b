"""Checkpoint times of attempts that run: what they decide from when they save next, renewed after each round.

Nodes stay longer or shorter than was observed at the launch, and a checkpoint takes longer as files grow. A job is told
by its engine, in a file that the training helper reads. What has changed little is not told: a quarter more of either
time makes Daly's interval 12 % longer, and the loss is flat around its optimum.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from database.bulk_update import rewrite
from engines.protocol import CheckpointTimes
from estimation.checkpoint_plan import CheckpointTerms
from jobs_app.models import Attempt
from scheduler_app.round.node_lifetimes import checkpoint_terms

LEAST_CHANGE = 0.25
"""Part by which a time differs from the one told last, if it is told again."""
LEAST_CHANGE_OF_PART = 0.05
LOOKED_AT = 1000
"""Attempts whose times a round computes; of more it takes a part, and the next round another."""
COLUMNS = ("job", "number", "nodes", "checkpoint_s", "checkpoint_times")


def times_of(terms: CheckpointTerms) -> CheckpointTimes:
    """The terms as jobs are told them."""
    stay = terms.interruptions
    return CheckpointTimes(stay.mean_up_s, stay.notified, stay.notice_s, terms.cost_s)


def renew_checkpoint_times(number: int, now: datetime) -> None:
    """In the round of this number, store the times of attempts that run and were told others; dispatch sends them."""
    attempts = _looked_at(number)
    if not attempts:
        return
    times = {pk: asdict(times_of(terms)) for pk, terms in checkpoint_terms(attempts, now).items()}
    told = {one.pk: one.checkpoint_times for one in attempts}
    news = {pk: (of_now, True) for pk, of_now in times.items() if is_news(told[pk], of_now)}
    if news:
        _store(news)


def _looked_at(number: int) -> list[Attempt]:
    """Attempts that run and were told their times at the launch, or the part of them whose turn it is."""
    running = Attempt.objects.live().filter(state=Attempt.State.RUNNING).exclude(checkpoint_times={})
    parts = 1 + running.count() // LOOKED_AT
    turn = running.annotate(part=F("pk") % parts).filter(part=number % parts)
    return list(turn.only(*COLUMNS).order_by("pk"))


@transaction.atomic
def _store(news: Mapping[int, tuple[dict[str, Any], bool]]) -> None:
    """In the order of the attempts, which others lock so, too."""
    running = Attempt.objects.select_for_update().filter(pk__in=news, state=Attempt.State.RUNNING).order_by("pk")
    still = {pk: news[pk] for pk in running.values_list("pk", flat=True)}
    rewrite(Attempt, ("checkpoint_times", "checkpoint_times_due"), still)


def is_news(told: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a job would save noticeably more or less often."""
    parts = abs(now["notified"] - told["notified"]) >= LEAST_CHANGE_OF_PART
    return parts or any(_differs(told[name], now[name]) for name in ("mean_up_s", "notice_s", "checkpoint_s"))


def _differs(told: float | None, now: float | None) -> bool:
    if told is None or now is None:
        return told is not now
    return abs(now - told) > LEAST_CHANGE * max(abs(told), abs(now))
