"""Tables of recipes, their parameters and versions."""

from collections.abc import Iterable, Sequence

import yaml
from rich.console import Group, RenderableType

from motley_client.responses import Recipe, RecipeParameter, RecipeVersion
from motley_command.tables.format import Cell, key_values, lines_of, local_minute, table


def recipes_table(found: Iterable[Recipe]) -> RenderableType:
    rows = [
        (
            one["name"],
            one["team"],
            " ".join(_written(parameter) for parameter in one["parameters"]),
            used(one),
            one["description"],
        )
        for one in found
    ]
    headings = ("NAME", "TEAM", "PARAMETERS", "USED", "DESCRIPTION")
    return table(headings, rows, empty="No recipes: motley recipe add job.yaml.")


def used(one: Recipe) -> str:
    """`ran 41 times, last on 4 A100, 24 steps/s`."""
    count = one["submissions"]
    if not count:
        return "never"
    times = f"ran {count:,} time{'s' * (count > 1)}"
    if (last := one["last_job"]) is None:
        return times
    rate = f", {last['rate']:.3g} steps/s" if last["rate"] else ""
    return f"{times}, last on {last['gpu_count']} {last['gpu_type'].upper()}{rate}"


def recipe_details(one: Recipe, versions: Sequence[RecipeVersion]) -> RenderableType:
    facts: list[tuple[str, Cell]] = [
        ("name", one["name"]),
        ("id", str(one["id"])),
        ("team", one["team"]),
        ("description", one["description"]),
        ("changed by", f"{one['editors']} of the team"),
        ("used", used(one)),
        ("spec", lines_of(yaml.safe_dump(one["spec"], sort_keys=False).rstrip())),
    ]
    asked = [
        (parameter["name"], parameter["type"], _default(parameter), _choices(parameter), parameter["description"])
        for parameter in one["parameters"]
    ]
    parameters = table(("PARAMETER", "TYPE", "DEFAULT", "CHOICES", "DESCRIPTION"), asked, empty="It has no parameters.")
    rows = [
        (str(version["version"]), local_minute(version["created_at"]), version["author"] or "") for version in versions
    ]
    return Group(key_values(facts), "", parameters, "", table(("VERSION", "AT", "BY"), rows, empty=""))


def _written(parameter: RecipeParameter) -> str:
    return parameter["name"] if parameter["default"] is None else f"{parameter['name']}={_default(parameter)}"


def _default(parameter: RecipeParameter) -> str:
    value = parameter["default"]
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _choices(parameter: RecipeParameter) -> str:
    return ", ".join(map(str, parameter["choices"]))
