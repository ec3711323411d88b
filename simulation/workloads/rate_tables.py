"""Tables of true rates in steps/s; policies see them only through estimates."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from simulation.cluster import Placement
from simulation.traces.trace import Program

GAVEL_KEY = re.compile(r"\('(?P<workload>.*)', (?P<gpus>\d+)\)")


class UnknownWorkload(KeyError):
    """The workload has no known rate."""

    def __str__(self) -> str:
        return f"the table has no rates of the workload '{self.args[0]}'"


class InvalidTable(ValueError):
    """A table of rates is invalid; the message names the file and the reason."""


class RateSource(Protocol):
    """Source of the true rates of a simulation."""

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        """Rate of the whole job in steps/s, the mean if it varies; 0: impossible."""


@dataclass(frozen=True)
class RateTable:
    """Constant rates by workload, GPU type and gang size, independent of placement (Gavel).

    together: rates of the first of two workloads that share GPUs.
    """

    rates: Mapping[str, Mapping[tuple[str, int], float]]
    together: Mapping[tuple[str, str], Mapping[tuple[str, int], float]] = field(default_factory=dict)

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        try:
            return self.rates[program.workload or ""].get((gpu_type, sum(placement)), 0.0)
        except KeyError:
            raise UnknownWorkload(program.workload) from None

    def rate_beside(self, program: Program, other: Program, gpu_type: str, placement: Placement) -> float:
        """Rate in steps/s of the first of two jobs that share these GPUs; 0: they cannot share."""
        rates = self.together.get((program.workload or "", other.workload or ""), {})
        return rates.get((gpu_type, sum(placement)), 0.0)


def read_gavel_table(path: Path) -> RateTable:
    """Read Gavel's JSON: type → "('workload', gpus)" → rate alone under "null", rates of pairs by the other's key."""
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
        raise InvalidTable(f"{path} is not a table of rates in Gavel's JSON format: {error!r}") from error
    return RateTable(rates, together)


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
