"""Tables of fair shares, rounds and policies."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.responses import (
    Budget,
    ChosenPolicy,
    Decision,
    Parameter,
    Policy,
    Quota,
    Round,
    RoundDetail,
    Team,
    Usage,
    UsageReport,
)
from motley_command.tables.format import (
    Cell,
    age,
    duration,
    in_local_zone,
    key_values,
    number,
    table,
    three_digits,
    when,
)


def shares_table(teams: Iterable[Team]) -> RenderableType:
    """Share of the cluster's work that each team was entitled to and received, and its budget if any has one."""
    headings = ("TEAM", "WEIGHT", "ENTITLED", "DELIVERED", "RATIO", "GPUS NOW", "GPU LIMIT", "WINDOW", "MEMBERS")
    listed = list(teams)
    rows = [_share_row(team) for team in listed]
    if any(team.get("budget") for team in listed):
        rows = [(*row, *_budget_cells(team.get("budget"))) for row, team in zip(rows, listed, strict=True)]
        return table((*headings, *BUDGET_HEADINGS), rows, empty="")
    return table(headings, rows, empty="You are not a member of any team.")


BUDGET_HEADINGS = ("BUDGET USED", "REFERENCE GPU-HOURS", "PER", "IF USED UP", "RESET", "WEIGHT IS")


def _budget_cells(budget: Budget | None) -> Sequence[Cell]:
    if budget is None:
        return ("",) * len(BUDGET_HEADINGS)
    return (
        f"{budget['used_gpu_hours'] / budget['gpu_hours']:.0%}",
        f"{budget['used_gpu_hours']:.4g} of {budget['gpu_hours']:.4g}",
        budget["period"],
        "less weight" if budget["kind"] == "soft" else "jobs wait",
        budget["resets_at"][:10],
        f"{budget['weight_part']:.0%}",
    )


def shares_and_quotas(teams: Iterable[Team]) -> RenderableType:
    """Shares of teams, and their quotas on GPU types if any has one."""
    listed = list(teams)
    shares = shares_table(listed)
    return Group(shares, "", quotas_table(listed)) if any(team.get("quotas") for team in listed) else shares


def quotas_table(teams: Iterable[Team]) -> RenderableType:
    """Quotas on GPU types: use, limits, and what each costs in waiting."""
    headings = ("TEAM", "GPU TYPE", "QUOTA", "IN USE", "BORROWED", "MAY BORROW", "LENDS", "COSTS")
    rows = [(team["name"], *_quota_cells(quota)) for team in teams for quota in team.get("quotas", [])]
    return table(headings, rows, empty="")


def _quota_cells(quota: Quota) -> Sequence[Cell]:
    hours = quota["waiting_hours_per_day"]
    borrows, lends = quota["borrowing_limit"], quota["lending_limit"]
    return (
        quota["gpu_type"],
        str(quota["gpus"]),
        str(quota["used"]),
        str(quota["borrowed"]),
        "any" if borrows is None else str(borrows),
        "all" if lends is None else str(lends),
        "not known" if hours is None else f"{hours:.1f} h of waiting a day",
    )


def usage_table(report: UsageReport) -> RenderableType:
    """GPU-hours, cost and energy per period, team and GPU type, with their sums."""
    rows = [
        (row["period"] if report["by"] == "day" else row["period"][:7], row["team"], row["gpu_type"], *_amounts([row]))
        for row in report["rows"]
    ]
    if len(rows) > 1:
        rows.append(("total", "", "", *_amounts(report["rows"])))
    headings = (report["by"].upper(), "TEAM", "GPU TYPE", "GPU-HOURS", "WEIGHTED BY SPEED", "COST", "KWH", "ENERGY IS")
    return table(headings, rows, empty=f"No GPU was used from {report['since']} to {report['until']}.")


def _amounts(rows: Sequence[Usage]) -> tuple[str, ...]:
    return (
        three_digits(sum(row["gpu_hours"] for row in rows)),
        three_digits(sum(row["work_gpu_hours"] for row in rows)),
        f"{sum(row['cost'] for row in rows):.2f}",
        *_energy(rows),
    )


