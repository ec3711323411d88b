"""Parsing of job files and of job options into job specs. Validation is the service's."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from motley_client.plain_yaml import UnreadableYaml, read_yaml


class SpecError(Exception):
    """A file or an option cannot be parsed."""


def read_specs(text: str, name: str) -> list[dict[str, Any]]:
    """The jobs of a YAML or JSON file: one per document, or a list under `jobs`."""
    documents = documents_of(text, name)
    jobs = [job for document in documents for job in _jobs_in(document)]
    if not jobs or not all(isinstance(job, dict) for job in jobs):
        raise SpecError(f"{name} does not describe a job: it needs fields such as `name: ...` and `command: ...`.")
    return jobs


def documents_of(text: str, name: str) -> list[Any]:
    """The documents of a YAML or JSON file that are not empty."""
    try:
        return [document for document in read_yaml(text) if document is not None]
    except UnreadableYaml as error:
        raise SpecError(f"{name} is not valid YAML: {error}") from error


def _jobs_in(document: Any) -> list[Any]:
    """The jobs of a document. Keys that begin with `x-` have anchors for others to refer to, and are left out."""
    if not isinstance(document, dict):
        return [document]
    fields = {name: value for name, value in document.items() if not str(name).startswith("x-")}
    several = fields.keys() == {"jobs"} and isinstance(fields["jobs"], list)
    return list(fields["jobs"]) if several else [fields]


def merged(spec: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with options applied: `env` and `tags` are merged, other fields replaced."""
    given = {name: value for name, value in options.items() if value not in (None, [], {})}
    both = [name for name in ("env", "tags") if name in given and isinstance(spec.get(name), dict)]
    joined: dict[str, Any] = {name: spec[name] | given[name] for name in both}
    return {**spec, **given, **joined}


def command_of(words: Sequence[str]) -> str | list[str] | None:
    """The words after `--`: one word is a shell command line (`-- "a && b"`), several are executed directly."""
    if not words:
        return None
    return words[0] if len(words) == 1 else list(words)


MOST_PARSED = 10_000
"""Characters of a command in which its name is looked for: shlex takes quadratic time for a long word."""
LAUNCHERS = {"env", "python", "python3", "torchrun", "accelerate", "launch", "bash", "sh", "nohup", "time", "uv", "run"}
"""Words before the program that a command is about."""


def name_of(command: str | Sequence[str]) -> str:
    """Default name of a job: that of its script or module, or else of its first program."""
    every = _words(command) if isinstance(command, str) else map(str, command)  # what is no word the service refuses
    words = [word for word in every if "=" not in word.split("/")[0]]
    scripts = (word for word in words if re.search(r"\.(py|sh|R|jl)\Z", word))
    modules = (after.rsplit(".", 1)[-1] for word, after in pairwise(words) if word == "-m")
    programs = (word for word in words if word not in LAUNCHERS and not word.startswith("-"))
    found = next(chain(scripts, modules, programs), None) or next(iter(words), "job")
    plain = re.sub(r"[^\w.+@%-]", "", re.sub(r"\.(py|sh|R|jl)\Z", "", found.rstrip("/").rsplit("/", 1)[-1]))
    return plain[:100] or "job"


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line[:MOST_PARSED])
    except ValueError:  # an unbalanced quote, which the shell will report, or one that closes later
        return line.split()


def is_digest(code: str) -> bool:
    """Whether `code` names an archive that was uploaded, not a folder."""
    return re.fullmatch(r"[0-9a-f]{64}", code) is not None


def gpus_of(text: str | None, option: str = "--gpus") -> int | dict[str, int] | None:
    """GPU count of `--gpus`, or number of `--replicas`: `4`, or `1-16` for an elastic job."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise SpecError(f"{option} {text}: expected a number, e.g. 4, or a range, e.g. 1-16.")
    minimum, maximum = match.groups()
    return int(minimum) if maximum is None else {"min": int(minimum), "max": int(maximum)}


def replica_of(text: str | None) -> int | dict[str, int] | None:
    """GPUs of a replica of `--gpus-per-replica`: `4`, or `a100=2,v100=4` by GPU type."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and is_given and gpus.isdecimal() for name, is_given, gpus in pairs):
        raise SpecError(
            f"--gpus-per-replica {text}: expected a number, e.g. 4, or one by GPU type, e.g. a100=2,v100=4."
        )
    return {name: int(gpus) for name, _, gpus in pairs}


def pairs_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping."""
    for text in texts:
        if not re.match(r"[^=]+=", text):
            raise SpecError(f"{option} {text}: expected NAME=VALUE.")
    pairs = [(name, value) for name, _, value in (text.partition("=") for text in texts)]
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise SpecError(f"{option} {name} is given {count} times: give it once.")
    return dict(pairs)


def values_of(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """`FIELD=VALUE` texts as a mapping, each value parsed as YAML: `checkpoint={grace_seconds: 120}`."""
    return {name: value_of(f"{option} {name}", text) for name, text in pairs_of(option, texts).items()}


def numbers_of(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Like `values_of`, but numbers may also be in scientific notation: `1e+09`."""
    values = values_of(option, texts)
    return {name: float(value) if _is_number(value) else value for name, value in values.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value) is not None


def value_of(option: str, text: str) -> Any:
    try:
        documents = read_yaml(text)
    except UnreadableYaml as error:
        raise SpecError(f"{option}={text[:80]}: the value is not valid YAML: {error}") from error
    return documents[0] if documents else None


def after_of(texts: Sequence[str]) -> list[dict[str, str]]:
    """Dependencies of `--after`: `JOB` must have succeeded, `JOB:end` must have finished."""
    pairs = [re.fullmatch(r"(.+?)(?::(success|end))?", text, re.DOTALL) for text in texts]
    return [{"job": pair[1], "on": pair[2] or "success"} for pair in pairs if pair]
