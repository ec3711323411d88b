"""Fields of another system's file: those that are read are taken out, and the others are named."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from motley_client.spec import SpecError
from motley_command.units import MIB_PER

MOST_CHARACTERS = 1000
"""Without a unit these systems count in GiB."""


@dataclass(frozen=True)
class Translation:
    """Fields of a job's spec, and notes on what is not honoured, or differently."""

    spec: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    several_tasks: bool = False
    """Whether a batch script asks for more tasks than nodes."""


class Fields:
    """What is left of a mapping; `remedies` says for fields that are not honoured what there is in their place."""

    def __init__(self, document: Mapping[str, Any], remedies: Mapping[str, str], where: str = "") -> None:
        self._left = dict(document)
        self._remedies = remedies
        self._where = where

    def take(self, name: str, default: Any = None) -> Any:
        value = self.get(name, default)
        self._left.pop(name, None)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """The value, which stays among those that are left."""
        value = self._left.get(name)
        return default if value is None else value

    def within(self, name: str) -> "Fields":
        """The fields of a nested mapping."""
        value = self.take(name, {})
        if not isinstance(value, Mapping):
            raise SpecError(f"{self._where}{name}: expected a mapping, not {value!r}.")
        return Fields(value, self._remedies, f"{self._where}{name}.")

    def rest(self) -> dict[str, Any]:
        """All that is left; afterwards nothing is."""
        left, self._left = self._left, {}
        return left

    def not_honoured(self) -> list[str]:
        """A note for each field that is left."""
        return [self._note(f"{self._where}{name}") for name, value in self._left.items() if value not in (None, {}, [])]

    def _note(self, path: str) -> str:
        remedy = self._remedies.get(path)
        return f"{path} is not honoured" + (f": {remedy}" if remedy else "")


def kinds_and_count(value: Any, where: str) -> tuple[list[str], int]:
    """GPU types and their number of `A100:2`, `A100,V100:2`, `A100` or `2`."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if re.fullmatch(r"[0-9]{1,6}", text):
        return [], int(text)
    names, is_given, count = text[:MOST_CHARACTERS].partition(":")
    kinds = [kind.lower() for kind in names.split(",")]
    known = all(re.fullmatch(r"[a-z][a-z0-9_.-]*", kind) and not kind.startswith("tpu") for kind in kinds)
    if not known or not re.fullmatch(r"[0-9]{1,6}", count if is_given else "1"):
        raise SpecError(f"{where}: {value!r} is not a GPU type and a number, e.g. A100:2. Write gpus and gpu_types.")
    return kinds, int(count or 1)


def whole(value: Any, where: str, *, least: int = 1) -> int:
    """A whole number, also as a text."""
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,6}", str(value)) or int(value) < least:
        raise SpecError(f"{where}: {value!r} is not a whole number of {least} or more.")
    return int(value)


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"{where}: {value!r} is not a number.")
    return float(value)


def text_of(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{where}: expected a text, not {value!r}.")
    return value


def lines_of(value: Any, where: str) -> str:
    """The lines of a list of commands."""
    if not isinstance(value, list) or not value or not all(isinstance(line, str) for line in value):
        raise SpecError(f"{where}: expected a list of commands, each a text.")
    return "\n".join(value)


def labels_of(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise SpecError(f"{where}: expected a mapping of names to texts.")
    return {str(name): str(text) for name, text in value.items()}


def of_gpus(count: int, kinds: Iterable[str], notes: list[str]) -> dict[str, Any]:
    """The fields of a job with so many GPUs in all; Motley has no jobs without."""
    if count == 0:
        notes.append("no GPUs are requested: it gets 1")
    types = list(dict.fromkeys(kinds))
    return {"gpus": count or 1} | ({"gpu_types": types} if types else {})


def per_gpu(amount: float, gpus: int) -> int:
    return ceil(amount / max(gpus, 1))


def cpus_of(value: Any, where: str) -> int:
    """CPUs of `4`, `4+` or `4..8`: the least."""
    match = re.match(r"(?:\w+:)?(\d{1,6})(?:\.0)?(?:\+|\.\.|$)", str(value))
    if match is None:
        raise SpecError(f"{where}: {value!r} is not a number of CPUs.")
    return int(match[1])


def mib_of(value: Any, where: str) -> int:
    """MiB of `16`, `16+`, `16GB` or `16GB..`: the least, in GiB unless there is a unit."""
    match = re.match(r"(\d{1,9}(?:\.\d{1,6})?)\s*([kmgt]?)i?b?(?:\+|\.\.|$)", str(value).lower())
    if match is None:
        raise SpecError(f"{where}: {value!r} is not an amount of memory, e.g. 32GB.")
    return ceil(float(match[1]) * MIB_PER[match[2] or "g"])


def env_of(value: Any, where: str) -> tuple[dict[str, str], list[str]]:
    """Variables of a mapping or of a list of `NAME=VALUE`, and names without a value."""
    if isinstance(value, Mapping):
        given = {str(name): text for name, text in value.items()}
    elif isinstance(value, list):
        pairs = [str(one).partition("=") for one in value]
        given = {name: text if is_given else None for name, is_given, text in pairs}
    else:
        raise SpecError(f"{where}: expected a mapping, or a list of NAME=VALUE.")
    unset = [name for name, text in given.items() if text is None]
    return {name: _text(text) for name, text in given.items() if text is not None}, unset


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def image_of(name: str) -> str:
    """The whole name of an image: without a registry these systems mean Docker Hub."""
    first, has_folder, _ = name.partition("/")
    if has_folder and (first == "localhost" or re.search(r"[.:]", first)):
        return name
    return f"docker.io/{name}" if has_folder else f"docker.io/library/{name}"


NODES = "the GPUs are counted, and Motley chooses the nodes; the command starts on each of them"


def script_of(parts: Iterable[str], variables: Mapping[str, str]) -> str:
    """One script of these parts; variables of the other system that it reads are set from Motley's first."""
    text = "\n".join(part.strip("\n") for part in parts if part.strip())
    used = {name: value for name, value in variables.items() if re.search(rf"\b{name}\b", text)}
    return "\n".join([*(f'export {name}="{value}"' for name, value in used.items()), text])


def unknown_variables(text: str, prefix: str, known: Iterable[str], where: str) -> None:
    """Refuse a script that reads variables of the other system which a job would not have."""
    read = dict.fromkeys(re.findall(rf"\$\{{?({prefix}\w+)", text))
    if unknown := [name for name in read if name not in set(known)]:
        raise SpecError(f"{where}: it reads {', '.join(unknown)}, which a job would not have: write it without.")
