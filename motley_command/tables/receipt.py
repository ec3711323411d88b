"""Tables of a job's receipt, and of the other GPUs on which it was compared."""

from collections.abc import Iterator

from rich.console import Group, RenderableType

from motley_client.responses import Advice, Receipt
from motley_command.tables.format import Cell, duration, key_values, number, table, three_digits

GRAMS_PER_KG = 1000


def receipt_tables(found: Receipt) -> RenderableType:
    """Lines by GPU type, sums, and the advice."""
    rows = [
        (
            line["gpu_type"],
            str(line["attempts"]),
            three_digits(line["gpu_hours"]),
            _money(line["price_per_hour"], ""),
            _money(line["cost"], ""),
        )
        for line in found["lines"]
    ]
    heads = ("GPU TYPE", "ATTEMPTS", "GPU-HOURS", "PER GPU-HOUR", "COST")
    if not rows:
        return table(heads, rows, empty="It has not run.")
    return Group(table(heads, rows, empty=""), key_values(list(_sums(found))), *_advice(found["advice"]))


def _sums(found: Receipt) -> Iterator[tuple[str, Cell]]:
    yield "taken" if found["complete"] else "taken so far", f"{three_digits(found['gpu_hours'])} GPU-hours"
    without = f" without {', '.join(found['unpriced'])}" if found["unpriced"] and found["cost"] is not None else ""
    yield "cost", f"{_money(found['cost'], found['currency'])}{without}" or "no GPU type has a price"
    yield "energy", "" if found["energy_kwh"] is None else f"{found['energy_kwh']:.3g} kWh"
    if found["co2_g"] is not None:
        yield "CO2", f"{found['co2_g'] / GRAMS_PER_KG:.3g} kg"
    yield "work lost", f"{three_digits(found['lost_gpu_hours'])} GPU-hours"


def _advice(advice: Advice) -> Iterator[RenderableType]:
    yield advice["sentence"]
    rows = [
        (
            f"{one['gpus']} {one['gpu_type']}",
            number(one["rate"]),
            duration(one["run_s"]),
            three_digits(one["cost"]),
            one["words"].partition(": ")[2],
        )
        for one in advice["others"]
    ]
    cost = "COST" if advice["unit"] == "price" else "GPU-HOURS"
    if rows:
        yield table(("GPUS", "STEPS/S", "WHOLE JOB", cost, "BESIDE ITS OWN"), rows, empty="")


def _money(amount: float | None, currency: str) -> str:
    return "" if amount is None else f"{amount:.2f} {currency}".strip()
