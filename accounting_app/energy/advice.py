"""Advice on nodes that could sleep: every ten minutes per GPU type, by Helios' controller and a forecast."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

import numpy as np
from django.conf import settings
from django.db.models import Count, Max

from accounting_app.energy.node_power import driven, nodes_that_may_sleep, put_surplus_to_sleep
from accounting_app.energy.node_use import LONG_ENOUGH, STEP, nodes_with_gpus, read_node_demand, start_of, step_of
from accounting_app.models import NodeUse, SleepAdvice
from allocation.node_sleep import SleepParameters, SleepState, next_state
from cluster_app.models import POWERED_DOWN, Node, NodeEvent
from estimation.node_demand import MOST_SAMPLES_H, DemandModel, NodeDemand, fit_demand

PHILLY = SleepParameters()
HORIZONS = (timedelta(hours=1) // STEP, PHILLY.horizon_steps, 2 * PHILLY.horizon_steps)
"""In steps: the next hour is shown, the two others are what the controller reads."""
REFIT_AFTER = timedelta(days=1)
Source = SleepAdvice.Source


@dataclass(frozen=True)
class TypeDemand:
    """Input of the decision for one GPU type."""

    gpu_type: int
    total: int
    """Nodes in service, and those that sleep or are being woken."""
    asleep: int
    waking: int
    """They are needed, and not yet in use."""
    demand: NodeDemand
    """Its last value is of the last whole step."""
    before: SleepAdvice | None
    woken_at: datetime | None = None
    """When a node of the type was last woken, by a job or by a person; None: not lately."""
    is_driven: bool = False
    """Whether nodes of the type really sleep."""


def advise_when_due(now: datetime) -> None:
    """Decide for each GPU type, once in each step of ten minutes. Idempotent."""
    at = start_of(step_of(now))
    if SleepAdvice.objects.filter(at=at).exists() or not NodeUse.objects.filter(at__lt=at).exists():
        return
    if advice := [advise(one, at) for one in read_demand(at)]:
        store_advice(advice)
        put_surplus_to_sleep(advice, now)


def read_demand(at: datetime) -> Iterator[TypeDemand]:
    """Demand of each GPU type that has nodes in service and a history."""
    before, woken = SleepAdvice.objects.in_bulk(field_name="gpu_type_id"), _last_wakes(at)
    awake, asleep, waking = (
        dict(nodes.order_by().values_list("gpu_type").annotate(Count("pk")))
        for nodes in (nodes_that_may_sleep(), *(Node.objects.filter(state=state) for state in POWERED_DOWN))
    )
    really = set(driven(nodes_with_gpus()).values_list("gpu_type", flat=True))
    for kind in sorted(awake.keys() | asleep.keys() | waking.keys()):
        last = before.get(kind)
        back = timedelta(hours=MOST_SAMPLES_H) if fit_is_due(last, at) else LONG_ENOUGH
        demand = read_node_demand(kind, since=at - back, until=at)
        if demand is not None:
            powered_down = asleep.get(kind, 0), waking.get(kind, 0)
            total = awake.get(kind, 0) + sum(powered_down)
            yield TypeDemand(kind, total, *powered_down, demand, last, woken.get(kind), kind in really)


def _last_wakes(at: datetime) -> dict[int, datetime]:
    """Time of the last wake of a node by GPU type, if it still delays sleep."""
    lately = NodeEvent.objects.filter(kind=NodeEvent.Kind.WOKEN, at__gt=at - (PHILLY.keep_steps + 1) * STEP)
    return dict(lately.order_by().values_list("node__gpu_type").annotate(Max("at")))


def fit_is_due(before: SleepAdvice | None, at: datetime) -> bool:
    if before is None or before.fitted_at is None:
        return True
    return not before.fitted_at <= at < before.fitted_at + REFIT_AFTER  # also after the clock was set back


def advise(one: TypeDemand, at: datetime) -> SleepAdvice:
    """How many nodes should be awake from this step on. Pure."""
    model, fitted_at = _model(one, at)
    forecast = _forecast(one.demand, model)
    after = next_state(
        state_of(one),
        step_of(at),
        [*one.demand.used[:-1].tolist(), float(one.demand.used[-1]) + one.waking],
        (forecast[1], forecast[2]),
        total=one.total,
        parameters=parameters_of(one.total),
    )
    return SleepAdvice(
        gpu_type_id=one.gpu_type,
        at=at,
        awake=after.awake,
        frozen_until=start_of(after.frozen_until),
        used=int(one.demand.used[-1]),
        forecast=forecast,
        source=Source.REGRESSION if model else Source.LAST_VALUE,
        model=_as_document(model),
        fitted_at=fitted_at,
    )


def state_of(one: TypeDemand) -> SleepState:
    """Nodes awake: the actual number with a driver; else the last advice, and at first all nodes.

    After a wake no node of the type is put to sleep for the controller's time.
    """
    decided_until = step_of(one.before.frozen_until) if one.before else 0
    woken_until = step_of(one.woken_at) + PHILLY.keep_steps if one.woken_at else 0
    frozen_until = max(decided_until, woken_until)
    decided = one.before.awake if one.before else one.total
    return SleepState(one.total - one.asleep if one.is_driven else decided, frozen_until)


def parameters_of(total: int) -> SleepParameters:
    """Helios' for Philly, with a reserve in proportion to the nodes of the type: it had 20 of 420."""
    return SleepParameters(reserve=max(ceil(total * settings.MOTLEY_NODE_RESERVE), 1))


def _model(one: TypeDemand, at: datetime) -> tuple[DemandModel | None, datetime]:
    if one.before is None or one.before.fitted_at is None or fit_is_due(one.before, at):
        return fit_demand(one.demand, HORIZONS), at
    return _of_document(one.before.model), one.before.fitted_at


def _forecast(demand: NodeDemand, model: DemandModel | None) -> list[float]:
    """Mean demand over each horizon; without a model the last value."""
    last = len(demand.used) - 1
    if model is None or last < demand.first:
        return [float(demand.used[last])] * len(HORIZONS)
    return model.forecast(demand, last)


def _as_document(model: DemandModel | None) -> dict[str, Any] | None:
    if model is None:
        return None
    return {
        "horizons": list(model.horizons),
        "coefficients": [coefficients.tolist() for coefficients in model.coefficients],
    }


def _of_document(document: Mapping[str, Any] | None) -> DemandModel | None:
    if document is None or tuple(document["horizons"]) != HORIZONS:
        return None
    return DemandModel(HORIZONS, [np.array(coefficients) for coefficients in document["coefficients"]])


def store_advice(advice: Sequence[SleepAdvice]) -> None:
    columns = [field.name for field in SleepAdvice._meta.concrete_fields if not field.primary_key]
    SleepAdvice.objects.bulk_create(advice, update_conflicts=True, unique_fields=["gpu_type"], update_fields=columns)
