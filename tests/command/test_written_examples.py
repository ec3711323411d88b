"""Commands that help texts, pages and documents show have verbs and options that `motley` has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from django.conf import settings
from typer.core import TyperGroup

from motley_command.aliases import ALIASES
from motley_command.cli import app
from simulation.__main__ import app as simulator

ROOT = Path(settings.BASE_DIR)
MOTLEY: Any = typer.main.get_command(app)
SIMULATOR: Any = typer.main.get_command(simulator)
WORDS = r"motley ([a-z][^\n`;|#<>]*)"
IN_PROSE = re.compile(rf"(?<![\w/.-]){WORDS}")
IN_CODE = re.compile(rf"(?:^|[(|;&]) *{WORDS}", re.MULTILINE)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\$\([^)]*\)")
CODE = re.compile(r"^```sh\n(.*?)^```|`(motley [^`]+)`|<code>(motley .*?)</code>", re.MULTILINE | re.DOTALL)
OF_SLURM = {"sbatch", "squeue", "scancel", "sacct", "sinfo", "scontrol", "srun", "salloc"}
"""Their options are Slurm's, and have tests of their own."""
DOCUMENTS = [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "client/README.md", *ROOT.glob("templates/**/*.html")]


def help_texts(group: Any = MOTLEY) -> Iterator[str]:
    yield group.help or ""
    yield from (getattr(option, "help", None) or "" for option in group.params)
    if isinstance(group, TyperGroup):
        for command in group.commands.values():
            yield from help_texts(command)


def shown(path: Path) -> Iterator[str]:
    """The examples of a document or page: its code, without prompts and comments."""
    for found in CODE.findall(path.read_text()):
        yield from IN_CODE.findall("".join(found).replace("\\\n", " "))


def fault(example: str) -> str:
    """What is wrong with the words after `motley`; empty: nothing."""
    command, words = MOTLEY, QUOTED.sub("", example).partition(" -- ")[0].split()
    while words and isinstance(command, TyperGroup) and re.fullmatch(r"[a-z][\w-]*", words[0]):
        verb = words.pop(0)
        if verb in OF_SLURM:
            return ""
        if (found := _command(command, verb)) is None:
            return f"no verb {verb}"
        command = found
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    named = {match[0] for word in words if (match := re.match(r"--[a-z][\w-]*", word))}
    return ", ".join(sorted(named - options))


def _command(group: TyperGroup, verb: str) -> Any | None:
    if group is MOTLEY and verb in {"simulate", "shadow"}:
        return SIMULATOR if verb == "simulate" else SIMULATOR.commands[verb]
    return group.commands.get(verb) or group.commands.get(*ALIASES.get(verb, ("",))[:1])


def test_examples_of_help_texts_have_options_that_exist() -> None:
    examples = [example for text in help_texts() for example in IN_PROSE.findall(text.replace("\n", " "))]
    assert len(examples) > 20
    assert {example: word for example in examples if (word := fault(example))} == {}


def test_examples_of_documents_and_pages_have_options_that_exist() -> None:
    faults = {f"{path.relative_to(ROOT)}: {example}": fault(example) for path in DOCUMENTS for example in shown(path)}
    assert len(faults) > 200
    assert {place: word for place, word in faults.items() if word} == {}


@pytest.mark.parametrize(
    ("example", "word"),
    [
        ("notebook --gpus 1 --type a100", "--type"),
        ("notebook --gpus 1 --gpu-type a100 -- jupyter --none", ""),
        ("resize a", "no verb resize"),
        ("team budgets x", "no verb budgets"),
        ("queue --me", ""),
        ("simulate run trace.csv --policies fifo", "--policies"),
    ],
)
def test_a_fault_is_named(example: str, word: str) -> None:
    assert fault(example) == word
