"""Commands about jobs: list, show, explain, change, comment, cancel, hold, release, requeue."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated, Any, NoReturn

import typer

from motley_client.client import Client
from motley_client.errors import AuthError, Conflict, NotFound
from motley_client.responses import ACTIVE_STATES, FINAL_STATES, Array, Job, JobDetail, JobGpus, QueueForecast, State
from motley_client.spec import SpecError, gpus_of, merged, pairs_of
from motley_command.begin_time import SINCE, begin_time_of, deadline_of, since_of
from motley_command.completion import (
    JobArgument,
    JobArguments,
    TeamOption,
    complete_from,
    gpu_types,
    recipes,
    recurring_jobs,
)
from motley_command.exit_codes import EXPECTED, report_error
from motley_command.lookup import array_named, connect, find_job, find_jobs
from motley_command.tables.job_columns import COLUMNS, chosen_columns, columns_of
from motley_command.tables.jobs import (
    attempts_table,
    display_name,
    events_table,
    explanation,
    graph_table,
    job_details,
    jobs_table,
    metrics_table,
)
from motley_command.tables.receipt import receipt_tables
from motley_command.terminal import Output, OutputOption, WatchOption, emit, now, present, sanitized, say, warn

Action = Callable[[Client, str], JobDetail]
"""What a command does to one job by its id: `Client.cancel` and others."""
_PAIRS = (
    "pending=queued pd=queued configuring=starting cf=starting r=running completing=stopping cg=stopping "
    "completed=succeeded cd=succeeded f=failed timeout=timed_out to=timed_out ca=cancelled canceled=cancelled"
)
SLURM_STATES = dict(pair.split("=") for pair in _PAIRS.split())
MOST_TASKS = 200
"""Tasks of an array that are shown, the last ones."""
TRIES = 10
"""A running job changes with every progress report, so that a conditional update may fail several times."""


def ps(
    context: typer.Context,
    search: Annotated[str | None, typer.Argument(help="Beginnings of names or ids, or tags as NAME=VALUE.")] = None,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(
            *("--state", "-t"),
            metavar="STATE",
            help="Only jobs in this state; repeat for several.",
            autocompletion=complete_from(State),
        ),
    ] = None,
    all_states: Annotated[bool, typer.Option("--all", "-a", help="Include finished jobs.")] = False,
    team: TeamOption = None,
    owner: Annotated[str | None, typer.Option("--owner", "-u", help="Only jobs of this user; me: your own.")] = None,
    mine: Annotated[bool, typer.Option("--me", help="Only your own jobs.")] = False,
    gpu_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Only jobs that run on this GPU type.", autocompletion=gpu_types)
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=VALUE]", help="Only jobs with this tag; repeat for several.")
    ] = None,
    command: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only jobs with this text in their command, of the newest ones.")
    ] = None,
    array: Annotated[
        str | None, typer.Option(metavar="ARRAY", help="Only tasks of this array, by its id or name.")
    ] = None,
    recurring: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only runs of this recurring job.", autocompletion=recurring_jobs),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only jobs submitted by this recipe.", autocompletion=recipes)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help=f"Only jobs submitted since, e.g. {SINCE}; without a zone in the zone of this machine."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 50,
    watch: WatchOption = False,
    headings: Annotated[bool, typer.Option("--headings/--no-headings", help="Headings of a table of COLUMNS.")] = True,
    output: Annotated[
        str,
        typer.Option(
            *("--output", "-o"),
            metavar="FORMAT|COLUMNS",
            help="table, json, yaml, name (ids only), or columns: id,name,state.",
            autocompletion=complete_from([*Output, *COLUMNS]),
        ),
    ] = Output.TABLE,
) -> None:
    """List jobs, newest first. Finished jobs are listed with --all or --state.

    Columns are given by name, or as in squeue's format ("%i %j %T"); an unknown one is answered with all names.
    """
    columns = [] if output in list(Output) else columns_of(output)
    wanted: dict[str, Any] = {
        "state": [state_named(text) for text in state or []] or ([] if all_states else ACTIVE_STATES),
        "q": search,
        "command": command,
        "team": team,
        "gpu_type": gpu_type,
        "tag": tag or [],
        "recurring": recurring,
        "recipe": recipe,
        "created_after": since_of(since, now()),
        "page_size": min(limit + 1, 200),
    }
    with connect(context) as client:
        wanted["array"] = array = array and (array_named(client, array) or array)
        wanted["owner"] = client.me()["username"] if mine or owner == "me" else owner
        present(
            lambda: _newest(client, wanted, limit, quiet=watch),
            output=Output.TABLE if columns else Output(output),
            watch=watch,
            names=lambda jobs: [job["id"] for job in jobs],
            table=lambda jobs: (
                chosen_columns(jobs, columns, now=now(), headings=headings)
                if columns
                else jobs_table(jobs, now=now(), array=_array_of(client, array))
            ),
        )


def _check_names(client: Client, team: str | None, gpu_type: str | None) -> None:
    """Refuse names that nothing has, where no job is found: an empty list would say that these have none."""
    if team is not None and team not in (known := [one["name"] for one in client.teams()]):
        raise SpecError(f"--team {team}: there is no such team. Teams: {', '.join(known)}.")
    if gpu_type is not None and gpu_type not in (known := [one["name"] for one in client.gpu_types()]):
        raise SpecError(f"--gpu-type {gpu_type}: there is no such GPU type. Types: {', '.join(known)}.")


def state_named(text: str) -> State:
    """State by its name here, or by Slurm's name or letters for it."""
    name = text.strip().lower().replace("-", "_")
    name = SLURM_STATES.get(name, name)
    if name not in list(State):
        raise SpecError(f"--state {text}: there is no such state. States: {', '.join(State)}.")
    return State(name)


