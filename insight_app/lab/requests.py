"""Requests of lab runs: their validation, and the limit of unfinished runs per person."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from insight_app.errors import InvalidLabRun, LabRunHasEnded, TooManyLabRuns
from insight_app.lab.scenario import (
    BudgetChange,
    NoSuchNodes,
    QuotaChange,
    limit_faults,
    read_node_gpus,
    with_node_changes,
)
from insight_app.lab.uploads import InvalidUpload, Upload, read_upload
from insight_app.models import LabRun, LabTrace
from jobs_app.models import Team
from scheduler_app.policy.settings import policy_faults
from simulation.scenario.setting import InvalidSetting, read_policy
from web.rest.errors import Fault, encodable, escaped

MOST_UNFINISHED = 3
"""Of one person."""
USUAL_DAYS = 7
MOST_POLICIES = 8
MOST_NODES = 1_000
"""That a run may add of a GPU type: more is another cluster, and the simulation takes hours."""
MOST_NAMED = 20
"""Teams in an error."""


@dataclass(frozen=True, kw_only=True)
class LabRequest:
    """Input of a run: days of history or an uploaded trace, and changed settings; None or empty: the present ones."""

    policies: Sequence[str]
    days: int = USUAL_DAYS
    upload: Upload | None = None
    round_length_s: float | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    """GPU type → nodes added, or taken if negative."""
    team_weights: Mapping[str, float] = field(default_factory=dict)
    quotas: Sequence[QuotaChange] = ()
    budgets: Sequence[BudgetChange] = ()


def ask_for_run(asked: LabRequest, *, owner: User, now: datetime) -> LabRun:
    """Put a run into the queue; raises InvalidLabRun with every fault, or TooManyLabRuns."""
    faults = [*_policy_faults(asked.policies), *_node_faults(asked.nodes), *_team_faults(asked, owner)]
    if faults:
        raise InvalidLabRun(faults)
    with transaction.atomic():
        User.objects.select_for_update().get(pk=owner.pk)  # two requests at once would both find room for one
        if LabRun.objects.unfinished().filter(owner=owner).count() >= MOST_UNFINISHED:
            raise TooManyLabRuns(f"You have {MOST_UNFINISHED} unfinished runs: wait for one to end, or cancel one.")
        return _created(asked, owner, now)


def _created(asked: LabRequest, owner: User, now: datetime) -> LabRun:
    run = LabRun.objects.create(
        owner=owner,
        days=None if asked.upload else asked.days,
        trace_format=asked.upload.format_name if asked.upload else "",
        policies=list(dict.fromkeys(asked.policies)),
        round_length_s=asked.round_length_s,
        nodes={name: change for name, change in asked.nodes.items() if change},
        team_weights=dict(asked.team_weights),
        quotas=[one._asdict() for one in asked.quotas],
        budgets=[one._asdict() for one in asked.budgets],
        created_at=now,
    )
    if asked.upload:
        LabTrace.of(run, asked.upload.text, asked.upload.throughputs).save(force_insert=True)
    return run


def cancel_run(run: LabRun, *, now: datetime) -> None:
    """Cancel it; the scheduler that began it kills its process within a second or two."""
    unfinished = LabRun.objects.unfinished().filter(pk=run.pk)
    if unfinished.update(state=LabRun.State.CANCELLED, finished_at=now) == 0:
        raise LabRunHasEnded(f"The run {run.pk} has ended already.")


def _policy_faults(policies: Sequence[str]) -> Iterator[Fault]:
    for place, words in enumerate(policies):
        pointer = f"/policies/{place}"
        try:
            name, parameters = read_policy(words)
        except InvalidSetting as error:
            yield Fault(pointer=pointer, code="invalid_choice", detail=encodable(f"{error}."))
            continue
        yield from (
            Fault(pointer=pointer, code=one["code"], detail=one["detail"]) for one in policy_faults(name, parameters)
        )


def _node_faults(changes: Mapping[str, int]) -> Iterator[Fault]:
    there = read_node_gpus()
    if not there:
        yield Fault(pointer="/nodes", code="no_such_nodes", detail="The cluster has no nodes: add some first.")
        return
    try:
        with_node_changes(there, changes)
    except NoSuchNodes as error:
        yield Fault(pointer=f"/nodes/{escaped(error.gpu_type)}", code="no_such_nodes", detail=encodable(str(error)))


def _team_faults(asked: LabRequest, owner: User) -> Iterator[Fault]:
    """Faults of the trace, or of weights and limits of teams that have no jobs there."""
    of_teams = asked.team_weights or asked.quotas or asked.budgets
    try:
        teams = _teams_of(asked, owner) if asked.upload or of_teams else set()
    except InvalidUpload as error:
        yield error.fault
        return
    known = ", ".join(sorted(teams)[:MOST_NAMED]) or "none"
    for name in asked.team_weights.keys() - teams:
        detail = f"There is no team {name!r:.60} whose jobs are simulated; there are: {known}."
        yield Fault(pointer=f"/team_weights/{escaped(name)}", code="no_such_team", detail=encodable(detail))
    yield from limit_faults(asked.quotas, asked.budgets, teams=teams, gpu_types=read_node_gpus())


def _teams_of(asked: LabRequest, owner: User) -> set[str]:
    """Names of the teams in the trace, or of those whose jobs the owner sees."""
    if asked.upload:
        return {job.team for job in read_upload(asked.upload) if job.team}
    return set((Team.objects.all() if owner.is_staff else owner.teams).values_list("name", flat=True))
