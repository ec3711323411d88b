"""Tasks of SkyPilot: https://docs.skypilot.co/en/latest/reference/yaml-spec.html."""

from collections.abc import Mapping
from typing import Any

from motley_client.spec import SpecError
from motley_command.convert.fields import (
    NODES,
    Fields,
    Translation,
    cpus_of,
    env_of,
    kinds_and_count,
    labels_of,
    mib_of,
    of_gpus,
    per_gpu,
    script_of,
    text_of,
    unknown_variables,
    whole,
)

OF_NODES = "Motley chooses the nodes; for GPU types: gpu_types"
REMEDIES = {
    **{f"resources.{name}": OF_NODES for name in ("cloud", "infra", "region", "zone", "instance_type")},
    "resources.image_id": "the image of a container: image",
    "resources.use_spot": "machines that come and go are asked for by volunteers",
    "resources.ports": "motley port JOB forwards a port of the job",
    "resources.disk_size": "Motley does not choose nodes by their disks",
    "resources.job_recovery": "a preempted job goes back to the queue; for restarts after failures: retries",
    "resources.autostop": "nodes that are not needed go to sleep by themselves",
    "file_mounts": "an administrator adds storage, and the job names it: mounts",
    "storage_mounts": "an administrator adds storage, and the job names it: mounts",
    "secrets": "motley secret set NAME keeps one, and the job names it: secrets",
    "inputs": "",
    "outputs": "",
}
VARIABLES = {
    "SKYPILOT_NODE_RANK": "$MOTLEY_NODE_RANK",
    "SKYPILOT_NUM_NODES": "$MOTLEY_NUM_NODES",
    "SKYPILOT_NUM_GPUS_PER_NODE": "$MOTLEY_GPUS_PER_NODE",
    "SKYPILOT_TASK_ID": "$MOTLEY_JOB_ID",
    "SKYPILOT_INTERNAL_JOB_ID": "$MOTLEY_JOB_ID",
    "SKYPILOT_USER": "$USER",
    "SKYPILOT_NODE_IPS": "",
}


def is_task(document: Mapping[str, Any]) -> bool:
    return "command" not in document and "run" in document and not isinstance(document["run"], Mapping)


def translated(document: Mapping[str, Any]) -> Translation:
    """The job of a task: its set-up runs before each start, as for SkyPilot's managed jobs."""
    task = Fields(document, REMEDIES)
    notes: list[str] = []
    if task.take("service"):
        raise SpecError("service: Motley runs jobs, and serves no model. Leave it out to run the task alone.")
    setup, run = task.take("setup", ""), text_of(task.take("run"), "run")
    setup = text_of(setup, "setup") if setup else ""
    unknown_variables(setup + run, "SKYPILOT_", VARIABLES, "run")
    if "SKYPILOT_NODE_IPS" in run:
        raise SpecError("run: it reads SKYPILOT_NODE_IPS: a job has MASTER_ADDR and MASTER_PORT, of the first node.")
    nodes, resources = whole(task.take("num_nodes", 1), "num_nodes"), task.within("resources")
    spec: dict[str, Any] = {"name": str(task.take("name", "task")), "command": script_of((setup, run), VARIABLES)}
    spec |= _size(resources, nodes, notes) | _environment(task, notes)
    if nodes > 1:
        notes.append(f"num_nodes: {nodes}: {NODES}")
    if folder := task.take("workdir"):
        if isinstance(folder, Mapping):
            raise SpecError("workdir: clone the repository in the script, or give a folder of this machine.")
        spec["code"] = str(folder)
    if labels := resources.take("labels"):
        spec["tags"] = labels_of(labels, "resources.labels")
    if setup:
        notes.append("setup runs before each start; to keep what it installs between them: the field setup")
    return Translation(spec, [*notes, *resources.not_honoured(), *task.not_honoured()])


def _size(resources: Fields, nodes: int, notes: list[str]) -> dict[str, Any]:
    if any(resources.take(name) for name in ("any_of", "ordered")):
        raise SpecError("resources: any_of and ordered are several sizes: write accelerators with one number of GPUs.")
    kinds, count = _accelerators(resources.take("accelerators"))
    size = of_gpus(count * nodes, kinds, notes)
    if cpus := resources.take("cpus"):
        size["cpus_per_gpu"] = per_gpu(cpus_of(cpus, "resources.cpus"), count)
    if memory := resources.take("memory"):
        size["memory_per_gpu"] = f"{per_gpu(mib_of(memory, 'resources.memory'), count)}MiB"
    return size


def _accelerators(asked: Any) -> tuple[list[str], int]:
    """`A100:2`, `{A100: 2}`, or several of which one will do: a list or a mapping with one number."""
    if asked is None:
        return [], 0
    where = "resources.accelerators"
    if isinstance(asked, Mapping):
        parts = [([str(kind).lower()], whole(1 if count is None else count, where)) for kind, count in asked.items()]
    else:
        parts = [kinds_and_count(one, where) for one in (asked if isinstance(asked, list) else [asked])]
    if len({count for _, count in parts}) != 1:
        raise SpecError(f"{where}: a job has the same number of GPUs on each type: choose one.")
    return [kind for kinds, _ in parts for kind in kinds], parts[0][1]


def _environment(task: Fields, notes: list[str]) -> dict[str, Any]:
    env, unset = env_of(task.take("envs", {}), "envs")
    if unset:
        notes.append(f"envs: {', '.join(unset)} has no value: give it by --env NAME=VALUE when you submit")
    return {"env": env} if env else {}
