"""Options and script with which an attempt is given to sbatch. Pure."""

import shlex
from collections.abc import Sequence
from datetime import timedelta
from math import ceil
from pathlib import Path

from engines.attempt_files import AttemptFolder
from engines.protocol import Launch, NodeLaunch
from engines.slurm.files import SlurmLaunchFile
from engines.slurm.options import SlurmOptions
from engines.slurm.parsing import SlurmNode

BEATS_LATE_S = 30.0
"""Time that a heartbeat may be late on a busy node, beside its way over the shared disk."""
TIME_MARGIN = timedelta(minutes=5)
"""Time that Slurm gives an attempt beyond the service's own time limit and grace period."""


def batch_script(folder: AttemptFolder, *, runtime: Path, python: Path) -> str:
    """The batch script: the supervisor, with the code of `runtime`."""
    command = [str(python), "-ES", "-m", "engines.slurm.batch", str(folder.path)]
    return f"#!/bin/sh\ncd {shlex.quote(str(runtime))} && exec {shlex.join(command)}\n"


def sbatch_options(
    launch: Launch, nodes: Sequence[SlurmNode], options: SlurmOptions, *, name: str, log: Path
) -> list[str]:
    """Options of sbatch, by component; `nodes` by rank.

    No option gives the nodes of one job different numbers of GPUs, so that an uneven gang is a heterogeneous job, which
    waits for the backfill scheduler (every 30 s by default).
    """
    gpus = [task.gpus for task in launch.tasks]
    parts = components_of(gpus)
    common = ["-J", name, "-D", "/", "-o", str(log), "--open-mode=append", *_of_the_site(launch, options)]
    words: list[str] = []
    for part in range(max(parts) + 1):
        ranks = [rank for rank, its in enumerate(parts) if its == part]
        placed = _placement([nodes[rank] for rank in ranks], launch.tasks[ranks[0]], options)
        words += [*([":"] if words else []), *common, *placed]
    return words


def launch_file(
    launch: Launch, nodes: Sequence[SlurmNode], options: SlurmOptions, *, kill_wait_s: float
) -> SlurmLaunchFile:
    gpus = [task.gpus for task in launch.tasks]
    return SlurmLaunchFile(
        nodes=[node.name for node in nodes],
        gpus=gpus,
        cpus=[cpus_of(task, options) for task in launch.tasks],
        components=components_of(gpus),
        kill_wait_s=kill_wait_s,
        silent_after_s=options.late_disk_s + BEATS_LATE_S,
        python=str(options.python),
    )


def components_of(gpus: Sequence[int]) -> list[int]:
    """Component of each rank: ranks with equally many GPUs share one, that of rank 0 is the first."""
    order = list(dict.fromkeys(gpus))
    return [order.index(count) for count in gpus]


def cpus_with(gpus: int, options: SlurmOptions) -> int:
    """CPUs of a rank with so many GPUs."""
    return max((options.cpus_per_gpu or 1) * gpus, 1)


def cpus_of(task: NodeLaunch, options: SlurmOptions) -> int:
    """CPUs of a rank: as the job asks, at least the site's for its GPUs."""
    return max(task.cpus, cpus_with(task.gpus, options))


def _of_the_site(launch: Launch, options: SlurmOptions) -> list[str]:
    names = ("partition", "account", "qos", "reservation", "constraint")
    given = {name: str(getattr(options, name)) for name in names}
    words = [f"--{name}={text}" for name, text in given.items() if text]
    if launch.time_limit is not None:
        limit = launch.time_limit + launch.grace + TIME_MARGIN
        words.append(f"--time={ceil(limit / timedelta(minutes=1))}")
    return words


def _placement(nodes: Sequence[SlurmNode], task: NodeLaunch, options: SlurmOptions) -> list[str]:
    """Options that give each of these nodes what the task needs: GPUs, CPUs and memory."""
    placed = [f"-N{len(nodes)}", "-w", ",".join(node.name for node in nodes), "--ntasks-per-node=1"]
    placed.append(f"--cpus-per-task={cpus_of(task, options)}")
    if task.gpus:
        kind = f"{nodes[0].gpu_type}:" if nodes[0].gpu_type else ""
        placed.append(f"--gres=gpu:{kind}{task.gpus}")
    if memory_mib := max(task.memory_mib, (options.memory_mib_per_gpu or 0) * task.gpus):
        placed.append(f"--mem={memory_mib}M")
    return placed
