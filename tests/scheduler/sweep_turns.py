"""Sweeps as the scheduler advances them, on rows: their start, turns, trials and jobs."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jobs_app.models import Job, Sweep, SweepTrial
from scheduler_app.sweeps.admission import admitted_sweep
from scheduler_app.sweeps.advance import advance_sweeps
from scheduler_app.sweeps.editing import start_sweep
from tests.service_lab import Lab


def begun(lab: Lab, asked: Mapping[str, Any]) -> Sweep:
    """The sweep after its first turn."""
    sweep = admitted_sweep(asked, owner=lab.user(), now=lab.now)
    start_sweep(sweep)
    turn(lab)
    return sweep


def turn(lab: Lab, times: int = 1) -> None:
    for _ in range(times):
        lab.ahead += timedelta(seconds=2)
        advance_sweeps(lab.now)


def trials(*states: str) -> list[SweepTrial]:
    """By number; those in these states, or all."""
    found = SweepTrial.objects.order_by("number")
    return list(found.filter(state__in=states) if states else found)


def job_of(trial: SweepTrial) -> Job:
    return Job.objects.get(pk=trial.job_id)
