"""Watch of the current policy: its effects are judged once a minute, and the policy undone if the guard says so."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime

from insight_app.models import PolicyGuard
from insight_app.policy_effects.effects import read_effects
from insight_app.policy_effects.guard import Predicted, Verdict, judge
from scheduler_app.policy.settings import undo_choice

log = logging.getLogger(__name__)


def judge_policy_when_due(now: datetime) -> None:
    """Judge the effects of the current setting, if it was chosen from a run of the lab. Idempotent.

    Nothing depends on it: where it fails, the other work of the turn goes on, and it is tried again.
    """
    guard = PolicyGuard.objects.due(now)
    if guard is None:
        return
    try:
        _judge(guard, min(now, guard.until))
    except Exception:
        log.exception("the effects of the policy were not judged; a later turn tries again")


def _judge(guard: PolicyGuard, now: datetime) -> None:
    verdict = judge(Predicted.of(guard.predicted), read_effects(guard.setting.created_at, now))
    PolicyGuard.objects.filter(pk=guard.pk).update(**_columns(verdict, now))
    if verdict.state == PolicyGuard.State.WORSE:
        _warn(guard, verdict)
        if guard.undo_by_itself:
            undo_choice(guard.setting, actor=None, note=verdict.message)


def _columns(verdict: Verdict, now: datetime) -> Mapping[str, object]:
    effects = [asdict(effect) for effect in verdict.effects]
    return {"state": verdict.state, "effects": effects, "message": verdict.message[:500], "judged_at": now}


def _warn(guard: PolicyGuard, verdict: Verdict) -> None:
    """Log a warning when the verdict becomes worse."""
    if guard.state != verdict.state:
        log.warning("the policy %s: %s", guard.setting.policy, verdict.message)
