"""Job specs from batch scripts: `#SBATCH` lines as sbatch reads them, and their translation, with notes on the rest."""

import re
import shlex
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from pathlib import Path, PurePath
from typing import Any

from motley_client.spec import SpecError
from motley_command.begin_time import begin_time_of, time_of
from motley_command.convert.fields import Translation
from motley_command.sbatch_options import OF_SHORT, Effect, Option, Value, option_named
from motley_command.sbatch_size import Size, size_of

MAGIC = "#SBATCH"
DEPENDENCIES = {"afterok": "success", "afterany": "end"}
MOST_CHARACTERS = 10_000
"""Of a line with options: shlex takes quadratic time for a long word."""
DEFAULT_SIGNAL_S = 60
NO_LIMIT = {"unlimited", "infinite", "-1"}
SCRIPT_FOLDER = re.compile(r"\bBASH_SOURCE\b|\$\{?0\b|\b__file__\b")
READ_VARIABLE = re.compile(
    r"(?<!\\)\$(?:(SLURMD?_\w+)|\{#?(SLURMD?_\w+)\}|\{(SLURMD?_\w+)[^\w:+=}-])"
    r"""|environ\[['"](SLURMD?_\w+)"""
)
"""A use without a default: `${NAME:-1}` and `environ.get` have one."""
SET_VARIABLE = re.compile(r"\b(SLURMD?_\w+)=")
GIVEN_VARIABLES = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_JOB_ACCOUNT", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_DIR"),
    *("SLURM_RESTART_COUNT", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS"),
    *("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_GPUS"),
    *("SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "SLURMD_NODENAME", "SLURM_GPUS_ON_NODE"),
    *("SLURM_GPUS_PER_NODE",),
}
OF_CPUS = {
    *("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_PER_GPU"),
}
"""Variables that a job has that says how many CPUs it needs."""
OF_MEMORY = {"SLURM_MEM_PER_NODE"}
OF_TASKS = {
    *("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK"),
}
"""Variables that depend on the number of tasks, which is one per node in Motley."""
OF_ARRAYS = {
    f"SLURM_ARRAY_{name}" for name in ("JOB_ID", *(f"TASK_{n}" for n in ("ID", "MIN", "MAX", "COUNT", "STEP")))
}


@dataclass(frozen=True)
class Script:
    """Text of a batch script, the options of its `#SBATCH` lines, and notes on lines that are not read."""

    name: str
    text: str
    options: dict[str, str]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Surroundings:
    """Where a script is submitted: the shell's variables, the time, and the GPU types that the cluster has."""

    environment: Mapping[str, str]
    now: datetime
    gpu_types: Callable[[], Collection[str]] = tuple


def is_script(text: str) -> bool:
    return text.removeprefix("\ufeff").startswith("#!")


def read_script(path: str, text: str) -> Script:
    """The script with its options; of an option given twice the last one holds, as in Slurm."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    notes = [] if plain == text else ["its byte order mark and DOS line breaks were left out: sbatch would refuse it"]
    lines = plain.split("\n")
    header = _header(lines)
    options = {option.name: value for number in header for option, value in _options_of(lines[number], number + 1)}
    return Script(PurePath(path).stem or "job", plain, options, notes + list(_not_read(lines, header)))


def options_of_words(words: Sequence[str], where: str) -> Iterator[tuple[Option, str]]:
    """Options with their values, parsed as getopt_long does; errors begin with `where`."""
    left = deque(words)
    while left:
        word = left.popleft()
        if word.startswith("--") and len(word) > 2:
            yield _long(word, left, where)
        elif word.startswith("-") and len(word) > 1:
            yield from _short(word[1:], left, where)
        else:
            raise SpecError(f"{where}: {word!r} is no option: an option begins with - or --.")


def translated(script: Script, arguments: list[str], at: Surroundings) -> Translation:
    """The spec of a job that runs the script on each of its nodes."""
    left = dict(script.options)
    _refuse(left)
    size = size_of(left)
    spec: dict[str, Any] = {"name": left.pop("job-name", script.name), "command": _command(script, arguments)}
    spec |= _of_size(size) | _of_times(left, at.now) | _of_signal(left, notes := list(size.notes))
    spec |= _environment(left, at.environment) | _types_of(left, at, size.gpu_type, notes)
    spec |= {"workdir": str(Path(folder).absolute())} if (folder := left.pop("chdir", "")) else {}
    spec["slurm_variables"] = True
    notes += [_not_honoured(name, value) for name, value in left.items()]
    return Translation(spec, [*script.notes, *notes, *_in_text(script.text)], several_tasks=size.several_tasks)


def check_variables(text: str, spec: Mapping[str, Any], *, several_tasks: bool = False) -> None:
    """Refuse a script that reads variables of Slurm which its job would not have, or with another number of tasks."""
    given = GIVEN_VARIABLES | (OF_ARRAYS if spec.get("array") else set())
    given |= OF_CPUS if spec.get("cpus_per_gpu") else set()
    given |= OF_MEMORY if spec.get("memory_per_gpu") else set()
    given = (given - OF_TASKS if several_tasks else given) | set(spec.get("env") or {})
    commands = "\n".join(line for line in text.split("\n") if not _is_comment(line))
    set_here = set(SET_VARIABLE.findall(commands))
    read = dict.fromkeys(next(filter(None, match.groups())) for match in READ_VARIABLE.finditer(commands))
    for name in read:
        if name not in given and name not in set_here:
            raise SpecError(f"It reads {name}, {_remedy(name, several_tasks=several_tasks)}.")


# -- reading -----------------------------------------------------------------------------------------------------


def _header(lines: Sequence[str]) -> list[int]:
    """Numbers of the lines with options: those before the first command."""
    end = next((number for number, line in enumerate(lines) if line.strip() and not _is_comment(line)), len(lines))
    return [number for number in range(end) if lines[number].startswith(MAGIC)]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _not_read(lines: Sequence[str], header: Sequence[int]) -> Iterator[str]:
    """Notes on lines that look like options but are not read."""
    read = set(header)
    for number, line in enumerate(lines):
        if number in read or not (word := re.match(r"\s*#[#\s]*([A-Za-z]{4,8})\s+-", line[:100])):
            continue
        if line.startswith(MAGIC):
            yield f"line {number + 1}: {MAGIC} after the first command is not read, as by sbatch"
        elif word[1].upper() in ("PBS", "BSUB"):
            yield f"line {number + 1}: options of {word[1].upper()} are not read: write {MAGIC}"
        elif SequenceMatcher(None, word[1].upper(), "SBATCH").ratio() > 0.8:
            yield f"line {number + 1}: {line.strip()[:60]!r} looks like an option and is none: these begin with {MAGIC}"


def _options_of(line: str, number: int) -> Iterator[tuple[Option, str]]:
    where, text = f"line {number}", line.removeprefix(MAGIC)
    if len(text) > MOST_CHARACTERS:
        raise SpecError(f"{where}: a line with options may have at most {MOST_CHARACTERS:,} characters.")
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise SpecError(f"{where}: {MAGIC}{text}: a quotation mark is not closed.") from error
    if words and words[0] in ("hetjob", "packjob"):
        raise SpecError(f"{where}: Motley has no heterogeneous jobs: submit the parts as jobs of their own.")
    yield from options_of_words(words, where)


def _long(word: str, left: deque[str], where: str) -> tuple[Option, str]:
    """`--name=value`, `--name value` or `--name`."""
    name, is_given, value = word[2:].partition("=")
    option = option_named(name)
    if option is None:
        raise _unknown(word, where)
    if is_given and option.value is Value.NONE:
        raise SpecError(f"{where}: --{option.name} has no value.")
    return option, value if is_given else _next_value(option, left, where)


def _short(letters: str, left: deque[str], where: str) -> Iterator[tuple[Option, str]]:
    """`-N2`, `-N 2`, or letters of options without values before one: `-HN2`."""
    for place, letter in enumerate(letters):
        option = OF_SHORT.get(letter)
        if option is None:
            raise _unknown(f"-{letters[place:][:40]}", where)
        if option.value is not Value.NONE:
            yield option, letters[place + 1 :].removeprefix("=") or _next_value(option, left, where)
            return
        yield option, ""


def _next_value(option: Option, left: deque[str], where: str) -> str:
    if option.value is not Value.REQUIRED:
        return ""
    if not left:
        raise SpecError(f"{where}: --{option.name} needs a value.")
    return left.popleft()


def _unknown(word: str, where: str) -> SpecError:
    return SpecError(f"{where}: {word} is no option of sbatch that is known here.")


# -- translation -------------------------------------------------------------------------------------------------


def _refuse(options: Mapping[str, str]) -> None:
    for name in options:
        option = option_named(name)
        if option is not None and option.effect is Effect.REFUSED:
            raise SpecError(f"#SBATCH --{name} is refused: {option.note}.")


def _of_size(size: Size) -> dict[str, Any]:
    return {
        "gpus": size.gpus,
        **({"gpu_types": [size.gpu_type]} if size.gpu_type else {}),
        **({"cpus_per_gpu": size.cpus_per_gpu} if size.cpus_per_gpu else {}),
        **({"memory_per_gpu": f"{size.memory_per_gpu_mib}MiB"} if size.memory_per_gpu_mib else {}),
    }


def _of_times(left: dict[str, str], now: datetime) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if limit_s := _seconds(left.pop("time", "")):
        spec["time_limit"] = f"{limit_s}s"
    if array := left.pop("array", ""):
        spec["array"] = array
    if needs := left.pop("dependency", ""):
        spec["after"] = list(_after(needs))
    if begin := begin_time_of(left.pop("begin", None), now, "#SBATCH --begin"):
        spec["begin_time"] = begin
    if deadline := left.pop("deadline", ""):
        spec["deadline"] = time_of(deadline, now, "#SBATCH --deadline")
    return spec


def _seconds(text: str) -> int:
    """Seconds of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`, as sbatch reads them; 0: no limit."""
    if not text or text.lower() in NO_LIMIT:
        return 0
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text, re.ASCII)
    if match is None:
        raise SpecError(f"#SBATCH --time={text}: expected minutes, 2:00:00 or 1-12:00:00 (days-hours:minutes:seconds).")
    days, *parts = (int(part) if part else None for part in match.groups())
    given = [part for part in parts if part is not None]
    if days is None and len(given) < 3:
        given = [0, *given]  # minutes, with seconds or without
    hours, minutes, seconds = (*given, 0, 0)[:3]
    return (((days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _after(text: str) -> Iterator[dict[str, str]]:
    """`afterok:JOB:JOB,afterany:JOB`. Without the others a job would start too early: they are refused."""
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind not in DEPENDENCIES or not all(jobs) or not jobs or "?" in text:
            raise SpecError(f"#SBATCH --dependency={text}: only afterok and afterany are honoured, joined by commas.")
        yield from ({"job": job, "on": DEPENDENCIES[kind]} for job in jobs)


def _of_signal(left: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """`[{R|B}:]SIGNAL[@SECONDS]`: a job is asked to save its state by SIGTERM, so long before it is killed."""
    text = left.pop("signal", "")
    if not text:
        return {}
    match = re.fullmatch(r"(?:[RB]:|RB:)?(?:SIG)?([A-Za-z]+[12]?|\d{1,2})(?:@(\d{1,5}))?", text)
    if match is None:
        raise SpecError(f"#SBATCH --signal={text}: expected a signal and seconds, e.g. B:USR1@120.")
    grace_s = int(match[2] or DEFAULT_SIGNAL_S)
    if match[1].upper() not in ("TERM", "15"):
        notes.append(f"--signal={text}: the job gets SIGTERM in its place, {grace_s} s before it is killed")
    return {"checkpoint": {"grace_seconds": grace_s}}


def _environment(left: dict[str, str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Variables of `--export`: those with a value, and those named that are set here."""
    names = _unquoted_parts(left.pop("export", "NONE"))
    pairs = [name.partition("=") for name in names if name and name not in ("ALL", "NIL", "NONE")]
    env = {name: value if is_given else environment.get(name) for name, is_given, value in pairs}
    if "ALL" in names:
        left["export"] = "ALL"
    if unset := [name for name, value in env.items() if value is None]:
        raise SpecError(f"#SBATCH --export: {', '.join(unset)} is not set here, and has no value: leave it out.")
    return {"env": found} if (found := {name: value for name, value in env.items() if value is not None}) else {}


def _unquoted_parts(text: str) -> list[str]:
    """Parts between commas that are outside quotation marks, without these."""
    parts = re.findall(r"""((?:"[^"]*"|'[^']*'|[^,"'])+)""", text)
    return [re.sub(r"""["']""", "", part) for part in parts]


def _types_of(left: dict[str, str], at: Surroundings, named: str, notes: list[str]) -> dict[str, Any]:
    """GPU types that `--constraint` accepts; `named` is the type that `--gpus` or `--gres` names."""
    if not (text := left.pop("constraint", "")):
        return {}
    words = re.findall(r"[\w.-]+", text.lower())
    known = {name.lower() for name in at.gpu_types()}
    types = [word for word in dict.fromkeys(words) if word in known]
    if not types or "!" in text:
        here = (
            f"the GPU types here are {', '.join(sorted(known))}" if known else "which types there are is not known here"
        )
        notes.append(f"--constraint={text} is not honoured: {here}")
        return {}
    if (len(types) > 1 and "&" in text and "|" not in text) or (named and named not in types):
        raise SpecError(
            f"#SBATCH --constraint={text}: no GPU is {' and '.join(dict.fromkeys([*types, named or types[0]]))}."
        )
    if others := [word for word in words if word not in known]:
        notes.append(f"--constraint={text}: {', '.join(others)} is not honoured; the job may run on {', '.join(types)}")
    return {} if named else {"gpu_types": types}


def _command(script: Script, arguments: list[str]) -> list[str]:
    """The interpreter of the first line with the text itself: no file needs to be on the nodes."""
    interpreter = script.text.split("\n", 1)[0].removeprefix("#!")[:MOST_CHARACTERS].split()
    programs = [PurePath(word).name for word in interpreter if not word.startswith("-")]
    if any(re.fullmatch(r"python[0-9.]*", program) for program in programs):
        return [*interpreter, "-c", script.text, *arguments]
    if any(re.fullmatch(r"(ba|da|k|z)?sh", program) for program in programs):
        return [*interpreter, "-c", script.text, script.name, *arguments]
    raise SpecError(f"{script.name}: only scripts of a shell or of Python can be submitted; others: -- PROGRAM FILE")


# -- what differs ------------------------------------------------------------------------------------------------


def _not_honoured(name: str, value: str) -> str:
    if name == "export":
        return "--export=ALL is not honoured: variables of this shell are not copied; give them by --env"
    option = option_named(name)
    text = f"--{name}={value}" if value else f"--{name}"
    return f"{text} is not honoured" + (f": {option.note}" if option is not None and option.note else "")


def _in_text(text: str) -> Iterator[str]:
    if re.search(r"^[ \t]*srun\b", text, re.MULTILINE):
        yield "it calls srun: the command already starts on each node, and only nodes of a Slurm engine have srun"
    if re.search(r"\bscontrol\b", text):
        yield "it calls scontrol, which only nodes of a Slurm engine have: the first node's address is in MASTER_ADDR"
    if SCRIPT_FOLDER.search(text):
        yield "it asks for its own path: its text is the command, and no file of it is on the nodes; see --code"


def _remedy(name: str, *, several_tasks: bool) -> str:
    if several_tasks and name in OF_TASKS:
        return (
            "which would count one task on each node: the command is started once there, whatever --ntasks says. "
            f"Give what it is to be by --env {name}=VALUE"
        )
    if name in OF_ARRAYS:
        return "which its job would not have: submit it with --array"
    if name in OF_CPUS:
        return "which its job would not have: say how many CPUs it needs, e.g. --cpus-per-gpu=4"
    return (
        f"which its job would not have: give it by --env {name}=VALUE, or a default in the script: ${{{name}:-VALUE}}"
    )
