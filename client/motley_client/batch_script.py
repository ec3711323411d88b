"""Job specs from batch scripts: a parser of `#SBATCH` lines, and their translation, with notes on what differs."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from pathlib import PurePath
from typing import Any

from motley_client.begin_time import begin_time_of
from motley_client.spec import SpecError, array_of

_PAIRS = (
    "J=job-name G=gpus N=nodes n=ntasks c=cpus-per-task t=time a=array d=dependency o=output e=error D=chdir "
    "b=begin p=partition A=account q=qos C=constraint w=nodelist x=exclude H=hold k=no-kill s=oversubscribe"
)
SHORT = dict(pair.split("=") for pair in _PAIRS.split())
FLAGS = {"hold", "no-kill", "oversubscribe", "exclusive", "requeue", "no-requeue", "overcommit", "verbose", "quiet"}
"""Options that need no value."""
KEPT_LOGS = "Motley keeps the logs of every attempt: motley logs JOB"
OTHERWISE = {
    "output": KEPT_LOGS,
    "error": KEPT_LOGS,
    "partition": "the job may run on any node; for GPU types: --gpu-type",
    "account": "the team of the job is that of --team",
    "qos": "the order of jobs is that of the policy; see --weight",
    **dict.fromkeys(("mail-type", "mail-user"), "motley notifications can tell you when your jobs end"),
    "requeue": "a preempted job always goes back to the queue; for restarts after failures: --retries",
}
"""Options that are not honoured, and what there is in their place."""
DEPENDENCIES = {"afterok": "success", "afterany": "end"}
MOST_CHARACTERS = 10_000
"""Of a line with options: shlex takes quadratic time for a long word."""
MIB_PER = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@dataclass(frozen=True)
class Script:
    """Text of a batch script, and the options of its `#SBATCH` lines."""

    name: str
    text: str
    options: dict[str, str]


@dataclass(frozen=True)
class Translation:
    """Fields of a job's spec, and notes on options that are not honoured, or differently."""

    spec: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def is_script(text: str) -> bool:
    return text.startswith("#!")


def read_script(path: str, text: str) -> Script:
    """The script with its options; of an option given twice the last one holds, as in Slurm."""
    return Script(PurePath(path).stem or "job", text, dict(_options(text)))


def translated(script: Script, arguments: list[str], environment: Mapping[str, str], now: datetime) -> Translation:
    """The spec of a job that runs the script on each of its nodes."""
    left, notes = dict(script.options), []
    spec: dict[str, Any] = {"name": left.pop("job-name", script.name), "command": _command(script, arguments)}
    size, said = _size(left)
    spec |= size | _of_times(left, now) | _environment(left, environment)
    spec |= {"workdir": folder} if (folder := left.pop("chdir", "")) else {}
    notes += said + [_not_honoured(name, value) for name, value in left.items()] + list(_in_text(script.text))
    return Translation(spec, notes)


# -- reading -----------------------------------------------------------------------------------------------------


