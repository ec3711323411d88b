"""The command `motley convert`: job files of other systems as Motley's YAML."""

import os
from typing import Annotated, Any

import typer
import yaml

from motley_client.spec import SpecError, documents_of
from motley_command.batch_script import Surroundings, check_variables, is_script, read_script, translated
from motley_command.commands.job_options import text_of
from motley_command.convert import FORMATS, format_of
from motley_command.convert.fields import Translation
from motley_command.terminal import now, sanitized, warn

NAMES = ", ".join(one.name for one in FORMATS)


def convert(
    file: Annotated[typer.FileText, typer.Argument(help="The file; - for standard input.")],
) -> None:
    """Write a job file of another system as Motley's YAML, on standard output; what differs is named on stderr.

    It converts a SkyPilot task, a dstack task, a Determined experiment, a sweep of W&B, and a batch script of Slurm:

    motley convert task.yaml > job.yaml
    """
    made = _translated(file.name, text_of(file))
    for note in made.notes:
        warn(sanitized(f"{file.name}: {note}."))
    typer.echo(yaml.dump(made.spec, Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=120), nl=False)


def _translated(name: str, text: str) -> Translation:
    if is_script(text):
        made = translated(script := read_script(name, text), [], Surroundings(os.environ, now()))
        check_variables(script.text, made.spec, several_tasks=made.several_tasks)
        return made
    (document, *others) = documents_of(text, name) or [None]
    kind = format_of(document)
    if kind is None:
        raise SpecError(f"{name} is neither {NAMES.replace(', ', ' nor ')} nor a batch script of Slurm.")
    if others:
        raise SpecError(f"{name} has several documents: convert each by itself.")
    return kind.translated(document)


class _Blocks(yaml.SafeDumper):
    """Writes commands of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)
