"""Which nodes sleep: Dynamic Resource Sleep of Helios' CES, with hysteresis, from the demand and its forecast.

Each step wakes what is needed at once, and puts the surplus to sleep when demand has fallen lately, is forecast to fall
on, and is not forecast to rise again soon after. Both freeze the number of awake nodes for some steps.

References
----------
.. [1] Hu et al., SC 2021, "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
   section 5.2, and its released `CES_Helios.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SleepParameters:
    """Steps are of equal length, ten minutes in [1]_; counts are nodes. The defaults are those for Philly."""

    recent_steps: int = 2
    """Steps over whose mean demand must have fallen."""
    horizon_steps: int = 30
    """Steps over whose mean demand must be forecast to fall; over twice as many it must not be higher again."""
    least_recent_fall: float = 0.1
    least_forecast_fall: float = 0.0
    least_surplus: int = 1
    """Fewer nodes are not put to sleep."""
    reserve: int = 20
    """Awake nodes beyond those in use, after a change."""
    keep_steps: int = 10
    """Steps after a wake in which none is put to sleep."""


@dataclass(frozen=True)
class SleepState:
    """Nodes that are awake, and the step until which none is put to sleep."""

    awake: int
    frozen_until: int = 0


def next_state(
    state: SleepState,
    step: int,
    used: Sequence[float],
    forecast: tuple[float, float],
    *,
    total: int,
    parameters: SleepParameters,
) -> SleepState:
    """State after this step.

    used: nodes in use, or needed by a gang that waits, in the last steps, the present one last; forecast: mean demand
    over the next `horizon_steps`, and over twice as many.
    """
    now, target = used[-1], min(round(used[-1]) + parameters.reserve, total)
    if state.awake < now:
        state = SleepState(target, step + parameters.keep_steps)
    state = SleepState(min(state.awake, total), state.frozen_until)
    if step < state.frozen_until or not _is_falling(used, forecast[0], parameters):
        return state
    rises_again = forecast[0] < forecast[1]
    has_surplus = state.awake - target >= parameters.least_surplus
    return SleepState(target if has_surplus and not rises_again else state.awake, step)


def _is_falling(used: Sequence[float], ahead: float, parameters: SleepParameters) -> bool:
    """Whether demand has fallen lately, and is forecast to fall on."""
    before = used[-1 - parameters.recent_steps : -1]
    if len(before) < parameters.recent_steps:
        return False
    fell = sum(before) / len(before) - used[-1]
    return fell >= parameters.least_recent_fall and used[-1] - ahead >= parameters.least_forecast_fall


def nodes_to_sleep(idle_s: dict[str, float], *, awake: int, wanted: int) -> list[str]:
    """Names of idle nodes to put to sleep, the longest idle first, so that `wanted` stay awake, but one at least.

    idle_s: seconds since each idle node was last in use; what is held by a job or waited for is not among them.
    """
    surplus = awake - max(wanted, 1)
    return sorted(idle_s, key=lambda name: (-idle_s[name], name))[: max(surplus, 0)]
