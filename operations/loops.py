"""Turns of the two loops of the service: those of the scheduler, with the chores of the other apps."""

from datetime import datetime

from accounting_app.durations.boosted_model import fit_when_due
from accounting_app.energy.advice import advise_when_due
from insight_app.lab.runs import round_turn_and_lab
from insight_app.policy_effects.watch import judge_policy_when_due
from operations.notifying import SENDER
from operations.retention import delete_expired_when_due
from scheduler_app.recurring_jobs.submission import submit_due_runs
from scheduler_app.round import tick
from scheduler_app.sweeps.advance import advance_sweeps

CHORES = (
    submit_due_runs,
    advance_sweeps,
    advise_when_due,
    delete_expired_when_due,
    fit_when_due,
    judge_policy_when_due,
)


def engine_turn(holder: str, now: datetime) -> bool:
    """Turn of the loop of engines with all chores; False if another process does it. Idempotent."""
    return tick.engine_turn(holder, now, chores=CHORES)


def round_turn(holder: str, now: datetime) -> bool:
    """Turn of rounds with forecasts, lab runs and the notifications that are due; False if another process does it."""
    if not round_turn_and_lab(holder, now):
        return False
    SENDER.work(now)
    return True


def both_turns(holder: str, now: datetime) -> bool:
    """One turn of both loops, for a single process."""
    return tick.tick(holder, now, chores=CHORES)
