"""Colours of GPUs on the page Cluster: by condition, by job or by team. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from insight_app.gpu_occupancy import GpuCell, NodeCells
from web.pages.charts import OKABE_ITO

CHOICES = ("condition", "job", "team")
MOST_IN_LEGEND = 14


class Entry(NamedTuple):
    """A line of the legend."""

    name: str
    tint: int
    gpus: int


@dataclass(frozen=True)
class GpuColours:
    """Colour of each GPU, as a place in the palette; jobs of other teams have none."""

    by: str
    tints: Mapping[int, int]
    """GPU's key → colour."""
    legend: Sequence[Entry]
    left_out: int
    """Names that the legend has no room for."""


def colours_of(nodes: Iterable[NodeCells], by: str) -> GpuColours:
    """GPUs of one job, or of one team, have one colour; after seven names colours repeat."""
    named = [(cell.gpu.pk, name) for node in nodes for cell in node.cells if (name := _name(cell, by))]
    gpus = Counter(name for _, name in named)
    names = sorted(gpus) if by == "team" else list(gpus)
    tint = {name: n % len(OKABE_ITO) for n, name in enumerate(names)}
    legend = [Entry(label, tint[key, label], gpus[key, label]) for key, label in names[:MOST_IN_LEGEND]]
    return GpuColours(by, {pk: tint[name] for pk, name in named}, legend, max(0, len(names) - MOST_IN_LEGEND))


def _name(cell: GpuCell, by: str) -> tuple[str, str] | None:
    """Key and label; jobs of one name are told apart by their keys."""
    if cell.job is None or by == "condition":
        return None
    return (cell.job.team.name, cell.job.team.name) if by == "team" else (str(cell.job.pk), str(cell.job))


def in_words(node: NodeCells) -> str:
    """Use of the GPUs of a node in one line: 4 big-1 (vision), 2 idle."""
    found = Counter(_words(cell) for cell in node.cells)
    return f"{node.node.name}: " + ", ".join(f"{count} {words}" for words, count in found.items())


def _words(cell: GpuCell) -> str:
    if cell.job:
        return f"{cell.job} ({cell.job.team})"
    return "another team" if cell.hidden else cell.words
