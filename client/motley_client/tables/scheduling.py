"""Who gets what: teams, rounds, policies."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.answers import ChosenPolicy, Decision, Parameter, Policy, Round, RoundInFull, Team
from motley_client.tables.drawing import Cell, age, duration, facts, number, table, when


def shares_table(teams: Iterable[Team]) -> RenderableType:
    """What each team was entitled to of all the work that was done, and what it got."""
    headings = ("TEAM", "WEIGHT", "ENTITLED", "DELIVERED", "RATIO", "GPUS NOW", "MOST GPUS", "OVER", "MEMBERS")
    return table(headings, [_share_row(team) for team in teams], empty="You are in no team.")


def rounds_table(rounds: Iterable[Round], *, now: datetime) -> RenderableType:
    headings = ("ROUND", "AGE", "POLICY", "JOBS", "GAP", "SOLVED IN", "STARTS", "STOPS", "MOVES", "STATUS", "PRICES")
    return table(headings, [_round_row(round_, now) for round_ in rounds], empty="No rounds yet.")


def round_details(round_: RoundInFull, *, now: datetime) -> RenderableType:
    """A round, and what it gave to each job that one may see."""
    return Group(rounds_table([round_], now=now), Text(""), _decisions_table(round_["decisions"]))


def policies_table(policies: Iterable[Policy]) -> RenderableType:
    rows = [
        ("*" if policy["current"] else "", policy["name"], str(len(policy["parameters"]) or ""), policy["summary"])
        for policy in policies
    ]
    return table(("", "POLICY", "PARAMETERS", "WHAT IT DOES"), rows, empty="No policies.")


def policy_described(policy: Policy) -> RenderableType:
    """One policy: when to choose it, what it takes, and where it comes from."""
    return facts(
        [
            ("policy", policy["name"]),
            ("what it does", policy["summary"]),
            ("when", policy["choose_when"]),
            *((f"--param {name}", _range(parameter)) for name, parameter in policy["parameters"].items()),
            *(("source", source) for source in policy["sources"]),
        ]
    )


def policy_details(chosen: ChosenPolicy, *, now: datetime) -> RenderableType:
    return facts(
        [
            ("policy", chosen["policy"]),
            *((name, _value(value)) for name, value in chosen["parameters"].items()),
            ("rounds", f"every {chosen['round_length_s']:g} s"),
            ("jobs run", f"at least {chosen['min_run_s']:g} s before they are stopped for another"),
            ("decisions", f"in {chosen['solve_limit_part']:.0%} of a round, or the best by then counts"),
            ("note", chosen["note"]),
            ("chosen", when(chosen["created_at"], now) or "by nobody yet: these are the defaults"),
            ("by", chosen["created_by"] or ""),
        ]
    )


def choices_table(choices: Iterable[ChosenPolicy], *, now: datetime) -> RenderableType:
    headings = ("ID", "POLICY", "PARAMETERS", "ROUNDS", "LEAST RUN", "AGE", "BY", "NOTE")
    rows = [
        (
            number(chosen["id"], "{}"),
            chosen["policy"],
            _values(chosen["parameters"]),
            f"{chosen['round_length_s']:g} s",
            f"{chosen['min_run_s']:g} s",
            age(chosen["created_at"], now),
            chosen["created_by"] or "",
            chosen["note"],
        )
        for chosen in choices
    ]
    return table(headings, rows, empty="Nobody has chosen a policy yet: the defaults count.")


def _range(parameter: Parameter) -> str:
    between = "" if parameter["least"] is None else f" from {parameter['least']:g} to {parameter['most']:g}"
    between += f" {', '.join(names)};" if (names := parameter.get("names")) else ","
    return f"{parameter['kind']}{between} {_value(parameter['default'])} unless told: {parameter['meaning']}"


def _values(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in parameters.items())


def _value(value: Any) -> str:
    """As it is typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _share_row(team: Team) -> Sequence[Cell]:
    share = team["share"]
    return (
        team["name"],
        f"{team['weight']:g}",
        f"{share['entitled']:.1%}",
        f"{share['delivered']:.1%}",
        f"{share['delivered'] / share['entitled']:.2f}" if share["entitled"] else "",
        str(team["gpus_in_use"]),
        number(team["max_gpus"], "{}"),
        duration(share["window_seconds"]),
        ", ".join(team["members"]),
    )


def _round_row(round_: Round, now: datetime) -> Sequence[Cell]:
    return (
        str(round_["number"]),
        age(round_["started_at"], now),
        round_["policy"],
        str(round_["jobs"]),
        number(round_["gap"], "{:.2%}"),
        "" if round_["solve_seconds"] is None else f"{round_['solve_seconds'] * 1000:.0f} ms",
        str(round_["starts"]),
        str(round_["stops"]),
        str(round_["moves"]),
        round_["status"] if round_["result"] == "committed" else f"{round_['result']}: {round_['message']}",
        ", ".join(f"{gpu_type} {price:.3g}" for gpu_type, price in round_["prices"].items()),
    )


def _decisions_table(decisions: Iterable[Decision]) -> RenderableType:
    rows = [
        (
            one["job"],
            f"{one['gpus']} {one['gpu_type']}" if one["gpu_type"] else "waits",
            number(one["share"], "{:.0%}"),
            one["reasons"][0]["detail"] if one.get("reasons") else "",
        )
        for one in decisions
    ]
    return table(("JOB", "GETS", "SHARE OF TIME", "WHY IT WAITS"), rows, empty="It decided on no job that you may see.")
