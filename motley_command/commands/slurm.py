"""Slurm's commands with its own options, for hands that know them: squeue, scancel, sacct, sinfo, scontrol."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

import typer

from motley_client.client import Client
from motley_client.responses import ACTIVE_STATES, Job
from motley_client.spec import SpecError
from motley_command.begin_time import since_of
from motley_command.commands import cluster
from motley_command.commands.jobs import apply_to_each, cancel, hold, release, requeue, show, state_named
from motley_command.lookup import connect, find_jobs
from motley_command.tables.job_columns import chosen_columns, columns_of, rows_of
from motley_command.tables.jobs import jobs_table
from motley_command.terminal import console, now, sanitized

PLAIN = ("id", "name", "team", "state", "gpus", "age", "reason")
"""Columns of squeue without headings."""
ACCOUNTED = "JobID,JobName,Account,State,AllocTRES,Submit,Start,End,Elapsed,ExitCode"
"""Columns of sacct unless it is told others."""
INSTEAD = {
    "srun": "motley submit --wait -- COMMAND runs it as a job and waits; motley exec JOB -- COMMAND runs it in one",
    "salloc": "motley submit -- sleep infinity is a job to work in: motley exec JOB -- bash, motley port JOB 8888",
}
VERBS = {"hold": hold, "release": release, "requeue": requeue}

UserOption = Annotated[str | None, typer.Option("-u", "--user", help="Jobs of this user.")]
MineOption = Annotated[bool, typer.Option("--me", help="Your own jobs.")]
JobsOption = Annotated[str | None, typer.Option("-j", "--jobs", "--job", help="These jobs, with commas.")]
StatesOption = Annotated[str | None, typer.Option("-t", "--states", "--state", help="In these states, with commas.")]
NameOption = Annotated[str | None, typer.Option("-n", "--name", "--jobname", help="With this name.")]
AccountOption = Annotated[str | None, typer.Option("-A", "--account", "--accounts", help="Of this team.")]


def squeue(
    context: typer.Context,
    *,
    user: UserOption = None,
    mine: MineOption = False,
    jobs: JobsOption = None,
    states: StatesOption = None,
    name: NameOption = None,
    account: AccountOption = None,
    no_header: Annotated[bool, typer.Option("-h", "--noheader")] = False,
    form: Annotated[str | None, typer.Option("-o", "--format", help="Letters of squeue, e.g. '%i %j %T'.")] = None,
    start: Annotated[bool, typer.Option("--start", help="When they start: the column FORECAST, shown anyway.")] = False,
    long: Annotated[bool, typer.Option("-l", "--long")] = False,
) -> None:
    """List jobs as squeue does. The same with more options: motley ps"""
    columns = columns_of(form) if form else [*PLAIN] if no_header else []
    with connect(context) as client:
        found = list(_selected(client, jobs, _filters(client, Wanted(user, mine, states, name, account))))
    if columns:
        console().print(chosen_columns(found, columns, now=now(), headings=not no_header))
    else:
        console().print(jobs_table(found, now=now()))


def scancel(
    context: typer.Context,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...")] = None,
    *,
    user: UserOption = None,
    mine: MineOption = False,
    states: StatesOption = None,
    name: NameOption = None,
    account: AccountOption = None,
) -> None:
    """Cancel jobs by id, name, user, state or team. The same by name or id: motley cancel"""
    if jobs:
        cancel(context, jobs)
    if not (user or mine or states or name or account):
        raise SpecError("scancel: name jobs, or --me, --user, --name, --state or --account.")
    with connect(context) as client:
        found = list(_selected(client, None, _filters(client, Wanted(user, mine, states, name, account))))
    apply_to_each(context, [job["id"] for job in found], Client.cancel)


def sacct(
    context: typer.Context,
    *,
    user: UserOption = None,
    jobs: JobsOption = None,
    states: Annotated[str | None, typer.Option("-s", "--state", help="In these states, with commas.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="With this name.")] = None,
    account: AccountOption = None,
    since: Annotated[str | None, typer.Option("-S", "--starttime", help="Submitted since.")] = None,
    no_header: Annotated[bool, typer.Option("-n", "--noheader")] = False,
    form: Annotated[str, typer.Option("-o", "--format", help="Columns by sacct's names.")] = ACCOUNTED,
    parsable: Annotated[bool, typer.Option("-P", "--parsable2", help="With | between columns.")] = False,
    allocations: Annotated[bool, typer.Option("-X", "--allocations", help="Jobs have no steps: always so.")] = False,
) -> None:
    """List jobs that ran, as sacct does; yours unless a user is named. The same with more options: motley ps --all"""
    columns = columns_of(form)
    with connect(context) as client:
        wanted = _filters(client, Wanted(user, user is None, states or "all", name, account))
        found = list(_selected(client, jobs, wanted | {"created_after": since_of(since, now())}))
    if not parsable:
        console().print(chosen_columns(found, columns, now=now(), headings=not no_header))
        return
    lines = [] if no_header else ["|".join(form.split(","))]
    for row in [*lines, *("|".join(map(str, row)) for row in rows_of(found, columns, now()))]:
        typer.echo(sanitized(row))


def sinfo(
    context: typer.Context,
    *,
    by_node: Annotated[bool, typer.Option("-N", "--Node", help="A line a node: always so.")] = False,
    long: Annotated[bool, typer.Option("-l", "--long")] = False,
) -> None:
    """List nodes as sinfo -N does. The same with more options: motley nodes"""
    cluster.nodes(context)


def scontrol(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="show job ID | show node NAME | hold|release|requeue ID...")],
) -> None:
    """Show or change a job or a node by scontrol's words. The same: motley show, nodes, hold, release, requeue"""
    match words:
        case ["show", "job" | "jobs", job]:
            show(context, job)
        case ["show", "node" | "nodes", *names]:
            cluster.nodes(context, names)
        case ["hold" | "release" | "requeue" as verb, *jobs] if jobs:
            VERBS[verb](context, [job for text in jobs for job in text.split(",")])
        case ["update", *_]:
            raise SpecError("scontrol update: motley change JOB changes a job, motley drain NODE takes out a node.")
        case _:
            raise SpecError("scontrol: show job ID, show node NAME, hold, release and requeue are known here.")


def instead(context: typer.Context) -> None:
    """Say what there is in place of srun and salloc, which need a terminal on the node."""
    raise SpecError(f"Motley has no {context.info_name}: {INSTEAD[str(context.info_name)]}.")


class Wanted(NamedTuple):
    """Which jobs, by the options that these commands share."""

    user: str | None
    mine: bool
    states: str | None
    name: str | None
    account: str | None


def _filters(client: Client, wanted: Wanted) -> dict[str, Any]:
    owner = client.me()["username"] if wanted.mine or wanted.user == "me" else wanted.user
    return {"state": list(_states(wanted.states)), "owner": owner, "team": wanted.account, "name": wanted.name}


def _states(text: str | None) -> Iterable[str]:
    if text is None:
        return ACTIVE_STATES
    return () if text == "all" else map(state_named, text.split(","))


def _selected(client: Client, jobs: str | None, wanted: dict[str, Any]) -> Iterator[Job]:
    if jobs:
        yield from _named(client, jobs.split(","))
    else:
        yield from client.jobs(**wanted, page_size=200)


def _named(client: Client, typed: Iterable[str]) -> Iterator[Job]:
    for one in typed:
        yield from find_jobs(client, one)
