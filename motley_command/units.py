"""Units of memory and time as people write them, in one table for every command and file format."""

MIB_PER = {"": 1.0, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
"""By prefix: a power of 1,024 however it is spelt, as in Slurm; without one MiB."""

SECONDS_PER = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SPELLINGS = {
    **dict.fromkeys(("sec", "second"), "s"),
    **dict.fromkeys(("min", "minute"), "m"),
    **dict.fromkeys(("hr", "hour"), "h"),
    "day": "d",
    "week": "w",
}


def mib_per(unit: str) -> float | None:
    """MiB of a unit in any case, `g`, `GB` or `GiB`; None: it is no unit of memory."""
    prefix = unit.lower().removesuffix("b").removesuffix("i")
    return MIB_PER.get(prefix) if unit.lower() != "i" else None


def seconds_per(unit: str) -> int | None:
    """Seconds of a unit in any case, `h`, `hr`, `hour` or `hours`; None: it is no unit of time."""
    name = unit.lower()
    one = name.removesuffix("s") or name
    return SECONDS_PER.get(SPELLINGS.get(one, name))
