"""`motley submit`: a job from a file, from options, or from both."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from motley_client.answers import Job
from motley_client.client import Client
from motley_client.inert import inert
from motley_client.lookup import connect
from motley_client.spec import SpecError, command_of, gpus_of, merged, pairs_of, read_spec
from motley_client.tables import job_details
from motley_client.terminal import Output, emit, now, say, warn

DETACHED = 130
"""What a shell says of a program ended by Ctrl-C. Not 0: how the job ends is not known."""


class CommandAfterDashes(TyperCommand):
    """Keeps the words after `--` apart: without it a parser cannot tell a file from a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        dashes = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[dashes + 1 :]
        return super().parse_args(ctx, args[:dashes])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def submit(
    context: typer.Context,
    *,
    file: Annotated[
        typer.FileText | None, typer.Argument(help="A job in YAML or JSON; - reads it from a pipe.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="How many, as in 4; or a range for an elastic job, as in 1-16.")
    ] = None,
    gpu_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="One that will do; repeat it for more. Default: any.")
    ] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="The least memory of one GPU, as in 16GiB.")] = None,
    cpus_per_gpu: Annotated[int | None, typer.Option()] = None,
    memory_per_gpu: Annotated[str | None, typer.Option(help="As in 32GiB.")] = None,
    team: Annotated[str | None, typer.Option(help="Default: your only team.")] = None,
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
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit code is the job's.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o")] = Output.TABLE,
) -> None:
    """Submit a job: `motley submit job.yaml`, or `motley submit --name resnet --gpus 4 -- python train.py`."""
    options = {
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
    }
    spec = merged(read_spec(file) if file else {}, options)
    if "command" not in spec:
        raise SpecError("What should run? Give a file, or the command after --, as in: -- python train.py")
    with connect(context) as client:
        job = client.submit(spec)
        if output is Output.TABLE:
            announce(job)
        job = waited_for(client, job) if wait else job
    if output is not Output.TABLE:
        emit(output, job, names=[job["id"]], table=lambda: job_details(job, now=now()))
    raise typer.Exit(exit_code_of(job) if wait else 0)


def announce(job: Job) -> None:
    say(f"Submitted {inert(job['name'])} ({job['id']}), {job['state']}.")
    for verb, purpose in (("logs -f", "follow its output"), ("show", "see why it waits"), ("cancel", "cancel it")):
        say(f"  motley {verb:7} {job['id']}   {purpose}")


def waited_for(client: Client, job: Job) -> Job:
    """The finished job. Ctrl-C ends the waiting, and nothing else."""
    try:
        finished = client.wait(job["id"])
    except KeyboardInterrupt:
        detach(job)
        raise typer.Exit(DETACHED) from None
    warn(f"{inert(finished['name'])}: {finished['state']}. {inert(finished['message'])}".rstrip())
    return finished


def detach(job: Job) -> None:
    warn(f"\nDetached: {inert(job['name'])} goes on.")
    warn(f"  motley logs -f {job['id']}   follow it again")
    warn(f"  motley cancel  {job['id']}   cancel it")


def exit_code_of(job: Job) -> int:
    """The job's own, 1 where it has none and did not succeed."""
    return 0 if job["state"] == "succeeded" else job["exit_code"] or 1
