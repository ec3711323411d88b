"""How fast workloads truly are: tables of steps per second, which no policy sees but through an estimate."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from simulation.cluster import Placement
from simulation.trace import Program

GAVEL_KEY = re.compile(r"\('(?P<workload>.*)', (?P<gpus>\d+)\)")


class UnknownWorkload(KeyError):
    """No rate of this workload is known."""

    def __str__(self) -> str:
        return f"no throughputs of the workload '{self.args[0]}'"


class InvalidTable(ValueError):
    """A file of throughputs cannot be read; says which, and why."""


class Throughputs(Protocol):
    """The truth of a simulation."""

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        """Steps per second of the whole job, the mean where they change; 0: it cannot run so."""


@dataclass(frozen=True)
class Table:
    """Fixed rates by workload, GPU type and gang; where its GPUs are does not matter (Gavel).

    together are the rates of the first of two workloads while one of each runs on the same GPUs.
    """

    rates: Mapping[str, Mapping[tuple[str, int], float]]
    together: Mapping[tuple[str, str], Mapping[tuple[str, int], float]] = field(default_factory=dict)

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        try:
            return self.rates[program.workload or ""].get((gpu_type, sum(placement)), 0.0)
        except KeyError:
            raise UnknownWorkload(program.workload) from None

    def rate_beside(self, program: Program, other: Program, gpu_type: str, placement: Placement) -> float:
        """Steps per second of the first of two jobs that share these GPUs; 0: they cannot be together."""
        rates = self.together.get((program.workload or "", other.workload or ""), {})
        return rates.get((gpu_type, sum(placement)), 0.0)


def read_gavel_table(path: Path) -> Table:
    """Rates from Gavel's JSON: type → "('workload', gpus)" → of jobs alone under "null", of two by the other's key."""
    rates: dict[str, dict[tuple[str, int], float]] = {}
    together: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
    try:
        for gpu_type, rows in json.loads(path.read_text()).items():
            for key, row in rows.items():
                workload, gpus = _read_key(key)
                rates.setdefault(workload, {})[gpu_type, gpus] = float(row["null"])
                for other, rate in _read_pairs(row, gpus):
                    together.setdefault((workload, other), {})[gpu_type, gpus] = rate
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidTable(f"{path} is not a table of throughputs of Gavel's: {error!r}") from error
    return Table(rates, together)


def _read_pairs(row: Mapping[str, Any], gpus: int) -> Iterator[tuple[str, float]]:
    for key in row.keys() - {"null"}:
        other, its_gpus = _read_key(key)
        rate, _ = row[key]
        if its_gpus == gpus:
            yield other, float(rate)


def _read_key(key: str) -> tuple[str, int]:
    if (found := GAVEL_KEY.fullmatch(key)) is None:
        raise ValueError(f"{key} is not ('workload', gpus)")
    return found["workload"], int(found["gpus"])
