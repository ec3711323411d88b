"""The file and the options that describe jobs: the same for every command that takes a job."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from motley_client.completion import TeamOption, gpu_types
from motley_client.completion import jobs as known_jobs
from motley_client.spec import after_of, array_of, command_of, gpus_of, merged, pairs_of, read_specs, values_of

Specs = list[dict[str, Any]]


class CommandAfterDashes(TyperCommand):
    """Keeps the words after `--` apart: without it a parser cannot tell a file from a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[dashes + 1 :]
        return super().parse_args(ctx, args[:dashes])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


FileArgument = Annotated[typer.FileText | None, typer.Argument(help="Jobs in YAML or JSON; - reads them from a pipe.")]


def options(
    context: typer.Context,
    *,
    name: Annotated[str | None, typer.Option("--name", "-n")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="How many, as in 4; or a range for an elastic job, as in 1-16.")
    ] = None,
    gpu_type: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE", help="One that will do; repeat it for more. Default: any.", autocompletion=gpu_types
        ),
    ] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="The least memory of one GPU, as in 16GiB.")] = None,
    cpus_per_gpu: Annotated[int | None, typer.Option()] = None,
    memory_per_gpu: Annotated[str | None, typer.Option(help="As in 32GiB.")] = None,
    team: TeamOption = None,
    workdir: Annotated[str | None, typer.Option(help="A folder that the nodes share. Default: a fresh one.")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeat it for more.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeat it for more.")] = None,
    workload: Annotated[str | None, typer.Option(help="Jobs of one workload share measured rates.")] = None,
    total_steps: Annotated[int | None, typer.Option(help="Lets the scheduler know what is left.")] = None,
    weight: Annotated[float | None, typer.Option(help="The share within the team.")] = None,
    deadline: Annotated[str | None, typer.Option(help="As in 2026-12-01T12:00:00Z.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="Of running time over all attempts, as in 48h.")] = None,
    retries: Annotated[int | None, typer.Option(help="After failures; preemptions never count.")] = None,
    preemptible: Annotated[bool | None, typer.Option("--preemptible/--not-preemptible")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:end]",
            help="Start when it has succeeded, or with :end has ended; repeat it for more.",
            autocompletion=known_jobs,
        ),
    ] = None,
    array: Annotated[str | None, typer.Option(metavar="FIRST-LAST[%MOST]", help="As in 0-99, or 0-99%10.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any other field; the value is YAML.")
    ] = None,
) -> dict[str, Any]:
    """The fields of a job that the options give, and the command after `--`."""
    said = {
        "name": name,
        "command": command_of(context.meta["command"]),
        "gpus": gpus_of(gpus),
        "gpu_types": gpu_type,
        "gpu_memory": gpu_memory,
        "cpus_per_gpu": cpus_per_gpu,
        "memory_per_gpu": memory_per_gpu,
        "team": team,
        "workdir": workdir,
        "env": pairs_of("--env", env or []),
        "tags": pairs_of("--tag", tag or []),
        "workload": workload,
        "total_steps": total_steps,
        "weight": weight,
        "deadline": deadline,
        "time_limit": time_limit,
        "retries": retries,
        "preemptible": preemptible,
        "after": after_of(after or []),
        "array": array_of(array),
    }
    return values_of("--set", field or []) | {
        name: value for name, value in said.items() if value not in (None, [], {})
    }


def file_and_options(context: typer.Context, *, file: FileArgument = None, **given: Any) -> Specs:
    """Every job of the file, with what the options say; without a file the one that they describe."""
    said = options(context, **given)
    return [merged(spec, said) for spec in (read_specs(file) if file else [{}])]


def taking_jobs(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the file and the options of a job; its argument `specs` is what they describe."""
    file = Parameter("file", Parameter.KEYWORD_ONLY, default=None, annotation=FileArgument)
    return _with_options(command, "specs", file_and_options, [file])


def taking_changes(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of a job; its argument `changes` is what they say."""
    return _with_options(command, "changes", lambda context, **given: merged({}, options(context, **given)), [])


def _with_options(
    command: Callable[..., None], result: str, read: Callable[..., Any], more: list[Parameter]
) -> Callable[..., None]:
    # typer makes options of a function's parameters: one list of them, written once, becomes a part of each.
    own = signature(command, eval_str=True).parameters
    shared = [*more, *(p for p in signature(options, eval_str=True).parameters.values() if p.name != "context")]

    @wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        said = {parameter.name: given.pop(parameter.name) for parameter in shared}
        command(context, **given, **{result: read(context, **said)})

    kept = [parameter for parameter in own.values() if parameter.name != result]
    places = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ordered = sorted([*kept, *shared], key=lambda parameter: places.index(parameter.kind))
    run.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run
