"""File argument and options that describe a job, shared by `submit`, `plan` and `clone`."""

import os
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from motley_client.spec import (
    SpecError,
    after_of,
    command_of,
    gpus_of,
    is_digest,
    merged,
    name_of,
    pairs_of,
    read_specs,
    replica_of,
    values_of,
)
from motley_command.batch_script import Script, Surroundings, check_variables, is_script, read_script, translated
from motley_command.begin_time import begin_time_of, deadline_of, times_in_words
from motley_command.completion import gpu_types, storage, teams
from motley_command.completion import jobs as known_jobs
from motley_command.configuration import default_team
from motley_command.convert import format_of
from motley_command.lookup import connect
from motley_command.terminal import now, sanitized, warn

Specs = list[dict[str, Any]]
SIZES = {"gpus", "replicas", "gpus_per_replica"}
"""Fields that say how large a job is."""


class Volunteers(StrEnum):
    """On which machines that joined a job may run."""

    NONE = "none"
    TRUSTED = "trusted"
    ANY = "any"


class CommandAfterDashes(TyperCommand):
    """Command that keeps the words after `--` apart: otherwise the parser takes the first of them for the file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[dashes + 1 :]
        return super().parse_args(ctx, args[:dashes])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


RECIPE = "recipe:"
"""Beginning of an argument that names a recipe in place of a file: `recipe:NAME`, or `recipe:NAME@VERSION`."""


class CommandWithRecipe(CommandAfterDashes):
    """Command whose file may be `recipe:NAME`; the name is kept apart, since a file is opened while it is parsed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        valued = {word for one in self.params if not getattr(one, "is_flag", True) for word in one.opts}
        for place, word in enumerate(args[:dashes]):
            if word.startswith(RECIPE) and (place == 0 or args[place - 1] not in valued):
                ctx.meta["recipe"] = word.removeprefix(RECIPE)
                return super().parse_args(ctx, [*args[:place], *args[place + 1 :]])
        return super().parse_args(ctx, args)


FileArgument = Annotated[
    typer.FileText | None,
    typer.Argument(
        help="YAML or JSON file with one or more jobs, or a batch script; - for standard input; or recipe:NAME."
    ),
]


