"""Power command of a Slurm node: asks Slurm to switch it off or on, and follows Slurm's states until that is done.

Run as `python -ES -m engines.slurm.power sleep|wake NODE MARK`, as often as one likes; with MARK begins the reason of a
drain that is Motley's own. Slurm forgets a request to power up a node that it is still powering down, and begins anew
with one that is off already: each is asked for only when it has an effect.
"""

import sys
import time
from collections.abc import Callable, Mapping
from enum import StrEnum

from engines.protocol import EngineError
from engines.slurm.commands import SlurmCommands
from engines.slurm.parsing import SlurmNode

POLL_S = 1.0
"""A look is a command of Slurm."""
NEEDED = ("SuspendProgram", "ResumeProgram", "SuspendTime")
UNSET = ("", "(null)", "NONE", "INFINITE")


class Step(StrEnum):
    """Next step for the node; a step that is a request to Slurm is one of Slurm's states."""

    DONE = "done"
    WAIT = "wait"
    POWER_DOWN = "POWER_DOWN_ASAP"
    """It drains the node first: no job begins between our look and the end."""
    POWER_UP = "POWER_UP"


def main() -> None:
    verb, name, mark = sys.argv[1:]
    try:
        follow(SlurmCommands(), name, STEPS[verb], mark)
    except EngineError as error:
        sys.exit(str(error))


def follow(slurm: SlurmCommands, name: str, next_step: Callable[[SlurmNode, str], Step], mark: str) -> None:
    """Request Slurm's state changes until the node is in the wanted state; the caller sets the time limit."""
    complain_without_power_saving(slurm.config())
    while (step := next_step(slurm.node(name), mark)) is not Step.DONE:
        if step is not Step.WAIT:
            slurm.set_power(name, step)
        time.sleep(POLL_S)


def complain_without_power_saving(config: Mapping[str, str]) -> None:
    """Raise `EngineError` if Slurm would accept the request and do nothing."""
    if missing := [name for name in NEEDED if config.get(name, "").split(" ")[0] in UNSET]:
        raise EngineError(
            f"Slurm's power saving is off: set {', '.join(missing)} in slurm.conf, or take the option power_saving "
            "from the engine."
        )


def step_to_sleep(node: SlurmNode, mark: str) -> Step:
    """Switch off a node without jobs, unless somebody else has drained it."""
    if node.is_allocated:
        raise EngineError("Slurm has given it to a job: it is not powered down.")
    if "POWERED_DOWN" in node.flags and "POWER_UP" not in node.flags:
        return Step.DONE
    if node.flags & {"POWERING_DOWN", "POWER_DOWN"}:
        return Step.WAIT
    if "DRAIN" in node.flags and not node.note.startswith(mark):
        raise EngineError(f"An administrator has drained it: {node.note}")
    if not node.state.is_heard:
        raise EngineError(f"It is not powered down: {node.reason}.")
    return Step.POWER_DOWN


def step_to_wake(node: SlurmNode, mark: str) -> Step:
    """Switch on a node once it is completely off."""
    del mark
    if node.flags & {"POWER_UP", "POWERING_UP"}:
        return Step.DONE
    if node.flags & {"POWERING_DOWN", "POWER_DOWN"}:
        return Step.WAIT
    return Step.POWER_UP if "POWERED_DOWN" in node.flags else Step.DONE


STEPS: dict[str, Callable[[SlurmNode, str], Step]] = {"sleep": step_to_sleep, "wake": step_to_wake}

if __name__ == "__main__":
    main()
