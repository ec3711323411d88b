"""A lab run in its process: reads history or trace, simulates it, writes the result; another process may cancel it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from cluster_app.models import GpuType
from insight_app.lab.history import History, read_history
from insight_app.lab.results import Figures, actual_figures, result_of
from insight_app.lab.scenario import (
    NO_LIMITS,
    BudgetChange,
    NodeGpus,
    QuotaChange,
    TeamLimits,
    cluster_words,
    in_words,
    read_node_gpus,
    read_team_limits,
    with_limit_changes,
    with_node_changes,
)
from insight_app.lab.trace import is_credible, trace_of
from insight_app.lab.uploads import Upload, read_upload
from insight_app.models import LabRun
from jobs_app.models import Job
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import with_defaults
from simulation.clock.process_pool import FailedRun
from simulation.results.comparison import Comparison
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import read_policy
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import TraceJob

log = logging.getLogger(__name__)

TELL_EVERY_S = 1.0
EVENT_DELAY_S = 1.0
"""From an event to the round that it causes, about as in the service."""

MOST_NAMED = 5
OTHERS_LEFT_OUT = "Jobs of teams that you do not see are left out of the simulation: with them waits are longer."

Tell = Callable[[int, int], None]
"""Told how many jobs are done of how many."""


class Superseded(Exception):
    """The run was cancelled, or begun again by another process."""


def simulate_run(run: LabRun, now: datetime) -> None:
    """Simulate and record the result, or why it failed."""
    try:
        source = _source(run, now)
        result = _simulated(run, source)
    except Superseded:
        return
    except (NotAllowed, NothingRan) as error:
        end_run(run, LabRun.State.FAILED, message=str(error))
    except Exception as error:  # whatever a policy or a trace raises is told to the one who asked
        log.exception("the lab run failed")
        end_run(run, LabRun.State.FAILED, message=in_words(f"{type(error).__name__}: {error}")[:500])
    else:
        end_run(run, LabRun.State.DONE, result=result, teams=source.teams, done=F("total"))


def end_run(run: LabRun, state: LabRun.State, **columns: object) -> None:
    """End it, unless it has been cancelled or begun again meanwhile."""
    mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
    mine.update(state=state, finished_at=timezone.now(), **columns)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Jobs to simulate, by arrival, and what is known besides of those that really ran."""

    jobs: Sequence[TraceJob]
    history: History | None = None
    """None: the trace was uploaded, and nobody knows what really happened."""
    throughputs: str = ""
    limits: TeamLimits = NO_LIMITS
    """Quotas and budgets that the teams have now; of those of an uploaded trace none are known."""
    teams: Sequence[int] = field(default_factory=list)
    """Keys of the teams whose jobs they are."""
    left_out: str = ""
    """Which jobs of the history are not simulated, and why."""
    span_h: float | None = None
    """Length of the history: the days that were asked for, or from the first job on; None: of an uploaded trace."""


class NotAllowed(Exception):
    """The owner of the run may no longer have it simulated."""


class NothingRan(Exception):
    """There is no history to simulate."""


def _source(run: LabRun, now: datetime) -> Source:
    """The uploaded trace, or the jobs that the owner may see now, which may be fewer than at the time of asking."""
    if not run.owner.is_active:
        raise NotAllowed(f"The account {run.owner.username} is deactivated.")
    if run.days is None:
        upload = Upload(text=run.trace.text, format_name=run.trace_format, throughputs=run.trace.table)
        return Source(jobs=read_upload(upload), throughputs=upload.throughputs)
    history = read_history(Job.objects.visible_to(run.owner), now - timedelta(days=run.days), now, now=now)
    found = sorted(trace_of(history), key=lambda job: job.arrival_s)
    names = {job.name for job in found if not is_credible(job, history.times[UUID(job.name)].ran_s)}
    jobs, absurd = [job for job in found if job.name not in names], _absurd_words(sorted(names))
    if not jobs:
        said = f"No job that you may see was submitted in the last {run.days} days, ran and has ended."
        raise NothingRan(f"{said} {absurd}".strip())
    teams = sorted({job.team_id for job in history.jobs})
    limits = read_team_limits(min(job.arrived_at for job in history.jobs))
    span_h = _span_h(run, now)
    return Source(jobs=jobs, history=history, teams=teams, limits=limits, left_out=absurd, span_h=span_h)


def _span_h(run: LabRun, now: datetime) -> float:
    """Hours of the history: fewer than the days of the run where the first job that there is came later."""
    first_at = Job.objects.visible_to(run.owner).order_by("created_at").values_list("created_at", flat=True).first()
    since = max(now - timedelta(days=run.days or 0), first_at or now)
    return (now - since) / timedelta(hours=1)


