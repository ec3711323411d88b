"""Commands about recipes: add, list, show, change, delete. A job is submitted by `motley submit recipe:NAME`."""

from enum import StrEnum
from itertools import islice
from typing import Annotated, Any

import typer

from motley_client.client import Client
from motley_client.responses import Recipe
from motley_client.spec import SpecError, read_specs
from motley_command.commands.job_options import text_of
from motley_command.commands.submit import with_uploaded_code
from motley_command.completion import TeamOption
from motley_command.completion import recipes as known_recipes
from motley_command.configuration import default_team
from motley_command.lookup import connect, find_recipe
from motley_command.tables.recipes import recipe_details, recipes_table
from motley_command.terminal import Output, OutputOption, emit, sanitized, say

OF_RECIPE = {"recipe": "name", "description": "description", "parameters": "parameters", "editors": "editors"}
"""Fields of the file beside those of a job, and their names over REST."""
LAST_VERSIONS = 10


class Editors(StrEnum):
    MEMBERS = "members"
    LEADS = "leads"


recipe = typer.Typer(no_args_is_help=True, help="Add, list, change and delete recipes: job files with parameters.")
NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the recipe, or its number.", autocompletion=known_recipes)
]
FileArgument = Annotated[
    typer.FileText, typer.Argument(help="YAML or JSON file of one job, with parameters; - for standard input.")
]
EditorsOption = Annotated[Editors | None, typer.Option(help="Who may change it. Default: members.")]
DescriptionOption = Annotated[str | None, typer.Option(help="What it is for, in a line.")]


@recipe.command()
def add(
    context: typer.Context,
    file: FileArgument,
    *,
    name: Annotated[str | None, typer.Option(help="Its name, once in a team. Default: the name of the job.")] = None,
    description: DescriptionOption = None,
    editors: EditorsOption = None,
    team: Annotated[str | None, typer.Option(help="Its team. Default: that of the file, or your default one.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add a recipe from a job file. Where a parameter is, the file has ${{ name }}; its defaults are under parameters:

    parameters: {lr: 0.1}

    command: python train.py --lr ${{ lr }}

    The file may have the fields recipe (its name), description, parameters and editors beside those of a job.
    """
    fields = _fields(file)
    given = {"name": name, "description": description, "editors": editors and str(editors)}
    fields |= {field: value for field, value in given.items() if value is not None}
    if of := team or fields["spec"].get("team") or default_team():
        fields["spec"]["team"] = of
    with connect(context) as client:
        made = client.add_recipe(_with_code(client, fields, output))
    _say(made, output, f"{made['name']} is a recipe of team {made['team']}: motley submit recipe:{made['name']}")


@recipe.command("list")
def list_recipes(context: typer.Context, *, team: TeamOption = None, output: OutputOption = Output.TABLE) -> None:
    """List recipes with their parameters, and how they were used."""
    with connect(context) as client:
        found = list(client.recipes(team=team))
    emit(output, found, names=[one["name"] for one in found], table=lambda: recipes_table(found))


@recipe.command()
def show(
    context: typer.Context, name: NameArgument, *, team: TeamOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a recipe with its parameters, its spec and its last versions."""
    with connect(context) as client:
        found = client.recipe(find_recipe(client, name, team)["id"])
        versions = list(islice(client.recipe_versions(found["id"]), LAST_VERSIONS))
    emit(output, found, names=[found["name"]], table=lambda: recipe_details(found, versions))


@recipe.command()
def change(
    context: typer.Context,
    name: NameArgument,
    file: Annotated[
        typer.FileText | None, typer.Argument(help="File with the new spec and parameters; - for standard input.")
    ] = None,
    *,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="New name.")] = None,
    description: DescriptionOption = None,
    editors: EditorsOption = None,
    team: TeamOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a recipe. Another spec, or other parameters, are its next version: recipe:NAME@1 is still the first."""
    fields = _fields(file) if file is not None else {}
    fields.pop("name", None)
    given = {"name": rename, "description": description, "editors": editors and str(editors)}
    fields |= {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise SpecError("Nothing to change: give a file, or --rename, --description or --editors.")
    with connect(context) as client:
        found = find_recipe(client, name, team)
        if "spec" in fields:
            fields["spec"].setdefault("team", found["team"])
            fields.setdefault("parameters", {})
        made = client.change_recipe(found["id"], _with_code(client, fields, output))
    _say(made, output, f"{made['name']} is changed; its version is {made['version']}.")


@recipe.command()
def delete(context: typer.Context, name: NameArgument, *, team: TeamOption = None) -> None:
    """Delete a recipe with its versions. Its jobs stay."""
    with connect(context) as client:
        found = find_recipe(client, name, team)
        client.delete_recipe(found["id"])
    say(sanitized(f"{found['name']} of team {found['team']} is deleted; its jobs stay."))


def _fields(file: Any) -> dict[str, Any]:
    """Fields of the recipe of the file, with the rest of the file as its spec."""
    specs = read_specs(text_of(file), file.name)
    if len(specs) != 1:
        raise SpecError("A recipe has one job: give a file with one.")
    (given,) = specs
    of_recipe = {there: given[here] for here, there in OF_RECIPE.items() if here in given}
    return {**of_recipe, "spec": {field: value for field, value in given.items() if field not in OF_RECIPE}}


def _with_code(client: Client, fields: dict[str, Any], output: Output) -> dict[str, Any]:
    """The fields with an uploaded archive in place of a folder of code."""
    if "spec" in fields:
        (fields["spec"],) = with_uploaded_code(client, [fields["spec"]], output)
    return fields


def _say(made: Recipe, output: Output, text: str) -> None:
    if output is Output.TABLE:
        say(sanitized(text))
    else:
        emit(output, made, names=[made["name"]], table=lambda: "")
