"""Tables of the monthly report: a block for each team."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.responses import MonthlyReport, ReportedJobs, TeamReport
from motley_command.tables.format import Cell, duration, key_values, table, text, three_digits

NOT_KNOWN = "no longer known: in the archive"


def report_tables(report: MonthlyReport) -> RenderableType:
    """Of each team its figures, its GPU types and its members."""
    if not report["teams"]:
        return Text(f"No job ran or ended in {report['month']}. Reports go back to {report['known_since']}.")
    return Group(*(part for team in report["teams"] for part in _of_team(team, report)))


def _of_team(team: TeamReport, report: MonthlyReport) -> Iterator[RenderableType]:
    yield text(f"{team['team']}, {report['month']}")
    yield key_values(list(_figures(team, report["currency"])))
    types = [
        (one["gpu_type"], three_digits(one["gpu_hours"]), three_digits(one["work_gpu_hours"])) for one in team["types"]
    ]
    if types:
        yield table(("GPU TYPE", "GPU-HOURS", "WEIGHTED BY SPEED"), types, empty="")
    members = [
        (one["username"], three_digits(one["gpu_hours"]), three_digits(one["work_gpu_hours"]), f"{one['part']:.0%}")
        for one in team["members"]
    ]
    if members:
        yield table(("MEMBER", "GPU-HOURS", "WEIGHTED BY SPEED", "PART"), members, empty="")
    yield Text("")


def _figures(team: TeamReport, currency: str) -> Iterator[tuple[str, Cell]]:
    work, gpu_hours = three_digits(team["work_gpu_hours"]), three_digits(team["gpu_hours"])
    yield "work", f"{work} reference GPU-hours in {gpu_hours} GPU-hours"
    yield "cost", "" if team["cost"] is None else f"{team['cost']:.2f} {currency}".strip()
    yield "energy", "" if team["energy_kwh"] is None else f"{team['energy_kwh']:.3g} kWh"
    if team["co2_g"] is not None:
        yield "CO2", f"{team['co2_g'] / 1000:.3g} kg"
    yield from _of_jobs(team["jobs"]) if team["jobs"] else [("jobs", NOT_KNOWN)]
    waste = {
        "lost by stops": team["lost_gpu_hours"],
        "failed attempts": team["failed_gpu_hours"],
        "idle GPUs": team["idle_gpu_hours"],
    }
    yield from (
        (name, f"{three_digits(hours)} GPU-hours" if hours is not None else "") for name, hours in waste.items()
    )


def _of_jobs(jobs: ReportedJobs) -> Iterator[tuple[str, Cell]]:
    outcomes = (("succeeded", jobs["succeeded"]), ("failed", jobs["failed"]), ("cancelled", jobs["cancelled"]))
    yield "jobs", ", ".join(f"{count} {name}" for name, count in (*outcomes, ("timed out", jobs["timed_out"])))
    if jobs["wait_s"] is not None and jobs["wait_p95_s"] is not None:
        yield "waiting", f"{duration(jobs['wait_s'])} in the mean, 95 of 100 within {duration(jobs['wait_p95_s'])}"
    yield "restarts", str(jobs["restarts"])