def options(
    context: typer.Context,
    *,
    name: Annotated[
        str | None, typer.Option("--name", "-J", help="Name of the job. Default: that of its script.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Number of GPUs, e.g. 4, or a range for an elastic job, e.g. 1-16. Default: 1.")
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(help="Number of replicas of several GPUs each, in place of --gpus: e.g. 2, or 1-4."),
    ] = None,
    gpus_per_replica: Annotated[
        str | None, typer.Option(help="GPUs of each replica, e.g. 4, or by GPU type: a100=2,v100=4.")
    ] = None,
    gpu_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE", help="Acceptable GPU type; repeat for several. Default: any.", autocompletion=gpu_types
        ),
    ] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="Minimum memory of each GPU, e.g. 16GiB.")] = None,
    cpus_per_gpu: Annotated[int | None, typer.Option(help="CPU cores per GPU.")] = None,
    memory_per_gpu: Annotated[str | None, typer.Option(help="Main memory per GPU, e.g. 32GiB.")] = None,
    team: Annotated[
        str | None,
        typer.Option(
            help="Team of the job. Default: $MOTLEY_TEAM, that of motley config, or your first team.",
            autocompletion=teams,
        ),
    ] = None,
    workdir: Annotated[
        str | None, typer.Option(help="Working folder, on storage shared by all nodes. Default: a new folder.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder that is uploaded without what .gitignore and .motleyignore leave out; the job starts in it.",
        ),
    ] = None,
    mount: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORAGE",
            help="Storage that the job needs, by name; repeat for several. Its path is in MOTLEY_MOUNT_<NAME>.",
            autocompletion=storage,
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Secret that the job gets as an environment variable; repeat for several."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Image of the container in which the job runs, e.g. localhost/torch:2.5.")
    ] = None,
    volunteers: Annotated[
        Volunteers | None,
        typer.Option(help="On which machines that joined it may run. Default: those that its team allows, the most."),
    ] = None,
    setup: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Makes the job's environment in $MOTLEY_ENV_DIR before it starts, e.g. 'uv sync --frozen'.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Environment variable; repeat for several.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Tag; repeat for several.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Name of the workload: jobs with the same one share measured rates.")
    ] = None,
    total_steps: Annotated[
        int | None, typer.Option(help="Number of training steps; lets the scheduler estimate the remaining time.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of the job within its team.")] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Start the job at this time or later: now+1hour, 16:00, tomorrow, 2026-12-01T08:00."
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time by which the job should finish: now+3hours, 16:00, 2026-12-01T12:00."),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Maximum running time over all attempts, e.g. 48h or 2:00:00.")
    ] = None,
    idle_limit: Annotated[
        str | None,
        typer.Option(
            help="Stop the job after this time without a session (exec, port) in use, e.g. 1h: for notebooks."
        ),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="Maximum number of restarts after failures; preemptions do not count.")
    ] = None,
    preemptible: Annotated[
        bool | None,
        typer.Option(
            "--preemptible/--not-preemptible", help="Whether a running job may be stopped in favour of others."
        ),
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:end]",
            help="Start after this job has succeeded, or with :end after it has finished; repeat for several.",
            autocompletion=known_jobs,
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option(
            metavar="INDICES",
            help="Submit one job per index: 0-99, 0-99%10 for at most ten at a time, 1,3,5 or 0-20:5.",
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Any other field of the job; the value is YAML."),
    ] = None,
) -> dict[str, Any]:
    """The fields of a job that are given by options, and the command after `--`."""
    fields = {
        "name": name,
        "command": command_of(context.meta["command"]),
        "gpus": gpus_of(gpus),
        "replicas": gpus_of(replicas, "--replicas"),
        "gpus_per_replica": replica_of(gpus_per_replica),
        "gpu_types": gpu_type,
        "gpu_memory": gpu_memory,
        "cpus_per_gpu": cpus_per_gpu,
        "memory_per_gpu": memory_per_gpu,
        "team": team,
        "workdir": workdir,
        "image": image,
        "volunteers": volunteers.value if volunteers is not None else None,
        "setup": setup,
        "code": str(Path(code).resolve()) if code else None,
        "secrets": secret,
        "mounts": mount,
        "env": pairs_of("--env", env or []),
        "tags": pairs_of("--tag", tag or []),
        "workload": workload,
        "total_steps": total_steps,
        "weight": weight,
        "begin_time": begin_time_of(begin, now()),
        "deadline": deadline_of(deadline, now()),
        "time_limit": time_limit,
        "idle_limit": idle_limit,
        "retries": retries,
        "preemptible": preemptible,
        "after": after_of(after or []),
        "array": array,
    }
    return values_of("--set", field or []) | {
        name: value for name, value in fields.items() if value not in (None, [], {})
    }


def specs_of(context: typer.Context, *, file: FileArgument = None, **given: Any) -> Specs:
    """The jobs, each of the default team unless it names one; of a recipe what is given in place of its fields."""
    if "recipe" in context.meta:
        return [_changes_of_recipe(context, file, given)]
    team = default_team()
    return [{"team": team, **spec} if team else spec for spec in _specs_of(context, file, given)]


def _changes_of_recipe(context: typer.Context, file: FileArgument, given: dict[str, Any]) -> dict[str, Any]:
    """Fields in place of the recipe's. Which `--set` are parameters is known later: they are kept apart."""
    if file is not None:
        raise SpecError(f"{file.name}: give a file or recipe:{context.meta['recipe']}, not both.")
    context.meta["set"] = pairs_of("--set", given.pop("field", None) or [])
    return merged({}, options(context, **given))


