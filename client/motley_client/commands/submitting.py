"""New jobs: from a file, from options, or like one that there was; and what would come of them."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from motley_client.answers import Job, JobInFull, Plan
from motley_client.client import Client
from motley_client.commands.described import Specs, taking_changes, taking_jobs
from motley_client.commands.waiting import exit_code_of, wait_for_all
from motley_client.completion import JobArgument
from motley_client.inert import inert
from motley_client.lookup import connect, find_job, with_ids
from motley_client.spec import SpecError
from motley_client.tables.jobs import jobs_table, plan_table
from motley_client.terminal import Output, OutputOption, emit, now, say

FEW = 10
"""So many ids of a batch are printed for people."""

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit code is the job's.")]


@taking_jobs
def submit(
    context: typer.Context,
    *,
    specs: Specs,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As motley plan: submit nothing.")] = False,
    wait: WaitOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job: `motley submit job.yaml`, or `motley submit --name resnet --gpus 4 -- python train.py`.

    A file with several documents is submitted as a whole, or not at all.
    """
    with connect(context) as client:
        ready = _ready(client, specs)
        if dry_run:
            _show_plans(client, ready, output)
        elif len(ready) == 1:
            _follow_up(client, client.submit(ready[0]), wait=wait, output=output)
        else:
            _follow_up_batch(client, client.submit_many(ready), wait=wait, output=output)


@taking_jobs
def plan(context: typer.Context, *, specs: Specs, output: OutputOption = Output.TABLE) -> None:
    """Say where a job could run, how fast, at what cost, and whether it could start now. Submits nothing."""
    with connect(context) as client:
        _show_plans(client, _ready(client, specs), output)


@taking_changes
def clone(
    context: typer.Context,
    job: JobArgument,
    *,
    changes: dict[str, Any],
    wait: WaitOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job again, but for what the options say: `motley clone resnet --gpus 8`."""
    with connect(context) as client:
        made = client.clone(find_job(client, job)["id"], with_ids(client, changes))
        _follow_up(client, made, wait=wait, output=output)


def _ready(client: Client, specs: Specs) -> Specs:
    for spec in specs:
        if "command" not in spec:
            raise SpecError(_no_command(spec))
    return [with_ids(client, spec) for spec in specs]


def _no_command(spec: Mapping[str, Any]) -> str:
    if meant := get_close_matches("command", spec, n=1):
        return f"There is no field {meant[0]!r}: write command."
    return "What should run? Give a file that says `command: ...`, or the command after --, as in: -- python train.py"


def _show_plans(client: Client, specs: Specs, output: Output) -> None:
    plans = [client.plan(_alone(spec)) for spec in specs]
    if output is Output.TABLE:
        for made in plans:
            if len(plans) > 1:
                say(f"{inert(str(made['spec'].get('name', '')))}:")
            emit(output, made, names=[], table=lambda made=made: plan_table(made))  # type: ignore[misc]
        return
    answer = plans if len(plans) > 1 else plans[0]
    emit(output, answer, names=[name for made in plans for name in _types_of(made)], table=lambda: "")


def _alone(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Without the jobs of the same file that it waits for: they are not there yet, and change nothing in its plan."""
    after = [need for need in spec.get("after") or [] if not _is_of_the_file(need)]
    return {**{name: value for name, value in spec.items() if name != "after"}, **({"after": after} if after else {})}


def _is_of_the_file(need: Any) -> bool:
    return isinstance(need, Mapping) and str(need.get("job", "")).startswith("#")


def _types_of(plan: Plan) -> list[str]:
    """The GPU types that would do, the preferred one first."""
    return [option["gpu_type"] for option in sorted(plan["options"], key=lambda option: not option["preferred"])]


def _follow_up(client: Client, job: JobInFull, *, wait: bool, output: Output) -> None:
    """What is said of the new job, at once or once it has ended; an array is all of its members."""
    if output is Output.TABLE:
        _announce(job)
    if not wait:
        if output is not Output.TABLE:
            emit(output, job, names=[job["id"]], table=lambda: "")
        return
    members = list(client.jobs(array=job["array"], fields=("id", "name"))) if job["array"] else [job]
    ended = wait_for_all(client, members)
    if output is not Output.TABLE:
        emit(output, ended[0] if len(ended) == 1 else ended, names=[one["id"] for one in ended], table=lambda: "")
    raise typer.Exit(exit_code_of(ended))


def _follow_up_batch(client: Client, ids: list[str], *, wait: bool, output: Output) -> None:
    if output is Output.TABLE:
        _announce_batch(ids)
    elif not wait:
        emit(output, {"count": len(ids), "ids": ids}, names=ids, table=lambda: "")
    if wait:
        ended = wait_for_all(client, [client.job(one) for one in ids])
        if output is not Output.TABLE:
            emit(output, ended, names=ids, table=lambda: jobs_table(ended, now=now()))
        raise typer.Exit(exit_code_of(ended))


def _announce(job: Job) -> None:
    array = f", the first of the array {job['array']}" if job["array"] else ""
    say(f"Submitted {inert(job['name'])} ({job['id']}){array}, {job['state']}.")
    for verb, purpose in (("logs -f", "follow its output"), ("show", "see why it waits"), ("cancel", "cancel it")):
        say(f"  motley {verb:7} {job['id']}   {purpose}")


def _announce_batch(ids: list[str]) -> None:
    say(f"Submitted {len(ids):,} jobs.")
    for one in ids[:FEW]:
        say(f"  {one}")
    say(f"  and {len(ids) - FEW:,} more\n" if len(ids) > FEW else "")
    say("  motley ps   see how they do")
