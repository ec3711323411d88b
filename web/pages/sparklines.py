"""Small line charts without axes, drawn by the server as points of an SVG polyline. Pure."""

from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 100.0, 24.0, 1.5
MOST_POINTS = 60


def sparkline(values: Sequence[float], *, least: float | None = None, most: float | None = None) -> str:
    """Points of a line over a box of 100 x 24; empty for fewer than two values.

    `least` and `most`: values at the lower and the upper edge, unless given those that occur.
    """
    shown = thinned(values)
    if len(shown) < 2:
        return ""
    low = min(shown) if least is None else least
    high = max(shown) if most is None else most
    span, room = (high - low) or 1.0, HEIGHT - 2 * MARGIN
    points = enumerate(min(max((value - low) / span, 0.0), 1.0) for value in shown)
    return " ".join(f"{WIDTH * n / (len(shown) - 1):.1f},{HEIGHT - MARGIN - room * part:.1f}" for n, part in points)


def area(values: Sequence[float], *, most: float) -> str:
    """Points of the polygon between the line and the lower edge, from zero."""
    line = sparkline(values, least=0.0, most=most)
    return f"0,{HEIGHT:g} {line} {WIDTH:g},{HEIGHT:g}" if line else ""


def thinned(values: Sequence[float]) -> list[float]:
    """Means of so many values each that at most `MOST_POINTS` remain."""
    size = -(-len(values) // MOST_POINTS) or 1
    parts = (values[start : start + size] for start in range(0, len(values), size))
    return [sum(part) / len(part) for part in parts]
