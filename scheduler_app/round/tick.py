"""Iterations (turns) of the scheduler's two loops: engines and rounds, each under its own lease."""

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import scipy.optimize  # noqa: F401, TID253  # at the scheduler's start, not within the first round's time limit

from cluster_app.lending import window_changes
from cluster_app.services import follow_windows
from connections_app.probe import advance_probes
from jobs_app.models import Job
from scheduler_app.errors import LeaseLost
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.inputs import newest_events
from scheduler_app.round.lease import LONGEST_TURN, Fence, Loop, acquire_lease, lease_renewed
from scheduler_app.round.power import drive_power
from scheduler_app.round.reconcile import observe
from scheduler_app.round.run_round import run_round
from scheduler_app.round.stop_rules import stop_before_windows
from scheduler_app.round.watch_gpus import watch_gpus
from scheduler_app.windows.drain_for_maintenance import follow_maintenance, maintenance_changes
from scheduler_app.windows.reading import WindowRow, read_windows

log = logging.getLogger(__name__)

DEBOUNCE = timedelta(seconds=1)
"""Least time between rounds that events cause: a burst of submissions causes one round."""


Chore = Callable[[datetime], None]
"""Work that is due by the clock, and that no round depends on."""


def tick(holder: str, now: datetime, *, chores: Sequence[Chore] = ()) -> bool:
    """One iteration of both loops, for a single process: observe, decide, dispatch."""
    return engine_turn(holder, now, chores=chores) and round_turn(holder, now) and send_commands(holder, now)


def engine_turn(holder: str, now: datetime, *, chores: Sequence[Chore] = ()) -> bool:
    """Observe the engines, send commands, do chores; False if another process holds the lease. Idempotent."""

    def work() -> None:
        fence, windows = Fence.of(holder), read_windows(now)
        observe(fence, now)
        give_back_and_lend(fence, now)
        stop_before_windows(fence, windows, now)
        begin_and_end_maintenance(fence, windows, now)
        dispatch(fence, now)
        watch_gpus(fence, now)
        advance_probes(now)
        drive_power(fence, now)
        for chore in chores:
            chore(now)

    return _turn(Loop.ENGINES, holder, now, work)


def give_back_and_lend(fence: Fence, now: datetime) -> None:
    """Drain nodes whose window ends, and return to service those whose window begins. Idempotent."""
    if changes := window_changes(now):
        with fence.transaction():
            follow_windows(changes, now)


def begin_and_end_maintenance(fence: Fence, windows: Sequence[WindowRow], now: datetime) -> None:
    """Drain nodes whose maintenance begins, and return to service those where it is over. Idempotent."""
    if changes := maintenance_changes(windows, now):
        with fence.transaction():
            follow_maintenance(changes, now)


def send_commands(holder: str, now: datetime) -> bool:
    """Send the engines due commands; False if another scheduler holds the lease."""
    return _turn(Loop.ENGINES, holder, now, lambda: dispatch(Fence.of(holder), now))


def round_turn(holder: str, now: datetime) -> bool:
    """Run a round if one is due; False if another scheduler holds the lease. Idempotent."""

    def work() -> None:
        if round_is_due(now):
            with garbage_collection_disabled():
                run_round(holder, now)

    solve_limit = timedelta(seconds=PolicySetting.objects.current().solve_limit_s)
    return _turn(Loop.ROUNDS, holder, now, work, longest=LONGEST_TURN + solve_limit)


def _turn(
    loop: Loop, holder: str, now: datetime, work: Callable[[], None], *, longest: timedelta = LONGEST_TURN
) -> bool:
    """Do the loop's work under its lease; returns whether the lease was held to the end."""
    if not acquire_lease(holder, now, loop):
        return False
    try:
        with lease_renewed(holder, now, loop, longest=longest):
            work()
    except LeaseLost as error:
        log.warning("%s", error)
        return False
    return True


def round_is_due(now: datetime) -> bool:
    """Whether a round length has passed, or since the last round an event has happened or a job's pause has ended."""
    last = Round.objects.defer("archive").first()
    if last is None:
        return True
    since, length = now - last.started_at, timedelta(seconds=PolicySetting.objects.current().round_length_s)
    if not timedelta() <= since < length:  # also after the clock was set back
        return True
    if since < DEBOUNCE:
        return False
    happened = newest_events() > (last.last_job_event, last.last_node_event)
    return happened or Job.objects.eligible_between(last.started_at, now).exists()


@contextmanager
def garbage_collection_disabled() -> Iterator[None]:
    """Disable the garbage collector: with half a million live objects its passes took a quarter of a round."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