def _absurd_words(names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    return f"Left out, because they cannot have done the steps that they reported in the time that they ran: {shown}."


def _simulated(run: LabRun, source: Source) -> dict[str, object]:
    nodes = read_node_gpus()
    present, policy = _present(nodes, source, source.limits)
    asked = replace(
        _present(with_node_changes(nodes, run.nodes), source, _asked_limits(run, source))[0],
        round_s=run.round_length_s or present.round_s,
    )
    plans = [
        Plan(present, [policy], source.jobs),
        Plan(asked, run.policies, with_weights(source.jobs, run.team_weights)),
    ]
    replayed, others = _compared(plans, source.throughputs, _teller(run))
    power_w = dict(GpuType.objects.values_list("name", "power_w"))
    actual = _actual(source, sum(sum(of_type) for of_type in nodes.values()), power_w)
    result = result_of(source.jobs, actual, replayed, others, power_w=power_w)
    warnings = [source.left_out, others.note or ""]
    if source.history is not None and not run.owner.is_staff:
        warnings.append(OTHERS_LEFT_OUT)
    return _with_warnings(_with_parameters(result) | {"span_h": source.span_h}, warnings)


def _asked_limits(run: LabRun, source: Source) -> TeamLimits:
    quotas, budgets = [QuotaChange(**one) for one in run.quotas], [BudgetChange(**one) for one in run.budgets]
    return with_limit_changes(source.limits, quotas, budgets)


def _actual(source: Source, gpus: int, power_w: Mapping[str, float]) -> Figures | None:
    if source.history is None:
        return None
    return actual_figures(source.jobs, source.history, gpus=gpus, power_w=power_w)


def _with_parameters(result: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of each policy beside its words: defaults may be others in a later version."""

    def in_full(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "parameters": with_defaults(*read_policy(row["policy"]))}

    return {**result, "present": in_full(result["present"]), "policies": [in_full(row) for row in result["policies"]]}


def _with_warnings(result: dict[str, object], warnings: Sequence[str]) -> dict[str, object]:
    return result | {"summary": " ".join([str(result["summary"]), *filter(None, warnings)])}


def with_weights(jobs: Sequence[TraceJob], weights: Mapping[str, float]) -> Sequence[TraceJob]:
    """The jobs with other weights of these teams."""
    return [replace(job, team_weight=weights.get(job.team or "", job.team_weight)) for job in jobs]


def _present(nodes: NodeGpus, source: Source, limits: TeamLimits) -> tuple[Scenario, str]:
    """The present settings of rounds and policy, on a cluster of these nodes and under these limits of teams."""
    setting = PolicySetting.objects.current()
    usual = with_defaults(setting.policy, {})
    chosen = {name: value for name, value in setting.parameters.items() if value != usual.get(name)}
    given = ",".join(f"{name}={_text(value)}" for name, value in chosen.items())
    words = limits.words(teams={job.team for job in source.jobs if job.team}, gpu_types=nodes)
    scenario = Scenario(
        format_name="csv",
        cluster=cluster_words(nodes),
        round_s=setting.round_length_s,
        min_run_s=setting.min_run_s,
        event_delay_s=EVENT_DELAY_S,
        estimate_lengths=True,
        team_gpus=words.team_gpus,
        quotas=words.quotas,
        budgets=words.budgets,
        begin=words.begin,
    )
    return scenario, f"{setting.policy}:{given}" if given else setting.policy


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Plan:
    """Jobs to simulate under these policies."""

    scenario: Scenario
    policies: Sequence[str]
    jobs: Sequence[TraceJob]


def _compared(plans: Sequence[Plan], throughputs: str, tell: Tell) -> list[Comparison]:
    """Each plan as a comparison, one simulation after the other."""
    with TemporaryDirectory(prefix="motley-lab-") as folder:
        comparisons = [_planned(plan, Path(folder) / f"{place}.csv", throughputs) for place, plan in enumerate(plans)]
        jobs = len(plans[0].jobs)
        total, done = jobs * sum(len(one.tasks) for one in comparisons), 0
        tell(0, total)
        for comparison in comparisons:
            with closing(comparison.run(1)) as updates:
                for update in updates:
                    tell(done + (update.progress or 0), total)
                    done += jobs * (update.result is not None)
            comparison.failed = {run: FailedRun(in_words(one.reason)) for run, one in comparison.failed.items()}
    return comparisons


def _planned(plan: Plan, trace: Path, throughputs: str) -> Comparison:
    """The comparison on files: the trace, and the table of rates beside it."""
    trace.write_text("".join(write_motley_csv(plan.jobs)))
    table = trace.with_suffix(".json") if throughputs else None
    if table:
        table.write_text(throughputs)
    return Comparison.plan(replace(plan.scenario, throughputs=table), str(trace), plan.policies, [0])


def _teller(run: LabRun) -> Tell:
    """Callback that writes the progress at intervals; raises Superseded once another process has the run."""
    told_s = -TELL_EVERY_S

    def tell(done: int, total: int) -> None:
        nonlocal told_s
        if monotonic() - told_s < TELL_EVERY_S:
            return
        told_s = monotonic()
        mine = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, tries=run.tries)
        if mine.update(done=done, total=total, heartbeat_at=timezone.now()) == 0:
            raise Superseded

    return tell
