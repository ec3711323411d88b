"""Last due times of recurring jobs, with the states of the jobs that were submitted."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import OuterRef, Subquery

from jobs_app.models import Job, RecurringJob, RecurringRun


class ShownRun(NamedTuple):
    """A due time, with the state of its job; empty if it has none, or its job is in the archive."""

    run: RecurringRun
    state: str

    @property
    def due_at(self) -> datetime:
        return self.run.due_at

    @property
    def at(self) -> datetime:
        return self.run.at

    @property
    def outcome(self) -> str:
        return self.run.outcome

    @property
    def job(self) -> UUID | None:
        return self.run.job_id

    @property
    def message(self) -> str:
        return self.run.message


def with_states(runs: Iterable[RecurringRun]) -> list[ShownRun]:
    """The runs with the states of their jobs: one query."""
    listed = list(runs)
    jobs = [run.job_id for run in listed if run.job_id]
    states = dict(Job.objects.filter(pk__in=jobs).order_by().values_list("pk", "state")) if jobs else {}
    return [ShownRun(run, states.get(run.job_id, "") if run.job_id else "") for run in listed]


def last_runs(recurring: Sequence[RecurringJob], count: int) -> dict[int, list[ShownRun]]:
    """The last runs of each, the latest first: three queries, each row found by the index of due times."""
    if not recurring:
        return {}
    its = RecurringRun.objects.filter(recurring=OuterRef("pk")).order_by("-due_at", "-pk").values("pk")
    places = {f"run_{place}": Subquery(its[place : place + 1]) for place in range(count)}
    rows = RecurringJob.objects.filter(pk__in=[one.pk for one in recurring]).order_by().annotate(**places)
    ids = {pk: [run for run in found if run] for pk, *found in rows.values_list("pk", *places)}
    runs = RecurringRun.objects.filter(pk__in=[run for found in ids.values() for run in found])
    shown = {one.run.pk: one for one in with_states(runs)}
    return {pk: [shown[run] for run in found if run in shown] for pk, found in ids.items()}
