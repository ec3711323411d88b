"""Who gets what: shares, rounds, and the policy that decides."""

from itertools import islice
from typing import Annotated

import typer

from motley_client.answers import Policy
from motley_client.completion import policies as known_policies
from motley_client.lookup import connect
from motley_client.spec import SpecError, numbers_of
from motley_client.tables.scheduling import (
    choices_table,
    policies_table,
    policy_described,
    policy_details,
    round_details,
    rounds_table,
    shares_table,
)
from motley_client.terminal import Output, OutputOption, WatchOption, emit, now, present

LATEST_ROUNDS = 20

policy = typer.Typer(no_args_is_help=True, help="The policy by which rounds are decided: show, list, history, set.")


def share(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show what each of your teams was entitled to of the work that the cluster did, and what it got."""
    with connect(context) as client:
        teams = list(client.teams())
    emit(output, teams, names=[team["name"] for team in teams], table=lambda: shares_table(teams))


def rounds(
    context: typer.Context,
    number: Annotated[int | None, typer.Argument(help="Only this round, and what it decided.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = LATEST_ROUNDS,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the scheduler's rounds: what was decided, how well, and what a GPU of each type was worth."""
    with connect(context) as client:
        if number is not None:
            found = client.round(number)
            emit(output, found, names=[str(number)], table=lambda: round_details(found, now=now()))
            return
        present(
            lambda: list(islice(client.rounds(page_size=min(limit, 200)), limit)),
            output=output,
            watch=watch,
            names=lambda rounds: [str(one["number"]) for one in rounds],
            table=lambda rounds: rounds_table(rounds, now=now()),
        )


@policy.command()
def show(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show the policy that counts."""
    with connect(context) as client:
        current = client.current_policy()
    emit(output, current, names=[current["policy"]], table=lambda: policy_details(current, now=now()))


@policy.command("list")
def list_policies(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="POLICY", help="Only this one, in full.", autocompletion=known_policies)
    ] = None,
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the policies that there are to choose; the star is on the one that counts.

    Of one that is named, also when to choose it, its parameters, and where it comes from.
    """
    with connect(context) as client:
        found = list(client.policies())
    if name is not None:
        one = _named(found, name)
        emit(output, one, names=[one["name"]], table=lambda: policy_described(one))
        return
    emit(output, found, names=[one["name"] for one in found], table=lambda: policies_table(found))


@policy.command()
def history(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """List the choices so far, the latest first."""
    with connect(context) as client:
        found = list(client.policy_history())
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: choices_table(found, now=now()))


@policy.command("set")
def choose(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="POLICY", autocompletion=known_policies)],
    *,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="Repeat it for more; see motley policy list POLICY."),
    ] = None,
    round_length: Annotated[float | None, typer.Option(metavar="SECONDS", help="From round to round.")] = None,
    min_run: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long a job runs before another may take its place.")
    ] = None,
    solve_limit: Annotated[
        float | None,
        typer.Option(metavar="PART", help="The part of a round after which its best certified decision counts."),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why, for the history.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Decide by this policy from the next round on. For staff.

    Times that no option says stay as they are. Parameters belong to their policy: where none is given, the same policy
    keeps its own, and another starts from its defaults; where some are given, the others have their defaults.
    """
    with connect(context) as client:
        chosen = client.choose_policy(
            name,
            parameters=numbers_of("--param", parameter or []) or None,
            round_length_s=round_length,
            min_run_s=min_run,
            solve_limit_part=solve_limit,
            note=note,
        )
    emit(output, chosen, names=[chosen["policy"]], table=lambda: policy_details(chosen, now=now()))


@policy.command()
def undo(
    context: typer.Context,
    choice: Annotated[
        int, typer.Argument(metavar="ID", help="The choice to go back to, as motley policy history shows it.")
    ],
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """Go back to a choice of the history: undo what was chosen after it. For staff."""
    with connect(context) as client:
        chosen = client.choose_policy_again(choice)
    emit(output, chosen, names=[chosen["policy"]], table=lambda: policy_details(chosen, now=now()))


def _named(policies: list[Policy], name: str) -> Policy:
    for policy_ in policies:
        if policy_["name"] == name:
            return policy_
    raise SpecError(f"There is no policy {name}; there are {', '.join(one['name'] for one in policies)}.")
