"""Prices and load of the hours to come, by the plan over time by which rounds decide."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from allocation.plan.costs_to_go import CostsToGo
from allocation.policies import prices_in_hours
from allocation.policies.motley import plan_ahead
from estimation.types import Floats
from insight_app.start_forecasts.reading import ForecastInput
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import with_defaults

log = logging.getLogger(__name__)

OF_PLAN = ("lateness", "horizon_s", "planned")
"""Parameters of the policy that its plan takes."""


def planned_hours(asked: ForecastInput, setting: PolicySetting) -> dict[str, Any] | None:
    """The plan of the jobs that run or could start now, as JSON data; None: there are none, or no plan decides."""
    able = asked.runs | np.array([job.id in asked.startable for job in asked.jobs], dtype=np.bool_)
    if not able.any() or not prices_in_hours(setting.policy):
        return None
    given = with_defaults(setting.policy, setting.parameters)
    problem = asked.present.problem.subset(np.flatnonzero(able))
    try:
        found = plan_ahead(problem, **{name: given[name] for name in OF_PLAN})
    except Exception:  # whatever the plan raises, futures are played without it
        log.exception("the coming hours were not planned")
        return None
    return as_data(found, asked.types)


def as_data(found: CostsToGo, types: Iterable[str]) -> dict[str, Any]:
    """Figures to four digits, by GPU type; pure."""
    names = list(types)
    return {
        "ends_s": _rounded(found.ends_s),
        "prices": _by_type(names, found.prices),
        "load": _by_type(names, found.load),
    }


def _by_type(names: Iterable[str], rows: Floats) -> Mapping[str, list[float]]:
    return {name: _rounded(row) for name, row in zip(names, rows, strict=True)}


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
