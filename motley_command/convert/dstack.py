"""Configurations of dstack: https://dstack.ai/docs/reference/dstack.yml/task."""

from collections.abc import Mapping
from typing import Any

from motley_client.spec import SpecError
from motley_command.convert.fields import (
    NODES,
    Fields,
    Translation,
    cpus_of,
    env_of,
    image_of,
    kinds_and_count,
    lines_of,
    mib_of,
    of_gpus,
    per_gpu,
    script_of,
    unknown_variables,
    whole,
)

OF_NODES = "Motley chooses the nodes; for GPU types: gpu_types"
REMEDIES = {
    **dict.fromkeys(("backends", "regions", "instance_types", "availability_zones", "fleets"), OF_NODES),
    **dict.fromkeys(("spot_policy", "creation_policy", "idle_duration", "max_price"), OF_NODES),
    "python": "the nodes' own, that of an image, or of the environment that the field setup makes",
    "ports": "motley port JOB forwards a port of the job",
    "volumes": "an administrator adds storage, and the job names it: mounts",
    "files": "the folder of the file is uploaded by --code FOLDER",
    "repos": "clone them in the script, or upload a folder: --code FOLDER",
    "retry": "a preempted job goes back to the queue; for restarts after failures: retries",
    "priority": "the order of jobs is that of the policy; see weight",
    "schedule": "submit it by cron, or give a begin time",
    "utilization_policy": "teams have a rule for idle GPUs",
    "resources.disk": "Motley does not choose nodes by their disks",
    "resources.shm_size": "jobs have the shared memory of their node",
}
VARIABLES = {
    "DSTACK_NODE_RANK": "$MOTLEY_NODE_RANK",
    "DSTACK_NODES_NUM": "$MOTLEY_NUM_NODES",
    "DSTACK_GPUS_PER_NODE": "$MOTLEY_GPUS_PER_NODE",
    "DSTACK_GPUS_NUM": "$MOTLEY_WORLD_SIZE",
    "DSTACK_MASTER_NODE_IP": "$MASTER_ADDR",
    "DSTACK_RUN_NAME": "$MOTLEY_JOB_NAME",
}
TYPES = ("task", "service", "dev-environment", "fleet", "volume", "gateway")


def is_configuration(document: Mapping[str, Any]) -> bool:
    return document.get("type") in TYPES and "command" not in document


def translated(document: Mapping[str, Any]) -> Translation:
    """The job of a task."""
    task = Fields(document, REMEDIES)
    if (kind := task.take("type")) != "task":
        raise SpecError(f"type: {kind}: Motley runs tasks. For a notebook: a job, and motley port JOB.")
    notes: list[str] = []
    if not (listed := task.take("commands")):
        raise SpecError("commands: a job needs a command; that of the image is not known here.")
    commands = lines_of(listed, "commands")
    unknown_variables(commands, "DSTACK_", VARIABLES, "commands")
    nodes = whole(task.take("nodes", 1), "nodes")
    spec: dict[str, Any] = {"name": str(task.take("name", "task")), "command": script_of((commands,), VARIABLES)}
    resources = task.within("resources")
    spec |= _size(resources, nodes, notes)
    env, unset = env_of(task.take("env", {}), "env")
    spec |= {"env": env} if env else {}
    if unset:
        notes.append(f"env: {', '.join(unset)} has no value: give it by --env NAME=VALUE when you submit")
    if nodes > 1:
        notes.append(f"nodes: {nodes}: {NODES}")
    if (limit := task.take("max_duration")) not in (None, "off"):
        spec["time_limit"] = str(limit)
    if folder := task.take("working_dir"):
        spec |= {"workdir": folder} if str(folder).startswith("/") else {}
        notes += [] if str(folder).startswith("/") else [f"working_dir: {folder}: change to it in the commands"]
    if image := task.take("image"):
        spec["image"] = image_of(str(image))
    return Translation(spec, [*notes, *resources.not_honoured(), *task.not_honoured()])


def _size(resources: Fields, nodes: int, notes: list[str]) -> dict[str, Any]:
    kinds, count, memory_mib = _gpu(resources.take("gpu"))
    size = of_gpus(count * nodes, kinds, notes)
    size |= {"gpu_memory": f"{memory_mib}MiB"} if memory_mib else {}
    if cpus := resources.take("cpu"):
        size["cpus_per_gpu"] = per_gpu(cpus_of(cpus, "resources.cpu"), count)
    if memory := resources.take("memory"):
        size["memory_per_gpu"] = f"{per_gpu(mib_of(memory, 'resources.memory'), count)}MiB"
    return size


def _gpu(asked: Any) -> tuple[list[str], int, int]:
    """GPU types, their number and the least memory of each, of `A100:40GB:2`, `24GB:2`, 2 or a mapping."""
    if asked is None:
        return [], 0, 0
    if isinstance(asked, Mapping):
        names = asked.get("name") or []
        kinds = [str(name).lower() for name in (names if isinstance(names, list) else [names])]
        count, memory = asked.get("count", 1), asked.get("memory")
        least = count.get("min") if isinstance(count, Mapping) else count
        return kinds, cpus_of(least, "resources.gpu.count"), _memory_mib(memory) if memory else 0
    parts = str(asked).split(":")
    sizes = [part for part in parts if part[:1].isdigit() and "b" in part.lower()]
    kinds, count = kinds_and_count(":".join(part for part in parts if part not in sizes) or "1", "resources.gpu")
    return kinds, count, _memory_mib(sizes[0]) if sizes else 0


def _memory_mib(text: Any) -> int:
    return mib_of(text, "resources.gpu.memory")
