"""Commands about sweeps: start, list, show, trials, best, stop, delete."""

from typing import Annotated, Any

import typer

from motley_client.spec import SpecError, documents_of
from motley_command.commands.job_options import text_of
from motley_command.commands.submit import with_uploaded_code
from motley_command.completion import TeamOption, sweeps
from motley_command.configuration import default_team
from motley_command.convert import determined
from motley_command.lookup import connect, find_sweep
from motley_command.tables.sweeps import sweep_details, sweeps_table, trials_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say

OF_SWEEP = (
    *("name", "method", "metric", "parameters", "early_terminate", "population", "run_cap", "at_a_time", "max_failed"),
    *("seed", "program"),
)
"""Fields of the file beside those of a job."""
IGNORED = ("kind", "project", "entity", "description")
"""Fields of W&B's sweep files that say nothing about the search; `kind: sweep` is our own."""

sweep = typer.Typer(no_args_is_help=True, help="Start, watch and stop searches for good hyperparameters.")
SweepFile = Annotated[
    typer.FileText | None,
    typer.Argument(help="YAML or JSON file with the fields of the search and of its jobs; - for standard input."),
]
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the sweep, or its number.", autocompletion=sweeps)
]


@sweep.command()
def start(context: typer.Context, file: SweepFile, *, output: OutputOption = Output.TABLE) -> None:
    """Start a sweep from a file, with the fields of the search beside those of its jobs. Example:

    motley sweep start sweep.yaml
    """
    fields = _fields(file)
    with connect(context) as client:
        (fields["spec"],) = with_uploaded_code(client, [fields["spec"]], output)
        made = client.start_sweep(fields)
    if output is Output.TABLE:
        say(sanitized(f"Started {made['name']} of team {made['team']}: at most {made['run_cap']} trials."))
    else:
        emit(output, made, names=[made["name"]], table=lambda: "")


@sweep.command("list")
def list_sweeps(context: typer.Context, *, team: TeamOption = None, output: OutputOption = Output.TABLE) -> None:
    """List sweeps with the number of their trials and the best value so far, the newest first."""
    with connect(context) as client:
        found = list(client.sweeps(team=team))
    emit(output, found, names=[one["name"] for one in found], table=lambda: sweeps_table(found, now=now()))


@sweep.command()
def show(
    context: typer.Context, name: NameArgument, *, team: TeamOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a sweep: its state, its trials by state, its rungs, its cost and the best trial."""
    with connect(context) as client:
        found = client.sweep(find_sweep(client, name, team)["id"])
    emit(output, found, names=[found["name"]], table=lambda: sweep_details(found))


@sweep.command()
def trials(
    context: typer.Context, name: NameArgument, *, team: TeamOption = None, output: OutputOption = Output.TABLE
) -> None:
    """List the trials of a sweep: hyperparameters, results, jobs."""
    with connect(context) as client:
        found = find_sweep(client, name, team)
        rows = list(client.trials(found["id"]))
    emit(output, rows, names=[row["job"] for row in rows], table=lambda: trials_table(found, rows))


@sweep.command()
def best(
    context: typer.Context, name: NameArgument, *, team: TeamOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the best trial of a sweep that has succeeded; `-o name` prints its job alone, for `motley clone`."""
    with connect(context) as client:
        found = find_sweep(client, name, team)
    if (trial := found["best"]) is None:
        raise SpecError(f"No trial of {found['name']} has succeeded yet: see motley sweep show {found['name']}.")
    emit(output, trial, names=[trial["job"]], table=lambda: trials_table(found, [trial]))


@sweep.command()
def stop(context: typer.Context, name: NameArgument, *, team: TeamOption = None) -> None:
    """Stop a sweep: no trial is started any more, and those that run, wait or are held are cancelled."""
    with connect(context) as client:
        found = client.stop_sweep(find_sweep(client, name, team)["id"])
    say(sanitized(f"{found['name']} is {found['state']}."))


@sweep.command()
def delete(context: typer.Context, name: NameArgument, *, team: TeamOption = None) -> None:
    """Delete a sweep that has ended, with the record of its trials. Their jobs stay."""
    with connect(context) as client:
        found = find_sweep(client, name, team)
        client.delete_sweep(found["id"])
    say(sanitized(f"{found['name']} of team {found['team']} is deleted; its jobs stay."))


def _fields(file: typer.FileText | None) -> dict[str, Any]:
    """The body of the request: fields of the search, and those of its jobs as `spec`."""
    if file is None:
        raise SpecError("No file: give a file with the fields of the search and of its jobs.")
    documents = documents_of(text_of(file), file.name)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise SpecError(f"{file.name} describes no sweep: write one field per line, e.g. method: bayes.")
    given = documents[0]
    if determined.is_experiment(given):
        raise SpecError(f"{file.name} is a Determined experiment: `motley convert {file.name}` writes it as a sweep.")
    spec = {name: value for name, value in given.items() if name not in (*OF_SWEEP, *IGNORED)}
    team = default_team()
    if team and "team" not in spec:
        spec["team"] = team
    return {**{name: given[name] for name in OF_SWEEP if name in given}, "spec": spec}