def _energy(rows: Sequence[Usage]) -> tuple[str, str]:
    """Energy as far as it is known, and where it comes from."""
    known = [row["energy_kwh"] for row in rows if row["energy_kwh"] is not None]
    sources = dict.fromkeys(row["energy_source"].replace("_", " ") for row in rows)
    return f"{sum(known):.3g}" if known else "", " or ".join(sources)


def rounds_table(rounds: Iterable[Round], *, now: datetime) -> RenderableType:
    headings = (
        "ROUND",
        "AGE",
        "POLICY",
        "JOBS",
        "GAP",
        "SOLVE TIME",
        "STARTS",
        "STOPS",
        "MOVES",
        "STATUS",
        "SHADOW PRICES",
    )
    return table(headings, [_round_row(round_, now) for round_ in rounds], empty="No rounds yet.")


def round_details(round_: RoundDetail, *, now: datetime) -> RenderableType:
    """One round with its decisions."""
    return Group(rounds_table([round_], now=now), Text(""), _decisions_table(round_["decisions"]))


def policies_table(policies: Iterable[Policy]) -> RenderableType:
    rows = [
        ("*" if policy["current"] else "", policy["name"], str(len(policy["parameters"]) or ""), policy["summary"])
        for policy in policies
    ]
    return table(("", "POLICY", "PARAMETERS", "SUMMARY"), rows, empty="No policies.")


def policy_described(policy: Policy) -> RenderableType:
    """One policy: summary, when to choose it, parameters and sources."""
    return key_values(
        [
            ("policy", policy["name"]),
            ("summary", policy["summary"]),
            ("aims at", policy["aims_at"]),
            ("when to choose", policy["choose_when"]),
            ("stops running jobs", policy["preempts"]),
            ("sizes elastic jobs", "yes" if policy["elastic"] else "no"),
            ("needs", ", ".join(policy["needs"]) or "nothing"),
            *((f"--param {name}", _range(parameter)) for name, parameter in policy["parameters"].items()),
            *(("source", source) for source in policy["sources"]),
        ]
    )


def policy_details(chosen: ChosenPolicy, *, now: datetime) -> RenderableType:
    return key_values(
        [
            ("policy", chosen["policy"]),
            *((name, _value(value)) for name, value in chosen["parameters"].items()),
            ("round length", f"{chosen['round_length_s']:g} s"),
            ("minimum run time", f"{chosen['min_run_s']:g} s"),
            ("solver time limit", f"{chosen['solve_limit_part']:.0%} of the round length"),
            ("CPUs and memory", chosen["cpu_memory"]),
            ("note", chosen["note"]),
            ("set", when(chosen["created_at"], now) or "never: these are the defaults"),
            ("by", chosen["created_by"] or ""),
        ]
    )


def choices_table(choices: Iterable[ChosenPolicy], *, now: datetime) -> RenderableType:
    headings = ("ID", "POLICY", "PARAMETERS", "ROUND LENGTH", "MIN RUN TIME", "AGE", "BY", "NOTE")
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
    return table(headings, rows, empty="No policy has been set yet: the defaults apply.")


def _range(parameter: Parameter) -> str:
    between = "" if parameter["least"] is None else f" from {parameter['least']:g} to {parameter['most']:g}"
    between += f" {', '.join(names)};" if (names := parameter.get("names")) else ","
    return f"{parameter['kind']}{between} default {_value(parameter['default'])}: {parameter['meaning']}"


def _values(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in parameters.items())


def _value(value: Any) -> str:
    """The value as it is typed on the command line."""
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
            in_local_zone(one["reasons"][0]["detail"]) if one.get("reasons") else "",
        )
        for one in decisions
    ]
    return table(("JOB", "GPUS", "SHARE OF TIME", "REASON"), rows, empty="No decisions on jobs that you may see.")