def _array_of(client: Client, array: str | None) -> Array | None:
    """Progress of the array; None where there is none, or its jobs are in the archive."""
    try:
        return client.array(array) if array else None
    except (AuthError, NotFound):  # a job's own token has no access
        return None


def show(
    context: typer.Context, job: JobArgument, *, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """Show one job: state, reasons for waiting, progress and attempts. Of an array, its tasks."""
    with connect(context) as client:
        tasks = find_jobs(client, job)
        if len(tasks) > 1:
            _show_array(client, tasks[0], watch=watch, output=output)
            return
        found = tasks[0]["id"]
        present(
            lambda: client.job(found),
            output=output,
            watch=watch,
            names=lambda job: [job["id"]],
            table=lambda job: job_details(
                job,
                now=now(),
                array=_array_of(client, job["array"]),
                watched=_gpus_of(client, job),
                coming=_forecast_of(client, job),
            ),
        )


def _show_array(client: Client, task: Job, *, watch: bool, output: Output) -> None:
    array = task["array"]
    present(
        lambda: list(islice(client.jobs(array=array, page_size=200), MOST_TASKS)),
        output=output,
        watch=watch,
        names=lambda jobs: [job["id"] for job in jobs],
        table=lambda jobs: jobs_table(jobs, now=now(), array=_array_of(client, array)),
    )


def _forecast_of(client: Client, job: JobDetail) -> QueueForecast | None:
    """When it starts and ends; None: there is no forecast, or the service is older than the command."""
    try:
        return client.job_forecast(job["id"])["forecast"] if job["state"] in ACTIVE_STATES else None
    except (AuthError, NotFound):
        return None


def _gpus_of(client: Client, job: JobDetail) -> JobGpus | None:
    """What was read of its GPUs; None: nothing, or it is in the archive, or the service is older than the command."""
    try:
        found = client.job_gpus(job["id"]) if job["attempts"] else None
    except (AuthError, NotFound):  # a job's own token has no access
        return None
    return found if found and found["gpus"] else None


def explain(
    context: typer.Context,
    job: JobArgument,
    *,
    would_start: Annotated[
        bool,
        typer.Option(
            "--would-start",
            help="Also list changes that would start it now: fewer GPUs, another GPU type, more weight.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Explain why a job waits. Also shows the rate that the scheduler assumes on each GPU type."""
    with connect(context) as client:
        found = find_job(client, job)
        answer = client.explain(found["id"], would_start=would_start)
    emit(output, answer, names=[found["id"]], table=lambda: explanation(found, answer, now=now()))


def events(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the events of a job and who caused them."""
    with connect(context) as client:
        found = list(client.events(find_job(client, job)["id"]))
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: events_table(found, now=now()))


def attempts(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the attempts of a job. Shows the GPUs of each attempt, how long it ran and how it ended."""
    with connect(context) as client:
        found = list(client.attempts(find_job(client, job)["id"]))
    emit(output, found, names=[str(one["number"]) for one in found], table=lambda: attempts_table(found, now=now()))


def metrics(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the named metrics of a job as it reported them last; -o json has all points of its curves."""
    with connect(context) as client:
        found = client.curve(find_job(client, job)["id"])
    emit(output, found, names=list(found["last"]), table=lambda: metrics_table(found))


def receipt(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Show what a job took: GPU-hours and cost by GPU type, energy, CO2, and which GPUs it should have requested."""
    with connect(context) as client:
        found = client.receipt(find_job(client, job)["id"])
    names = [one["gpu_type"] for one in found["lines"]]
    emit(output, found, names=names, table=lambda: receipt_tables(found))


def graph(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the jobs that wait for each other around a job, when all are expected to have ended, and what decides that.

    Jobs that make all of it later if they are later, the critical path, are marked with *.
    """
    with connect(context) as client:
        found = client.graph(find_job(client, job)["id"])
    emit(output, found, names=[one["id"] for one in found["jobs"]], table=lambda: graph_table(found, now=now()))


def change(
    context: typer.Context,
    job: JobArgument,
    *,
    name: Annotated[str | None, typer.Option("--name", "-n", help="New name.")] = None,
    weight: Annotated[float | None, typer.Option(help="New weight within the team.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set this tag, keep the others; repeat for several.")
    ] = None,
    untag: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove this tag; repeat for several.")
    ] = None,
    time_limit: Annotated[str | None, typer.Option(help="New time limit, e.g. 48h; none removes it.")] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="New begin time of a job that waits, e.g. now+1hour or 16:00; now or none removes it."
        ),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="New deadline, e.g. now+3hours or 16:00; none removes it.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="Maximum number of restarts after failures.")] = None,
    gpus: Annotated[str | None, typer.Option(metavar="N", help="GPUs of a job that waits, e.g. 4, or 1-8.")] = None,
    gpu_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="GPU types of a job that waits; repeat for several; any: all types."),
    ] = None,
    command: Annotated[str | None, typer.Option(metavar="TEXT", help="Command line of a job that waits.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set this variable of a job that waits, keep the others."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a job. Of a finished job only the name and the tags, of a job that waits also what it requests."""
    fields = merged({}, {"name": name, "weight": weight, "retries": retries, "gpus": gpus_of(gpus)})
    fields |= {} if command is None else {"command": command}
    fields |= {} if not gpu_type else {"gpu_types": [] if gpu_type == ["any"] else gpu_type}
    fields |= {} if time_limit is None else {"time_limit": None if time_limit == "none" else time_limit}
    fields |= {} if deadline is None else {"deadline": deadline_of(None if deadline == "none" else deadline, now())}
    fields |= {} if begin is None else {"begin_time": begin_time_of(None if begin == "none" else begin, now())}
    tags = pairs_of("--tag", tag or [])
    variables = pairs_of("--env", env or [])
    if not (fields or tags or untag or variables):
        raise SpecError("Nothing to change: give at least one option, e.g. --weight 2.")
    with connect(context) as client:
        found = find_job(client, job)
        if variables:
            fields["env"] = client.job(found["id"])["spec"].get("env", {}) | variables
        changed = _change(client, found["id"], fields, tags, set(untag or []))
    if output is Output.TABLE:
        say("Changed.")
    emit(output, changed, names=[changed["id"]], table=lambda: job_details(changed, now=now()))


def comment(
    context: typer.Context,
    job: JobArgument,
    text: Annotated[str | None, typer.Argument(help="At most 500 characters.")] = None,
    *,
    delete: Annotated[
        int | None, typer.Option(metavar="ID", help="Delete this comment instead: its id in motley events -o json.")
    ] = None,
) -> None:
    """Comment on a job, finished or not. Its page and `motley events` show the comment."""
    if (text is None) is (delete is None):
        raise SpecError("Give the text of a comment, or --delete with the id of one.")
    with connect(context) as client:
        job_id = find_job(client, job)["id"]
        if delete is None:
            client.comment(job_id, text or "")
        else:
            _delete_comment(client, job_id, delete)
    say("Commented." if delete is None else "Deleted.")


def _delete_comment(client: Client, job: str, comment: int) -> None:
    try:
        client.delete_comment(job, comment)
    except NotFound as error:
        words = f"The job has no comment {comment}: motley events {job} -o json shows the ids of its comments."
        raise NotFound(words) from error


def cancel(context: typer.Context, jobs: JobArguments) -> None:
    """Cancel jobs, of an array all tasks. A running job has its grace period to save its work; then it is killed."""
    apply_to_each(context, jobs, Client.cancel)


def hold(context: typer.Context, jobs: JobArguments) -> None:
    """Keep jobs, of an array all tasks, in the queue. Running jobs are first requeued gracefully."""
    apply_to_each(context, jobs, Client.hold)


def release(context: typer.Context, jobs: JobArguments) -> None:
    """Let held jobs be scheduled again."""
    apply_to_each(context, jobs, Client.release)


def requeue(context: typer.Context, jobs: JobArguments) -> None:
    """Stop running jobs gracefully and put them back in the queue."""
    apply_to_each(context, jobs, Client.requeue)


def _newest(client: Client, wanted: dict[str, Any], limit: int, *, quiet: bool) -> list[Job]:
    found = list(islice(client.jobs(**wanted), limit + 1))
    if not found:
        _check_names(client, wanted.get("team"), wanted.get("gpu_type"))
    if len(found) > limit and not quiet:
        warn(f"Only the newest {limit} jobs are shown; --limit shows more.")
    return found[:limit]


def _change(client: Client, job_id: str, fields: dict[str, Any], tags: dict[str, str], untag: set[str]) -> JobDetail:
    """Change a job. The service replaces tags as a whole: read them, merge, write conditionally, retry on conflict."""
    if not (tags or untag):
        return client.change(job_id, fields)
    for _ in range(TRIES - 1):
        try:
            return _retag(client, job_id, fields, tags, untag)
        except Conflict as error:
            if error.code != "stale":
                raise
    return _retag(client, job_id, fields, tags, untag)


def _retag(client: Client, job_id: str, fields: dict[str, Any], tags: dict[str, str], untag: set[str]) -> JobDetail:
    job = client.job(job_id)
    kept = {name: value for name, value in job["spec"].get("tags", {}).items() if name not in untag}
    return client.change(job_id, fields | {"tags": kept | tags}, if_match=job["etag"])


def apply_to_each(context: typer.Context, jobs: Sequence[str], action: Action) -> NoReturn:
    """Do it to each job, and exit with the first exit code that is not 0."""
    with connect(context) as client:
        codes = [_apply(client, typed, action) for typed in jobs]
    raise typer.Exit(next(filter(None, codes), 0))


def _apply(client: Client, typed: str, action: Action) -> int:
    """Do it to the job, or to every task of the array that has not finished."""
    try:
        found = find_jobs(client, typed)
    except EXPECTED as error:
        return report_error(error)
    unfinished = [job for job in found if job["state"] not in FINAL_STATES]
    if len(found) > 1 and action is Client.release:
        unfinished = [job for job in unfinished if job["held"]]
        if not unfinished:
            say(f"{sanitized(found[0]['name'])}: none of its tasks is held.")
            return 0
    codes = [_apply_to(client, job, action) for job in unfinished or found[:1]]
    return next(filter(None, codes), 0)


def _apply_to(client: Client, job: Job, action: Action) -> int:
    try:
        done = action(client, job["id"])
    except EXPECTED as error:
        return report_error(error)
    say(f"{sanitized(display_name(done))} ({done['id']}): {'held' if done['held'] else done['state']}")
    return 0
