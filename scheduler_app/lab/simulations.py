"""A lab run in its process: reads the history, simulates it, and writes the result; another process may cancel it."""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from django.db.models import F
from django.utils import timezone

from jobs_app.models import Job
from scheduler_app.lab.history import read_history
from scheduler_app.lab.nodes import cluster_words, read_node_gpus, with_changes
from scheduler_app.lab.results import actual_figures, result_of
from scheduler_app.lab.trace import trace_of
from scheduler_app.models import LabRun, PolicySetting
from scheduler_app.policy.settings import with_defaults
from simulation.results.comparison import Comparison
from simulation.scenario.scenario import Scenario
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import TraceJob

log = logging.getLogger(__name__)

TELL_EVERY_S = 1.0
EVENT_DELAY_S = 1.0
"""From an event to the round that it causes, about as in the service."""

OTHERS_LEFT_OUT = "Jobs of teams that you do not see are left out of the simulation: with them waits are longer."

Tell = Callable[[int, int], None]
"""Told how many jobs are done of how many."""


class Superseded(Exception):
    """The run was cancelled, or begun again by another process."""


def simulate_run(run: LabRun, now: datetime) -> None:
    """Simulate and record the result, or why it failed."""
    try:
        result = _simulated(run, now)
    except Superseded:
        return
    except Exception as error:  # whatever a policy or a trace raises is told to the one who asked
        log.exception("the lab run failed")
        end_run(run, LabRun.State.FAILED, message=f"{type(error).__name__}: {error}"[:500])
    else:
        end_run(run, LabRun.State.DONE, result=result, done=F("total"))


def end_run(run: LabRun, state: LabRun.State, **columns: object) -> None:
    """End it, unless it has been cancelled or begun again meanwhile."""
    mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
    mine.update(state=state, finished_at=timezone.now(), **columns)


def _simulated(run: LabRun, now: datetime) -> dict[str, object]:
    history = read_history(Job.objects.visible_to(run.owner), now - timedelta(days=run.days), now, now=now)
    jobs = sorted(trace_of(history), key=lambda job: job.arrival_s)
    if not jobs:
        raise NothingRan(f"No job that you may see was submitted in the last {run.days} days, ran and has ended.")
    nodes = read_node_gpus()
    present, policy = _present(cluster_words(nodes))
    asked = replace(
        present,
        cluster=cluster_words(with_changes(nodes, run.nodes)),
        round_s=run.round_length_s or present.round_s,
    )
    gpus = sum(sum(of_type) for of_type in nodes.values())
    replayed, others = _compared(jobs, [(present, [policy]), (asked, run.policies)], _teller(run))
    result = result_of(jobs, actual_figures(jobs, history, gpus=gpus), replayed, others)
    return result if run.owner.is_staff else result | {"summary": f"{result['summary']} {OTHERS_LEFT_OUT}"}


class NothingRan(Exception):
    """There is no history to simulate."""


def _present(cluster: str) -> tuple[Scenario, str]:
    """The cluster's rounds as they are, and its policy."""
    setting = PolicySetting.objects.current()
    usual = with_defaults(setting.policy, {})
    chosen = {name: value for name, value in setting.parameters.items() if value != usual.get(name)}
    given = ",".join(f"{name}={_text(value)}" for name, value in chosen.items())
    scenario = Scenario(
        format_name="csv",
        cluster=cluster,
        round_s=setting.round_length_s,
        min_run_s=setting.min_run_s,
        event_delay_s=EVENT_DELAY_S,
        estimate_lengths=True,
    )
    return scenario, f"{setting.policy}:{given}" if given else setting.policy


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compared(
    jobs: Sequence[TraceJob], plans: Sequence[tuple[Scenario, Sequence[str]]], tell: Tell
) -> list[Comparison]:
    """Each plan as a comparison, one simulation after the other."""
    with TemporaryDirectory(prefix="motley-lab-") as folder:
        trace = Path(folder) / "history.csv"
        trace.write_text("".join(write_motley_csv(jobs)))
        comparisons = [Comparison.plan(scenario, str(trace), policies, [0]) for scenario, policies in plans]
        total, done = len(jobs) * sum(len(one.tasks) for one in comparisons), 0
        tell(0, total)
        for comparison in comparisons:
            with closing(comparison.run(1)) as updates:
                for update in updates:
                    tell(done + (update.progress or 0), total)
                    done += len(jobs) * (update.result is not None)
    return comparisons


def _teller(run: LabRun) -> Tell:
    """Writes the progress from time to time; raises Superseded once the run is no longer this process's."""
    told_s = -TELL_EVERY_S

    def tell(done: int, total: int) -> None:
        nonlocal told_s
        if monotonic() - told_s < TELL_EVERY_S:
            return
        told_s = monotonic()
        mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
        if mine.update(done=done, total=total, told_at=timezone.now()) == 0:
            raise Superseded

    return tell
