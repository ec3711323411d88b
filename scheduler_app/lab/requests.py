"""Requests of lab runs: checked at the door, and a cap of unfinished runs per person."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from rest.errors import Fault, encodable, escaped
from scheduler_app.errors import InvalidLabRun, LabRunHasEnded, TooManyLabRuns
from scheduler_app.lab.nodes import NoSuchNodes, read_node_gpus, with_changes
from scheduler_app.models import LabRun
from scheduler_app.policy.settings import policy_faults
from simulation.scenario.setting import InvalidSetting, read_policy

MOST_UNFINISHED = 3
"""Of one person."""


@dataclass(frozen=True, kw_only=True)
class LabRequest:
    """What is simulated: days of history, policies, round length (None: as now), nodes added or taken by GPU type."""

    days: int
    policies: Sequence[str]
    round_length_s: float | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)


def ask_for_run(asked: LabRequest, *, owner: User, now: datetime) -> LabRun:
    """Put a run into the queue; raises InvalidLabRun with every fault, or TooManyLabRuns."""
    if faults := [*_policy_faults(asked.policies), *_node_faults(asked.nodes)]:
        raise InvalidLabRun(faults)
    with transaction.atomic():
        User.objects.select_for_update().get(pk=owner.pk)  # two requests at once would both find room for one
        if LabRun.objects.unfinished().filter(owner=owner).count() >= MOST_UNFINISHED:
            raise TooManyLabRuns(f"You have {MOST_UNFINISHED} unfinished runs: wait for one to end, or cancel one.")
        return LabRun.objects.create(
            owner=owner,
            days=asked.days,
            policies=list(dict.fromkeys(asked.policies)),
            round_length_s=asked.round_length_s,
            nodes={name: change for name, change in asked.nodes.items() if change},
            created_at=now,
        )


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
    try:
        with_changes(read_node_gpus(), changes)
    except NoSuchNodes as error:
        yield Fault(pointer=f"/nodes/{escaped(error.gpu_type)}", code="no_such_nodes", detail=encodable(str(error)))
