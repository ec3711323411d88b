"""Power command of a Slurm node: what it asks Slurm for in each state, as version 22.05 printed them."""

from collections.abc import Callable

import pytest

from engines.protocol import EngineError
from engines.slurm.parsing import SlurmNode, parse_node
from engines.slurm.power import (
    Step,
    complain_without_power_saving,
    follow,
    step_to_sleep,
    step_to_wake,
)
from tests.engines.test_slurm_text import node

MARK = "Motley 3fa9c1d2:"


def in_state(state: str, reason: str = "") -> SlurmNode:
    return parse_node(node(state, reason=reason))


@pytest.mark.parametrize(
    ("state", "reason", "step"),
    [
        ("IDLE", "", Step.POWER_DOWN),
        ("IDLE+DRAIN", f"{MARK} not needed", Step.POWER_DOWN),
        ("IDLE+DRAIN+POWER_DOWN", "POWER_DOWN_ASAP", Step.WAIT),
        ("IDLE+POWERING_DOWN", "POWER_DOWN_ASAP", Step.WAIT),
        ("IDLE+POWERED_DOWN", "POWER_DOWN_ASAP", Step.DONE),
    ],
)
def test_an_idle_node_is_powered_down_once_and_followed_until_it_is_off(state: str, reason: str, step: Step) -> None:
    assert step_to_sleep(in_state(state, reason), MARK) is step


@pytest.mark.parametrize(
    ("state", "reason", "why"),
    [
        ("MIXED", "", "has given it to a job"),
        ("ALLOCATED+DRAIN+POWER_DOWN", "POWER_DOWN_ASAP", "has given it to a job"),
        ("COMPLETING", "", "has given it to a job"),
        ("MIXED+POWERED_DOWN", "", "has given it to a job"),
        ("IDLE+DRAIN", "new fan", "An administrator has drained it: new fan"),
        ("DOWN", "Not responding", "not powered down: Slurm says down: Not responding"),
        ("IDLE+NOT_RESPONDING+POWERING_UP", "", "not powered down: Slurm says powering_up"),
    ],
)
def test_a_node_that_somebody_else_has_is_never_powered_down(state: str, reason: str, why: str) -> None:
    with pytest.raises(EngineError, match=why):
        step_to_sleep(in_state(state, reason), MARK)


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ("IDLE+DRAIN+POWER_DOWN", Step.WAIT),
        ("IDLE+POWERING_DOWN", Step.WAIT),  # Slurm would forget it
        ("IDLE+POWERED_DOWN", Step.POWER_UP),
        ("IDLE+POWER_UP+POWERED_DOWN", Step.DONE),
        ("IDLE+NOT_RESPONDING+POWERING_UP", Step.DONE),
        ("IDLE", Step.DONE),
    ],
)
def test_a_node_is_powered_up_once_it_is_off_altogether(state: str, step: Step) -> None:
    assert step_to_wake(in_state(state), MARK) is step


class PlayedSlurm:
    """Goes from state to state, one a look."""

    def __init__(self, *states: str) -> None:
        self.states, self.asked = list(states), list[str]()

    def config(self) -> dict[str, str]:
        return {"SuspendProgram": "/s", "ResumeProgram": "/r", "SuspendTime": "3600 sec"}

    def node(self, name: str) -> SlurmNode:
        return in_state(self.states.pop(0))

    def set_power(self, name: str, state: str) -> None:
        self.asked.append(f"{name} {state}")


@pytest.mark.parametrize(
    ("next_step", "states", "asked"),
    [
        (step_to_sleep, ("IDLE", "IDLE+DRAIN+POWER_DOWN", "IDLE+POWERED_DOWN"), ["n1 POWER_DOWN_ASAP"]),
        (step_to_sleep, ("IDLE+POWERED_DOWN",), []),
        (step_to_wake, ("IDLE+POWERING_DOWN", "IDLE+POWERED_DOWN", "IDLE+POWER_UP+POWERED_DOWN"), ["n1 POWER_UP"]),
    ],
)
def test_slurm_is_asked_once_and_for_nothing_that_is_so_already(
    next_step: Callable[[SlurmNode, str], Step], states: tuple[str, ...], asked: list[str], monkeypatch
) -> None:
    monkeypatch.setattr("engines.slurm.power.POLL_S", 0)
    slurm = PlayedSlurm(*states)
    follow(slurm, "n1", next_step, MARK)
    assert (slurm.asked, slurm.states) == (asked, [])


def test_without_power_saving_in_slurm_the_missing_settings_are_named() -> None:
    config = {"SuspendProgram": "(null)", "ResumeProgram": "/r", "SuspendTime": "INFINITE"}
    with pytest.raises(EngineError, match=r"set SuspendProgram, SuspendTime in slurm\.conf"):
        complain_without_power_saving(config)
