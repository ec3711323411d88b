"""Commands about recurring jobs: create, list, show, pause, resume, run, delete."""

from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from motley_client.spec import SpecError
from motley_command.commands.job_options import CommandWithRecipe, Specs, takes_specs
from motley_command.commands.submit import with_uploaded_code
from motley_command.completion import TeamOption, recurring_jobs
from motley_command.lookup import connect, find_recurring_job
from motley_command.tables.recurring import recurring_job_details, recurring_jobs_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say

OF_SCHEDULE = ("schedule", "timezone", "concurrency", "missed")
"""Fields of the file beside those of a job; `recurring_name` is the other one."""
LAST_DUE_TIMES = 10


class Concurrency(StrEnum):
    FORBID = "forbid"
    REPLACE = "replace"
    ALLOW = "allow"


class Missed(StrEnum):
    SKIP = "skip"
    ONCE = "once"


recurring = typer.Typer(no_args_is_help=True, help="Create, list, pause, run and delete jobs that recur by a schedule.")
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the recurring job, or its number.", autocompletion=recurring_jobs)
]


@recurring.command(cls=CommandWithRecipe)
@takes_specs
def create(
    context: typer.Context,
    *,
    specs: Specs,
    schedule: Annotated[
        str | None,
        typer.Option(metavar="CRON", help="When it is due: minute, hour, day, month, weekday, e.g. '0 3 * * *'."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of the schedule, e.g. Europe/Berlin. Default: UTC.")
    ] = None,
    concurrency: Annotated[
        Concurrency | None, typer.Option(help="While the run before is unfinished. Default: forbid, which skips.")
    ] = None,
    missed: Annotated[
        Missed | None, typer.Option(help="Due times at which the service was down. Default: skip.")
    ] = None,
    recurring_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name, once in a team. Default: the name of the job.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a recurring job from a job file or job options. Examples:

    motley recurring create nightly.yaml

    motley recurring create --schedule "0 3 * * *" --timezone Europe/Berlin --gpus 4 -- python train.py

    The file may have the fields schedule, timezone, concurrency, missed and recurring_name beside those of a job.
    """
    given = {
        "schedule": schedule,
        "timezone": timezone,
        "concurrency": concurrency,
        "missed": missed,
        "recurring_name": recurring_name,
    }
    if name := context.meta.get("recipe"):
        raise SpecError(f"A recurring job has a spec of its own, not recipe:{name}: motley recipe show {name} has one.")
    if len(specs) != 1:
        raise SpecError("A recurring job has one job: give a file with one.")
    with connect(context) as client:
        fields = _fields(specs[0], {name: str(value) for name, value in given.items() if value is not None})
        (fields["spec"],) = with_uploaded_code(client, [fields["spec"]], output)
        made = client.add_recurring_job(fields)
    if output is Output.TABLE:
        say(sanitized(f"{made['name']} of team {made['team']} recurs; it is due next at {made['next_due_at']}."))
    else:
        emit(output, made, names=[made["name"]], table=lambda: "")


@recurring.command("list")
def list_recurring(context: typer.Context, *, team: TeamOption = None, output: OutputOption = Output.TABLE) -> None:
    """List recurring jobs with their next due time, and what became of the last."""
    with connect(context) as client:
        found = list(client.recurring_jobs(team=team))
    emit(output, found, names=[one["name"] for one in found], table=lambda: recurring_jobs_table(found, now=now()))


@recurring.command()
def show(
    context: typer.Context, name: NameArgument, *, team: TeamOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a recurring job with its spec and its last due times."""
    with connect(context) as client:
        found = client.recurring_job(find_recurring_job(client, name, team)["id"])
        runs = list(islice(client.due_times(found["id"], page_size=LAST_DUE_TIMES), LAST_DUE_TIMES))
    emit(
        output,
        {**found, "runs": runs},
        names=[run["job"] for run in runs if run["job"]],
        table=lambda: recurring_job_details(found, runs),
    )


@recurring.command()
def pause(context: typer.Context, name: NameArgument, *, team: TeamOption = None) -> None:
    """Pause a recurring job: nothing is submitted until it is resumed. A run that is going on goes on."""
    with connect(context) as client:
        found = client.pause_recurring_job(find_recurring_job(client, name, team)["id"])
    say(sanitized(f"{found['name']} is paused."))


@recurring.command()
def resume(context: typer.Context, name: NameArgument, *, team: TeamOption = None) -> None:
    """Resume a recurring job from its next due time on. If its owner is gone, you become its owner."""
    with connect(context) as client:
        found = client.resume_recurring_job(find_recurring_job(client, name, team)["id"])
    say(sanitized(f"{found['name']} is due next at {found['next_due_at']}; its runs are jobs of {found['owner']}."))


@recurring.command()
def run(
    context: typer.Context, name: NameArgument, *, team: TeamOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Submit a run of a recurring job now, beside its schedule and in its owner's name."""
    with connect(context) as client:
        job = client.run_recurring_job(find_recurring_job(client, name, team)["id"])
    if output is Output.TABLE:
        say(f"Submitted {sanitized(job['name'])} ({job['id']}), {job['state']}.")
    else:
        emit(output, job, names=[job["id"]], table=lambda: "")


@recurring.command()
def delete(context: typer.Context, name: NameArgument, *, team: TeamOption = None) -> None:
    """Delete a recurring job with the record of its due times. Its jobs stay, and those that run go on."""
    with connect(context) as client:
        found = find_recurring_job(client, name, team)
        client.delete_recurring_job(found["id"])
    say(sanitized(f"{found['name']} of team {found['team']} is deleted; its jobs stay."))


def _fields(spec: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """Fields of the recurring job: those of the file, replaced by options, with the rest of the file as the spec."""
    both = {**{name: spec[name] for name in (*OF_SCHEDULE, "recurring_name") if name in spec}, **given}
    if "schedule" not in both:
        raise SpecError("No schedule: give --schedule '0 3 * * *', or the field schedule in the file.")
    if name := both.pop("recurring_name", None):
        both["name"] = name
    return {**both, "spec": {field: spec[field] for field in spec if field not in (*OF_SCHEDULE, "recurring_name")}}
