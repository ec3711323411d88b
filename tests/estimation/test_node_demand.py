"""Forecasts of the demand for nodes: they learn a pattern, and know nothing of the future."""

import numpy as np
import pytest

from benchmarks.energy import forecasts, read_demand, run
from estimation.node_demand import NodeDemand, fit_demand
from tests.reference import reference

DAY = 24
HORIZONS = (3, 6)


def days_and_nights(days: int, *, seed: int = 0) -> NodeDemand:
    """Hourly: forty nodes by day, ten by night, twenty fewer at the weekend, with noise."""
    hour = np.arange(days * DAY)
    by_day = np.where((hour % DAY >= 8) & (hour % DAY < 20), 40.0, 10.0)
    weekend = np.where(hour // DAY % 7 >= 5, 0.5, 1.0)
    noise = np.random.default_rng(seed).normal(0, 1, len(hour))
    return NodeDemand(np.maximum(by_day * weekend + noise, 0), step_h=1.0)


def test_morning_and_evening_are_foreseen() -> None:
    demand = days_and_nights(28)
    model = fit_demand(NodeDemand(demand.used[: 21 * DAY], 1.0), HORIZONS)
    assert model is not None
    for step in (22 * DAY + 7, 22 * DAY + 19):  # an hour before all changes
        told, _ = model.forecast(demand, step)
        truth = float(demand.mean_ahead(np.array([step]), HORIZONS[0])[0])
        assert abs(told - truth) < abs(demand.used[step] - truth) / 2


def test_nothing_after_a_step_is_looked_at() -> None:
    demand = days_and_nights(28)
    step = 22 * DAY + 7
    model = fit_demand(NodeDemand(demand.used[: 21 * DAY], 1.0), HORIZONS)
    assert model is not None
    changed = demand.used.copy()
    changed[step + 1 :] = 0
    assert model.forecast(NodeDemand(changed, 1.0), step) == model.forecast(demand, step)


def test_a_demand_that_was_constant_is_forecast_to_stay() -> None:
    demand = NodeDemand(np.full(21 * DAY, 7.0), 1.0)
    model = fit_demand(demand, HORIZONS)
    assert model is not None
    assert model.forecast(demand, len(demand.used) - 1) == pytest.approx([7.0, 7.0])


def test_of_a_week_nothing_is_learned() -> None:
    assert fit_demand(days_and_nights(7), HORIZONS) is None


@pytest.mark.thorough
def test_on_phillys_nodes_the_regression_saves_as_much_as_knowing_with_less_lack_than_yesterday() -> None:
    reference("traces")
    demand, first = read_demand()
    told = forecasts(demand)
    truth, regression, yesterday = (run(demand, first, told[name]) for name in ("the truth", "regression", "yesterday"))
    assert (truth.steps_lacking, truth.nodes_lacking) == (10, 62)  # as the notes of the original's rules have it
    assert (yesterday.steps_lacking, yesterday.nodes_lacking) == (12, 76)
    assert yesterday.utilisation < regression.utilisation < truth.utilisation
    assert regression.nodes_lacking < yesterday.nodes_lacking
    assert regression.wakes < 1
