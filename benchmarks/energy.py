"""Nodes asleep and nodes lacking, by the forecast: `python -m benchmarks.energy`, as Markdown.

Nodes that Philly used in late 2017 (`philly_node_sequence_1min.csv.gz` of the reference data), in steps
of ten minutes, at their maximum. Models are fitted on what was before each day. Needs the reference data, see
CONTRIBUTING.md.
"""

import csv
import gzip
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate

import numpy as np

from allocation.node_sleep import SleepParameters, SleepState, next_state
from benchmarks.problems import reference
from estimation.node_demand import DemandModel, NodeDemand, fit_demand

SERIES = "philly_node_sequence_1min.csv.gz"
STEP_MIN = 10
DAY = 24 * 60 // STEP_MIN
BEGIN, FIRST = datetime(2017, 10, 3, tzinfo=UTC), datetime(2017, 12, 1, tzinfo=UTC)
DAYS, NODES = 14, 420
PHILLY = SleepParameters()
WITHOUT_FORECAST = SleepParameters(least_recent_fall=-np.inf, least_forecast_fall=-np.inf)
"""Surplus sleeps at once."""

Forecast = Callable[[int], tuple[float, float]]


@dataclass(frozen=True)
class Outcome:
    """Of a run of the controller."""

    utilisation: float
    """Nodes in use over nodes awake."""
    asleep: float
    """Nodes, on the mean."""
    changes: float
    wakes: float
    """Per day."""
    steps_lacking: int
    nodes_lacking: int
    """Nodes that were missing, summed over these steps."""


def main() -> None:
    demand, first = read_demand()
    days = slice(first, first + DAYS * DAY)
    sys.stdout.write(f"Nodes in use without sleep: {demand.used[days].mean() / NODES:.2%}\n\n")
    sys.stdout.write(table({name: run(demand, first, forecast) for name, forecast in forecasts(demand).items()}))
    at_once = run(demand, first, forecasts(demand)["last value"], WITHOUT_FORECAST)
    sys.stdout.write(row("none: surplus sleeps at once", at_once))
    sys.stdout.write(f"\nRMSE of the mean over {PHILLY.horizon_steps} steps:")
    for name, forecast in forecasts(demand).items():
        sys.stdout.write(f" {name} {error(demand, first, forecast):.1f},")
    sys.stdout.write(" nodes\n")


def read_demand() -> tuple[NodeDemand, int]:
    """The demand in steps of ten minutes, and the first step that is judged; gaps have the value before them."""
    step, most = timedelta(minutes=STEP_MIN), dict[int, float]()
    with gzip.open(reference() / "traces" / SERIES, "rt", newline="") as file:
        for row in csv.DictReader(file):
            number = (datetime.fromisoformat(row["time"]).replace(tzinfo=UTC) - BEGIN) // step
            most[number] = max(most.get(number, 0.0), float(row["active"]))
    filled = accumulate(range(max(most) + 1), lambda value, number: most.get(number, value), initial=0.0)
    return NodeDemand(np.array([*filled][1:]), STEP_MIN / 60, 24.0 * BEGIN.weekday()), (FIRST - BEGIN) // step


def forecasts(demand: NodeDemand) -> Mapping[str, Forecast]:
    """Mean demand over one horizon and over two from a step on, by how it is forecast."""
    horizons = (PHILLY.horizon_steps, 2 * PHILLY.horizon_steps)

    def mean(begin: int) -> tuple[float, float]:
        one, two = (float(demand.used[begin : begin + horizon].mean()) for horizon in horizons)
        return one, two

    @lru_cache(maxsize=1)
    def model_of(day: int) -> DemandModel:
        model = fit_demand(NodeDemand(demand.used[: day * DAY], demand.step_h, demand.start_h), horizons)
        assert model is not None, "there are weeks of demand before the first day"
        return model

    def regression(step: int) -> tuple[float, float]:
        one, two = model_of(step // DAY).forecast(demand, step)
        return one, two

    return {
        "the truth": mean,
        "regression": regression,
        "yesterday": lambda step: mean(step - DAY),
        "last value": lambda step: (float(demand.used[step]), float(demand.used[step])),
    }


def run(demand: NodeDemand, first: int, forecast: Forecast, parameters: SleepParameters = PHILLY) -> Outcome:
    """The controller over the days, from all nodes awake."""
    used, state, awake, lacking, wakes, changes = demand.used, SleepState(NODES), [], [], 0, 0
    for step in range(first, first + DAYS * DAY):
        lacking.append(max(used[step] - state.awake, 0))
        recent = used[step - parameters.recent_steps : step + 1].tolist()
        after = next_state(state, step, recent, forecast(step), total=NODES, parameters=parameters)
        wakes, changes = wakes + (after.awake > state.awake), changes + (after.awake != state.awake)
        state = after
        awake.append(state.awake)
    in_use = float(used[first : first + DAYS * DAY].sum())
    steps = int(np.count_nonzero(lacking))
    return Outcome(
        in_use / sum(awake), NODES - float(np.mean(awake)), changes / DAYS, wakes / DAYS, steps, round(sum(lacking))
    )


def error(demand: NodeDemand, first: int, forecast: Forecast) -> float:
    """Root mean square error of the mean demand over one horizon, in nodes."""
    steps = np.arange(first, first + DAYS * DAY)
    told = np.array([forecast(step)[0] for step in steps.tolist()])
    return float(np.sqrt(np.mean((told - demand.mean_ahead(steps, PHILLY.horizon_steps)) ** 2)))


def table(outcomes: Mapping[str, Outcome]) -> str:
    head = (
        "| forecast | in use of awake | asleep | changes a day | wakes a day | steps lacking | node-steps lacking |\n"
    )
    return head + "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n" + "".join(rows(outcomes.items()))


def rows(outcomes: Iterable[tuple[str, Outcome]]) -> list[str]:
    return [row(name, outcome) for name, outcome in outcomes]


def row(name: str, o: Outcome) -> str:
    figures = f"{o.utilisation:.2%} | {o.asleep:.1f} | {o.changes:.2f} | {o.wakes:.2f}"
    return f"| {name} | {figures} | {o.steps_lacking} | {o.nodes_lacking} |\n"


if __name__ == "__main__":
    main()