def _specs_of(context: typer.Context, file: FileArgument, given: dict[str, Any]) -> Specs:
    """Every job of the file, each with the options applied; without a file, the one job that the options describe."""
    fields = options(context, **given)
    if wrapped := context.meta.get("wrap"):
        return [_of_script(context, read_script("wrap", f"#!/bin/sh\n{wrapped}\n"), fields)]
    if file is None:
        return [_with_defaults(fields)]
    text = text_of(file)
    if is_script(text):
        return [_of_script(context, read_script(file.name, text), fields)]
    if "sbatch" in context.meta:
        raise SpecError(f"{file.name} is no batch script: its first line must begin with #!. For YAML: motley submit.")
    specs = read_specs(text, file.name)
    if any({"method", "parameters", "command"} <= spec.keys() for spec in specs):
        raise SpecError(f"{file.name} describes a sweep: motley sweep start {file.name}.")
    if kind := next(filter(None, map(format_of, specs)), None):
        raise SpecError(f"{file.name} is {kind.name}: `motley convert {file.name}` writes it as a job of Motley.")
    return [merged(_with_whole_path(times_in_words(spec, now()), file.name), fields) for spec in specs]


def text_of(file: TextIO) -> str:
    """The text of the file, which must be UTF-8."""
    try:
        return file.read()
    except UnicodeDecodeError as error:
        raise SpecError(f"{file.name} is not a text in UTF-8.") from error


def _with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """One GPU, and the name of the script, unless they are given."""
    size = {} if fields.keys() & SIZES else {"gpus": 1}
    name = {"name": name_of(fields["command"])} if "command" in fields else {}
    return size | name | fields


def _of_script(context: typer.Context, script: Script, fields: dict[str, Any]) -> dict[str, Any]:
    """The job of a batch script; on stderr, what of its options is not honoured. Words after `--` are its arguments."""
    words = fields.pop("command", [])
    at = Surroundings(os.environ, now(), partial(_known_types, context))
    script = replace(script, options=script.options | context.meta.get("sbatch", {}))
    made = translated(script, [words] if isinstance(words, str) else words, at)
    for note in made.notes:
        warn(sanitized(f"{script.name}: {note}."))
    if not {*made.spec, *fields} & {"workdir", "code"}:
        warn(f"{script.name}: it starts in a new folder; to start in this one: --workdir DIR, or --code DIR.")
    left_out = {"gpus"} if fields.keys() & SIZES else set()
    spec = merged({name: value for name, value in made.spec.items() if name not in left_out}, fields)
    check_variables(script.text, spec, several_tasks=made.several_tasks)
    return spec


def _known_types(context: typer.Context) -> set[str]:
    with connect(context) as client:
        return {one["name"] for one in client.gpu_types()}


def _with_whole_path(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """The spec with the folder in `code`, which is relative to that of the file, as an absolute path."""
    code = spec.get("code")
    if not isinstance(code, str) or not code or is_digest(code):
        return spec
    if "\\" in code:
        raise SpecError(f"{name}: code: {code}: paths are written with /, on every system.")
    return {**spec, "code": str((Path(name).parent if Path(name).is_file() else Path()).joinpath(code).resolve())}


def takes_specs(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the file argument and the job options; its parameter `specs` receives the jobs."""
    file = Parameter("file", Parameter.KEYWORD_ONLY, default=None, annotation=FileArgument)
    return _with_options(command, "specs", specs_of, [file])


def takes_changes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the job options; its parameter `changes` receives the fields that are set."""
    return _with_options(command, "changes", lambda context, **given: merged({}, options(context, **given)), [])


def _with_options(
    command: Callable[..., None], result: str, read: Callable[..., Any], more: list[Parameter]
) -> Callable[..., None]:
    # typer reads options from a function's signature alone and has no shared groups of options, so the signature is
    # put together here. The simulator does the same for a dataclass; neither package may import the other.
    own = signature(command, eval_str=True).parameters
    shared = [*more, *(p for p in signature(options, eval_str=True).parameters.values() if p.name != "context")]

    @wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        values = {parameter.name: given.pop(parameter.name) for parameter in shared}
        command(context, **given, **{result: read(context, **values)})

    kept = [parameter for parameter in own.values() if parameter.name != result]
    places = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ordered = sorted([*kept, *shared], key=lambda parameter: places.index(parameter.kind))
    run.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run
