"""How large the job of a batch script is: Slurm counts by node, task, socket or CPU, Motley by GPU. Pure.

A wrong number of GPUs is the worst that could come of a translation: what cannot be counted, or is said in two ways
that do not agree, is refused.
"""

import re
from collections.abc import Iterator, Mapping
from math import ceil
from typing import NamedTuple

from motley_client.spec import SpecError
from motley_command.units import MIB_PER

MOST = 999_999
ONE_TYPE = "a job runs on GPUs of one type: name one, or none and Motley chooses"
NO_GPUS = "Motley runs no jobs without GPUs"


class Size(NamedTuple):
    """Size of a job; 0 where nothing is said."""

    gpus: int
    gpu_type: str
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    several_tasks: bool
    """Whether there are to be more tasks than nodes."""
    notes: list[str]


class Tasks(NamedTuple):
    """Nodes and tasks that a script asks for, and whether it says how many there are of each."""

    nodes: int
    tasks: int
    nodes_known: bool
    tasks_known: bool


def size_of(left: dict[str, str]) -> Size:
    """The size that the options ask for; they are taken out of `left`."""
    notes: list[str] = []
    asked = _tasks(left, notes)
    gpus, gpu_type, asked = _gpus(left, asked, notes)
    if asked.tasks_known and asked.tasks not in (asked.nodes, gpus):
        notes.append(
            f"{asked.tasks} tasks: the command is started once on each node, and torchrun starts one process per GPU"
        )
    cpus = _cpus_per_gpu(left, asked, gpus)
    memory = _memory_mib(left, cpus or 1, max(gpus // asked.nodes, 1), notes)
    return Size(gpus, gpu_type, cpus, memory, asked.tasks_known and asked.tasks > asked.nodes, notes)


def _tasks(left: dict[str, str], notes: list[str]) -> Tasks:
    nodes = _nodes(left, notes)
    tasks, per_node = _number(left, "ntasks"), _number(left, "ntasks-per-node")
    if not nodes and tasks and per_node:
        nodes = ceil(tasks / per_node)
    known = bool(tasks or per_node)
    return Tasks(nodes or 1, tasks or (nodes or 1) * (per_node or 1), bool(nodes), known)


def _nodes(left: dict[str, str], notes: list[str]) -> int:
    text = left.pop("nodes", "")
    least, is_range, _ = text.partition("-")
    if not text:
        return 0
    if is_range:
        notes.append(f"--nodes={text}: counted as {least}")
    elif least != "1":
        notes.append(
            f"--nodes={text}: the GPUs are counted, and Motley chooses the nodes; the command starts on each of them"
        )
    return _whole("nodes", least)


def _gpus(left: dict[str, str], asked: Tasks, notes: list[str]) -> tuple[int, str, Tasks]:
    """GPUs of the whole job, their type, and the nodes and tasks that follow from them."""
    given = dict(_requests(left, notes))
    per_gpu = _number(left, "ntasks-per-gpu")
    kinds = {kind for kind, _ in given.values() if kind}
    if len(kinds) > 1:
        raise SpecError(f"#SBATCH {_written(given)}: {ONE_TYPE}.")
    if per_gpu and not given and asked.tasks_known:
        given["ntasks-per-gpu"] = "", ceil(asked.tasks / per_gpu)
    elif not given:
        notes.append("no GPUs are requested: it gets 1")
        return 1, "", asked
    gpus = _in_all({name: number for name, (_, number) in given.items()}, asked)
    return gpus, next(iter(kinds), ""), _with_gpus(asked, gpus, given, per_gpu)


def _in_all(given: Mapping[str, int], asked: Tasks) -> int:
    """The number of GPUs in all; those of a node count once where the number of nodes is not said."""
    known = {name: number for name, number in given.items() if name in ("gpus", "ntasks-per-gpu")}
    if "gpus-per-task" in given and (asked.tasks_known or not known):
        known["gpus-per-task"] = given["gpus-per-task"] * asked.tasks
    of_node = {name: number for name, number in given.items() if name in ("gres", "gpus-per-node", "gpus-per-socket")}
    if asked.nodes_known or not known:
        known |= {name: number * asked.nodes for name, number in of_node.items()}
    if len(set(known.values())) > 1:
        said = " and ".join(f"--{name} {number}" for name, number in known.items())
        raise SpecError(f"#SBATCH: these do not agree on the number of GPUs in all: {said}. Leave one of them out.")
    return min(next(iter(known.values())), MOST)


def _with_gpus(asked: Tasks, gpus: int, given: Mapping[str, tuple[str, int]], per_gpu: int) -> Tasks:
    of_node = next((number for name, (_, number) in given.items() if name in ("gres", "gpus-per-node")), 0)
    nodes = asked.nodes if asked.nodes_known or not of_node else ceil(gpus / of_node)
    of_task = given.get("gpus-per-task", ("", 0))[1]
    tasks = asked.tasks
    if not asked.tasks_known:
        tasks = gpus // of_task if of_task else gpus * per_gpu if per_gpu else nodes
    return Tasks(nodes, max(tasks, 1), asked.nodes_known or bool(of_node), asked.tasks_known)


def _requests(left: dict[str, str], notes: list[str]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Type and number of GPUs of each option that asks for some."""
    for name in ("gpus", "gpus-per-node", "gpus-per-task"):
        if name in left:
            yield name, _kind_and_number(name, left.pop(name))
    sockets = _sockets(left)
    if "gpus-per-socket" in left:
        kind, number = _kind_and_number("gpus-per-socket", left.pop("gpus-per-socket"))
        if not sockets:
            raise SpecError("#SBATCH --gpus-per-socket: add --sockets-per-node, which sbatch demands as well.")
        yield "gpus-per-socket", (kind, number * sockets)
    if (gres := _of_gres(left.pop("gres", ""), notes)) is not None:
        yield "gres", gres


def _sockets(left: dict[str, str]) -> int:
    detail = left.pop("extra-node-info", "").partition(":")[0]
    per_node = left.pop("sockets-per-node", "").partition("-")[0] or detail
    return _whole("sockets-per-node", per_node) if per_node else 0


def _of_gres(text: str, notes: list[str]) -> tuple[str, int] | None:
    parts = [part for part in text.split(",") if part and part.lower() != "none"]
    ours = [part for part in parts if re.match(r"(?:gres[/:])?gpu\b", part)]
    if others := [part for part in parts if part not in ours]:
        notes.append(f"--gres: {', '.join(others)} is not honoured: Motley places jobs by their GPUs, CPUs and memory")
    if len(ours) > 1:
        raise SpecError(f"#SBATCH --gres={text}: {ONE_TYPE}.")
    if not ours:
        return None
    own = re.sub(r"\(S:[\d,-]*\)$", "", re.sub(r"^(?:gres[/:])?gpu[:=]?", "", ours[0]))
    return _kind_and_number("gres", own or "1", text)


def _kind_and_number(name: str, text: str, whole: str = "") -> tuple[str, int]:
    if "," in text:
        raise SpecError(f"#SBATCH --{name}={text}: {ONE_TYPE}.")
    match = re.fullmatch(r"(?:([A-Za-z][\w.-]*):?)?(\d+)?", text, re.ASCII)
    if match is None or not text:
        shown = whole or text
        raise SpecError(f"#SBATCH --{name}={shown}: expected a number of GPUs, or a type and a number, e.g. a100:4.")
    kind = (match[1] or "").lower()
    number, kind = ("0", "") if kind == "none" else (match[2] or "1", kind)
    if int(number[:9]) == 0:
        raise SpecError(f"#SBATCH --{name}={whole or text}: {NO_GPUS}.")
    return kind, _whole(name, number)


def _cpus_per_gpu(left: dict[str, str], asked: Tasks, gpus: int) -> int:
    """CPUs of the tasks over the GPUs; a task without a number has one, which says nothing where GPUs are as many."""
    per_gpu, per_task = _number(left, "cpus-per-gpu"), _number(left, "cpus-per-task")
    if per_task or (asked.tasks_known and asked.tasks > gpus):
        return per_gpu or ceil((per_task or 1) * asked.tasks / gpus)
    return per_gpu


def _memory_mib(left: dict[str, str], cpus_per_gpu: int, gpus_per_node: int, notes: list[str]) -> int:
    """Memory per GPU of memory per node, per CPU or per GPU; without a unit Slurm means MiB."""
    parts = {"mem-per-gpu": 1.0, "mem-per-cpu": float(cpus_per_gpu), "mem": 1 / gpus_per_node}
    given = [(name, left.pop(name)) for name in parts if name in left]
    if not given:
        return 0
    name, text = given[0]
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)B?", text.upper(), re.ASCII)
    if match is None:
        raise SpecError(f"#SBATCH --{name}={text}: expected a size, e.g. 16G.")
    if float(match[1]) == 0:
        notes.append(f"--{name}=0: it gets the share of memory that belongs to its GPUs")
        return 0
    return ceil(float(match[1]) * MIB_PER[match[2].lower()] * parts[name])


def _number(left: dict[str, str], name: str) -> int:
    return _whole(name, left.pop(name)) if name in left else 0


def _whole(name: str, text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,5}", text, re.ASCII):
        raise SpecError(f"#SBATCH --{name}: {text!r} is not a number from 1 to {MOST}.")
    return int(text)


def _written(given: Mapping[str, tuple[str, int]]) -> str:
    return " ".join(f"--{name}={kind}:{number}" for name, (kind, number) in given.items())
