"""Hooks of the site before and after a job: its command runs once for each GPU, all at the same time.

It runs as the account of the service, without a shell, with one GPU in CUDA_VISIBLE_DEVICES and no variable that the
job chose. A GPU whose hook fails is named with the reason.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from engines.attempt_files import HooksFile, LaunchFile
from engines.site_command import NOT_FOUND, SiteCommand, fault_of, split_command
from engines.supervision.processes import MARK

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POLL_S = 0.05
PASSED_ON = ("MOTLEY_JOB_ID", "MOTLEY_ATTEMPT", "MOTLEY_TEAM")
"""Of the job's variables, those that Motley chose."""

When = Literal["before", "after"]


class StoppedBeforeStart(Exception):
    """The attempt was asked to stop, or its lease runs out."""


class GpuHooks(NamedTuple):
    """Commands of the site, split as a shell does, with `{gpu}` for the UUID of the GPU; empty: none."""

    before: str = ""
    after: str = ""
    timeout_s: float = 60.0


def hooks_file(hooks: GpuHooks, gpus: Iterable[str]) -> HooksFile | None:
    """Input of the supervisor; None if no hook is to be run."""
    found = list(gpus)
    if not found or not (hooks.before or hooks.after):
        return None
    return HooksFile(before=hooks.before, after=hooks.after, timeout_s=hooks.timeout_s, gpus=found)


def run_hooks(launch: LaunchFile, when: When, stop_requested: Callable[[], bool] = lambda: False) -> dict[str, str]:
    """Run the hook for every GPU and wait for all; returns GPU → fault.

    Raises `StoppedBeforeStart`, and kills them, if the attempt is told to stop meanwhile.
    """
    hooks = launch.get("hooks")
    if not hooks or not hooks[when]:
        return {}
    running: dict[str, SiteCommand] = {}
    faults: dict[str, str] = {}
    for gpu in hooks["gpus"]:
        try:
            words = split_command(hooks[when], gpu=gpu)
            running[gpu] = SiteCommand.start(words, timeout_s=hooks["timeout_s"], env=_env(launch, hooks, when, gpu))
        except (OSError, ValueError) as error:
            faults[gpu] = fault_of(NOT_FOUND, str(error))
    stopped = _wait(running.values(), stop_requested)
    ends = {gpu: fault_of(*command.end()) for gpu, command in running.items()}
    if stopped:
        raise StoppedBeforeStart
    return faults | {gpu: fault for gpu, fault in ends.items() if fault}


def _wait(running: Iterable[SiteCommand], stop_requested: Callable[[], bool]) -> bool:
    """Wait for the ends of all; returns whether the attempt was asked to stop before."""
    while not all(command.is_over for command in running):
        if stop_requested():
            return True
        time.sleep(POLL_S)
    return False


def _env(launch: LaunchFile, hooks: HooksFile, when: When, gpu: str) -> Mapping[str, str]:
    """Environment of a hook; by the mark, processes that it leaves are found with those of the attempt."""
    of_job = launch["ranks"][0]["env"]
    return {
        "PATH": SYSTEM_PATH,
        "LANG": "C.UTF-8",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": gpu,
        "MOTLEY_HOOK": when,
        "MOTLEY_GPUS": ",".join(hooks["gpus"]),
        MARK: launch["mark"],
        **{name: of_job[name] for name in PASSED_ON if name in of_job},
    }


def in_words(faults: Mapping[str, str], when: When) -> str:
    """Message of an attempt with GPUs on which a hook failed."""
    gpu, fault = next(iter(faults.items()))
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"The site's hook {when} the job failed on {gpu}{more}: {fault}"
