"""Cost of a sweep and its end: GPU-hours spent, an estimate of those saved, and when it ends at the pace so far."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from jobs_app.models import Attempt, Job, Sweep, SweepTrial
from scheduler_app.sweeps.trial_spec import compared_at, rule_of

HOUR_S = 3600
LEAST_SHARE = 0.05
"""Of the work of a sweep: before it is done, the pace says little."""


class Outlook(NamedTuple):
    """Of the jobs that are not in the archive."""

    gpu_hours: float
    saved_gpu_hours: float | None
    """What trials that were stopped early would have taken to their last step at their own cost of a step."""
    ends_at: datetime | None
    """At the pace so far; None: it has ended, or has just begun."""


def outlook_of(sweep: Sweep, trials: Sequence[SweepTrial], now: datetime) -> Outlook:
    """Two queries."""
    spent_s, saved_s = _gpu_seconds(sweep, trials, now)
    return Outlook(spent_s / HOUR_S, None if saved_s is None else saved_s / HOUR_S, _end(sweep, trials, now))


def _gpu_seconds(sweep: Sweep, trials: Sequence[SweepTrial], now: datetime) -> tuple[float, float | None]:
    ids = SweepTrial.objects.filter(sweep=sweep).values("job_id")
    ended = Job.objects.filter(pk__in=ids).order_by().values_list("pk", "attained_gpu_s", "step")
    cost = {pk: (gpu_s, step) for pk, gpu_s, step in ended}
    live = Attempt.objects.live().filter(job__in=ids).only("started_at", "gone_at", "ended_at", "gpu_count")
    spent_s = sum(gpu_s for gpu_s, _ in cost.values()) + sum(one.ran_s(now) * one.gpu_count for one in live)
    if not sweep.early_terminate:
        return spent_s, None
    stopped = (cost.get(one.job_id, (0.0, 0)) for one in trials if one.state == SweepTrial.State.STOPPED_EARLY)
    return spent_s, saved_gpu_s(stopped, sweep.early_terminate["max_iter"])


def saved_gpu_s(stopped: Iterable[tuple[float, int]], last_step: int) -> float:
    """From the GPU-seconds and the step of each trial that was stopped."""
    return sum(gpu_s * max(last_step - step, 0) / step for gpu_s, step in stopped if step)


def _end(sweep: Sweep, trials: Sequence[SweepTrial], now: datetime) -> datetime | None:
    share = share_done(sweep, trials)
    if sweep.state != Sweep.State.RUNNING or not LEAST_SHARE <= share < 1:
        return None
    return now + (now - sweep.created_at) * ((1 - share) / share)


def share_done(sweep: Sweep, trials: Sequence[SweepTrial]) -> float:
    """Part of its work: of a population by its marks, with rungs by steps, else by trials that have ended."""
    if sweep.population:
        return float(sweep.generation / (len(compared_at(sweep)) + 1))
    rule = rule_of(sweep)
    if rule is None:
        return sum(not trial.is_open for trial in trials) / sweep.run_cap
    steps = (0, *rule.rungs)
    expected = sum(
        max(sweep.run_cap // rule.eta**rung, 1) * (after - before)
        for rung, (before, after) in enumerate(zip(steps, rule.rungs, strict=False))
    )
    done = sum(rule.rungs[-1] if _trained_to_the_end(trial) else steps[len(trial.values)] for trial in trials)
    return float(min(done / expected, 1.0))


def _trained_to_the_end(trial: SweepTrial) -> bool:
    return trial.state == SweepTrial.State.SUCCEEDED
