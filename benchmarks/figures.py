"""What a benchmark found, beside what was hoped for."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """`target` is the most that it should be, or the least where more is better; None: it is only told."""

    what: str
    value: float
    unit: str
    target: float | None = None
    more_is_better: bool = False

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.more_is_better else self.value <= self.target


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def write(figures: Sequence[Figure], path: Path) -> None:
    path.write_text(json.dumps([asdict(figure) for figure in figures]))


def read(path: Path) -> list[Figure]:
    return [Figure(**row) for row in json.loads(path.read_text())]


def table(figures: Iterable[Figure]) -> str:
    """As Markdown, for the docs."""
    lines = ["| what | measured | target | |", "| --- | ---: | ---: | --- |"]
    for figure in figures:
        target = "" if figure.target is None else f"{'≥' if figure.more_is_better else '≤'} {figure.target:g}"
        verdict = {None: "", True: "met", False: "**missed**"}[figure.met]
        lines.append(f"| {figure.what} | {figure.value:.3g} {figure.unit} | {target} | {verdict} |")
    return "\n".join(lines)
