"""One tick of the scheduler, called by the loop and by Celery: observe, run a due round, dispatch, apply retention."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import scipy.optimize  # noqa: F401, TID253  # at the scheduler's start, not within the first round's time limit

from scheduler_app.errors import LeaseLost
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.inputs import newest_events
from scheduler_app.round.lease import acquire_lease, lease_renewed
from scheduler_app.round.observe import observe
from scheduler_app.round.probe import advance_probes
from scheduler_app.round.retention import delete_expired_when_due
from scheduler_app.round.run_round import run_round

log = logging.getLogger(__name__)

DEBOUNCE = timedelta(seconds=1)
"""Least time between rounds that events cause: a burst of submissions causes one round."""


def tick(holder: str, now: datetime) -> bool:
    """Do what is due; False if another scheduler holds the lease. Idempotent: may be called at any time."""
    if not acquire_lease(holder, now):
        return False
    try:
        with lease_renewed(holder, now), garbage_collection_disabled():
            observe(now)
            if round_is_due(now):
                run_round(holder, now)
            dispatch(now)
            advance_probes(now)
            delete_expired_when_due(now)
    except LeaseLost as error:
        log.warning("%s", error)
        return False
    return True


def round_is_due(now: datetime) -> bool:
    """Whether a round length has passed, or an event has happened since the last round."""
    last = Round.objects.defer("archive").first()
    if last is None:
        return True
    since, length = now - last.started_at, timedelta(seconds=PolicySetting.objects.current().round_length_s)
    if not timedelta() <= since < length:  # also after the clock was set back
        return True
    return since >= DEBOUNCE and newest_events() > (last.last_job_event, last.last_node_event)


@contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    """Disable the garbage collector: with half a million live objects its passes took a quarter of a round."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
