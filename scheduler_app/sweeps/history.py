"""What has become of sweeps: counts of trials by state, and the best one."""

from collections.abc import Collection
from typing import NamedTuple

from django.db.models import Count, OuterRef, QuerySet, Subquery

from jobs_app.models import Sweep, SweepTrial


class SweepCounts(NamedTuple):
    """State of trials → how many, of all states; and the best trial that has ended."""

    by_state: dict[str, int]
    best: SweepTrial | None

    @property
    def ended(self) -> int:
        return sum(count for state, count in self.by_state.items() if state not in SweepTrial.OPEN)


def counts_of(sweeps: Collection[Sweep]) -> dict[int, SweepCounts]:
    """Counts and best trial of each: three queries, however many there are."""
    ids = [sweep.pk for sweep in sweeps]
    trials = SweepTrial.objects.filter(sweep__in=ids).order_by()
    counted = trials.values_list("sweep", "state").annotate(count=Count("pk"))
    states = {pk: dict.fromkeys(SweepTrial.State.values, 0) for pk in ids}
    for sweep, state, count in counted:
        states[sweep][state] = count
    best = {trial.sweep_id: trial for trial in _best_trials(ids)}
    return {pk: SweepCounts(states[pk], best.get(pk)) for pk in ids}


def _best_trials(sweeps: Collection[int]) -> QuerySet[SweepTrial]:
    """The best succeeded trial of each; a sweep without one has none."""
    succeeded = SweepTrial.objects.filter(
        sweep=OuterRef("pk"), state=SweepTrial.State.SUCCEEDED, value__isnull=False
    ).values("pk")
    least, most = succeeded.order_by("value", "number")[:1], succeeded.order_by("-value", "number")[:1]
    found = [
        Sweep.objects.filter(pk__in=sweeps, goal=goal).values_list(Subquery(best), flat=True)
        for goal, best in ((Sweep.Goal.MINIMIZE, least), (Sweep.Goal.MAXIMIZE, most))
    ]
    return SweepTrial.objects.filter(pk__in=[pk for ids in found for pk in ids if pk])