def _options(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return  # as in Slurm, lines after the first command do not count
        if line.startswith("#SBATCH"):
            yield from _options_of_line(line.removeprefix("#SBATCH"), number)


def _options_of_line(line: str, number: int) -> Iterator[tuple[str, str]]:
    if len(line) > MOST_CHARACTERS:
        raise SpecError(f"line {number}: a line with options may have at most {MOST_CHARACTERS:,} characters.")
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise SpecError(f"line {number}: #SBATCH{line}: a quotation mark is not closed.") from error
    while words:
        name, value = _split(words.pop(0), number)
        if value is None:
            takes_next = name not in FLAGS and words and not words[0].startswith("-")
            value = words.pop(0) if takes_next else ""
        yield name, value


def _split(word: str, number: int) -> tuple[str, str | None]:
    """Name and value of `--name=value`, `--name`, `-Nvalue` or `-N`."""
    if long := re.fullmatch(r"--([a-z][a-z-]*)(?:=(.*))?", word):
        return long[1], long[2]
    if (short := re.fullmatch(r"-([A-Za-z])(.*)", word)) and short[1] in SHORT:
        return SHORT[short[1]], short[2].removeprefix("=") or None
    raise SpecError(f"line {number}: #SBATCH {word} is no option of sbatch that is known here.")


# -- how large ---------------------------------------------------------------------------------------------------


def _size(left: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """GPUs, CPUs and memory; Slurm counts them per node, task or CPU, Motley per GPU."""
    notes: list[str] = []
    nodes, tasks, per_node = _nodes(left, notes), left.pop("ntasks", ""), left.pop("ntasks-per-node", "")
    launched = _number("ntasks", tasks) if tasks else nodes * (_number("ntasks-per-node", per_node) if per_node else 1)
    gpus, kind = _gpus(left, nodes, launched, notes)
    spec: dict[str, Any] = {"gpus": gpus} | ({"gpu_types": [kind]} if kind else {})
    if (tasks or per_node) and launched not in (nodes, gpus):
        notes.append(
            f"{launched} tasks: the command is started once on each node, and torchrun starts one process per GPU"
        )
    cpus = _cpus_per_gpu(left, launched, gpus)
    spec |= {"cpus_per_gpu": cpus} if cpus else {}
    return spec | _memory(left, cpus or 1, max(gpus // nodes, 1), notes), notes


def _nodes(left: dict[str, str], notes: list[str]) -> int:
    text = left.pop("nodes", "")
    least, is_range, _ = text.partition("-")
    if not text:
        return 1
    if is_range:
        notes.append(f"--nodes={text}: counted as {least}")
    elif least != "1":
        notes.append(
            f"--nodes={text}: the GPUs are counted, and Motley chooses the nodes; the command starts on each of them"
        )
    return _number("nodes", least)


def _gpus(left: dict[str, str], nodes: int, tasks: int, notes: list[str]) -> tuple[int, str]:
    """Number and type of GPUs: of the whole job, per node, or per task."""
    ways = {"gpus": 1, "gpus-per-node": nodes, "gres": nodes, "gpus-per-task": tasks}
    given = [(name, left.pop(name)) for name in ways if name in left]
    if not given:
        notes.append("no GPUs are requested: it gets 1")
        return 1, ""
    name, text = given[0]
    match = re.fullmatch(r"(?:gpu:?)?(?:([A-Za-z][\w.-]*):?)?(\d+)?", text)
    if match is None:
        raise SpecError(f"#SBATCH --{name}={text}: expected a number of GPUs, or a type and a number, e.g. a100:4.")
    return _number(name, match[2] or "1") * ways[name], (match[1] or "").lower()


def _cpus_per_gpu(left: dict[str, str], tasks: int, gpus: int) -> int:
    per_gpu, per_task = left.pop("cpus-per-gpu", ""), left.pop("cpus-per-task", "")
    if per_gpu:
        return _number("cpus-per-gpu", per_gpu)
    return ceil(_number("cpus-per-task", per_task) * tasks / gpus) if per_task else 0


def _memory(left: dict[str, str], cpus_per_gpu: int, gpus_per_node: int, notes: list[str]) -> dict[str, Any]:
    """Memory per GPU of memory per node, per CPU or per GPU; without a unit Slurm means MiB."""
    parts = {"mem-per-gpu": 1.0, "mem-per-cpu": float(cpus_per_gpu), "mem": 1 / gpus_per_node}
    given = [(name, left.pop(name)) for name in parts if name in left]
    if not given:
        return {}
    name, text = given[0]
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.upper())
    if match is None:
        raise SpecError(f"#SBATCH --{name}={text}: expected a size, e.g. 16G.")
    if float(match[1]) == 0:
        notes.append(f"--{name}=0: it gets the share of memory that belongs to its GPUs")
        return {}
    return {"memory_per_gpu": f"{ceil(float(match[1]) * MIB_PER[match[2]] * parts[name])}MiB"}


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,5}", text):
        raise SpecError(f"#SBATCH --{name}: {text!r} is not a number from 1 to 999999.")
    return int(text)


# -- when, and with which environment ----------------------------------------------------------------------------


def _of_times(left: dict[str, str], now: datetime) -> dict[str, Any]:
    limit, array = left.pop("time", ""), left.pop("array", None)
    spec: dict[str, Any] = {}
    if limit and limit.lower() not in ("unlimited", "infinite", "0"):
        spec["time_limit"] = f"{limit}m" if limit.isdecimal() else limit  # Slurm's bare number is minutes
    if array is not None:
        spec["array"] = array_of(f"{array}-{array}" if array.isdecimal() else array, "#SBATCH --array")
    if needs := left.pop("dependency", ""):
        spec["after"] = list(_after(needs))
    if begin := begin_time_of(left.pop("begin", None), now, "#SBATCH --begin"):
        spec["begin_time"] = begin
    return spec


def _after(text: str) -> Iterator[dict[str, str]]:
    """`afterok:JOB:JOB,afterany:JOB`. Without the others a job would start too early: they are refused."""
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind not in DEPENDENCIES or not jobs or "?" in text:
            raise SpecError(f"#SBATCH --dependency={text}: only afterok and afterany are honoured, joined by commas.")
        yield from ({"job": job, "on": DEPENDENCIES[kind]} for job in jobs)


def _environment(left: dict[str, str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Variables of `--export`: those with a value, and those named that are set here."""
    names = left.pop("export", "NONE").split(",")
    pairs = [name.partition("=") for name in names if name and name not in ("ALL", "NIL", "NONE")]
    env = {name: value if is_given else environment.get(name) for name, is_given, value in pairs}
    if "ALL" in names:
        left["export"] = "ALL"
    return {"env": found} if (found := {name: value for name, value in env.items() if value is not None}) else {}


# -- what differs ------------------------------------------------------------------------------------------------


def _command(script: Script, arguments: list[str]) -> list[str]:
    """The interpreter of the first line with the text itself: no file needs to be on the nodes."""
    interpreter = shlex.split(script.text.splitlines()[0].removeprefix("#!")[:MOST_CHARACTERS])
    programs = [PurePath(word).name for word in interpreter if not word.startswith("-")]
    if any(re.fullmatch(r"python[0-9.]*", program) for program in programs):
        return [*interpreter, "-c", script.text, *arguments]
    if any(re.fullmatch(r"(ba|da|k|z)?sh", program) for program in programs):
        return [*interpreter, "-c", script.text, script.name, *arguments]
    raise SpecError(f"{script.name}: only scripts of a shell or of Python can be submitted; others: -- PROGRAM FILE")


def _not_honoured(name: str, value: str) -> str:
    if name == "export":
        return "--export=ALL is not honoured: variables of this shell are not copied; give them by --env"
    text = f"--{name}={value}" if value else f"--{name}"
    why = OTHERWISE.get(name)
    return f"{text} is not honoured" + (f": {why}" if why else "")


def _in_text(text: str) -> Iterator[str]:
    if re.search(r"^[ \t]*srun\b", text, re.MULTILINE):
        yield "it calls srun: the command already starts on each node, and only nodes of a Slurm engine have srun"
    if "SLURM_ARRAY_TASK_ID" in text:
        yield "it reads SLURM_ARRAY_TASK_ID: the index is in MOTLEY_ARRAY_INDEX"
    elif "SLURM_" in text:
        yield "it reads variables SLURM_…: a job has MOTLEY_… and PET_… in their place"
