"""Options of a Slurm engine: its folder, and resources of its Slurm jobs. Parsed from untrusted JSON."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from engines.protocol import EngineError

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,@+-]*")
_FEATURES = re.compile(r"[A-Za-z0-9_.&|*()\[\],-]+")
LONGEST = 200


@dataclass(frozen=True)
class SlurmOptions:
    """Options of one Slurm engine. An empty text or None leaves the choice to the site's defaults."""

    root: Path
    """Folder that the service and all nodes share: attempts, logs, checkpoints."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    """Features that nodes must have, as of `sbatch --constraint`."""
    python: Path = Path("/usr/bin/python3")
    """Python 3.11 or newer on the nodes."""
    slurm_conf: Path | None = None
    """Another `slurm.conf` than the one that the commands find by themselves."""
    memory_mib_per_gpu: int | None = None
    cpus_per_gpu: int | None = None
    """None: one CPU per GPU."""
    reservation: str = ""
    search_path: str = ""
    """Folders that come first in the PATH of jobs, as `/opt/conda/bin`."""
    late_disk_s: int = 60
    """Seconds for which the report of an attempt may be missing after Slurm said that it is over (network disks)."""
    drain: bool = False
    """Whether nodes that are cordoned or drained in Motley are drained in Slurm, too."""
    power_saving: bool = False
    """Whether nodes that are not needed are powered down in Slurm, and powered up for jobs."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Options from JSON; `EngineError` names the option that is wrong, and the remedy."""
        known = [field.name for field in fields(cls)]
        refuse_unknown(options, known)
        if "root" not in options:
            raise EngineError("The option root is missing: name the folder that the service and all nodes share.")
        given: dict[str, Any] = {name: _PARSERS[name](name, options[name]) for name in known if name in options}
        return cls(**given)


def refuse_unknown(options: Mapping[str, Any], known: list[str]) -> None:
    """Raise `EngineError` for options that are not known, with the list of those that are."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        there = ", ".join(known) or "none"
        raise EngineError(f"Unknown options: {', '.join(unknown)}. Known options: {there}.")


def _path(name: str, value: Any) -> Path:
    if not (isinstance(value, str) and value.startswith("/") and "\n" not in value and "\0" not in value):
        raise EngineError(f"The option {name} is {value!r}: write an absolute path, which starts with /.")
    return Path(value)


def _search_path(name: str, value: Any) -> str:
    folders = value.split(":") if isinstance(value, str) and value else []
    return ":".join(str(_path(name, folder)) for folder in folders)


def _word(name: str, value: Any) -> str:
    return _matching(name, value, _WORD, "write a name as Slurm has it: letters, digits, '.', '_', '-', ','.")


def _features(name: str, value: Any) -> str:
    return _matching(name, value, _FEATURES, "write features as for sbatch --constraint, such as gpu80g&ib.")


def _matching(name: str, value: Any, pattern: re.Pattern[str], remedy: str) -> str:
    if value == "" or (isinstance(value, str) and len(value) <= LONGEST and pattern.fullmatch(value)):
        return str(value)
    raise EngineError(f"The option {name} is {value!r}: {remedy}")


def _count(name: str, value: Any) -> int:
    if type(value) is not int or not 0 < value < 2**31:  # True is an int, too
        raise EngineError(f"The option {name} is {value!r}: write a whole number greater than 0.")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise EngineError(f"The option {name} is {value!r}: write true or false.")
    return value


_PARSERS: dict[str, Callable[[str, Any], object]] = {
    "root": _path,
    "partition": _word,
    "account": _word,
    "qos": _word,
    "constraint": _features,
    "python": _path,
    "slurm_conf": _path,
    "memory_mib_per_gpu": _count,
    "cpus_per_gpu": _count,
    "reservation": _word,
    "search_path": _search_path,
    "late_disk_s": _count,
    "drain": _flag,
    "power_saving": _flag,
}
