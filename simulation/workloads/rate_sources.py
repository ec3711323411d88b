"""Sources of true rates in steps/s: tables, or the specification of a GPU type. Policies see only estimates of them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from estimation.gpu_specifications import GPU_SPECIFICATIONS, GpuSpecification
from estimation.scaling import scaling_law
from simulation.cluster import Placement
from simulation.traces.trace import UNKNOWN, KnownRate, Program

GAVEL_KEY = re.compile(r"\('(?P<workload>.*)', (?P<gpus>\d+)\)")
REFERENCE = "v100"


class UnknownWorkload(KeyError):
    """The workload has no known rate."""

    def __str__(self) -> str:
        return f"the table has no rates of the workload '{self.args[0]}'"


class UnknownGpuType(KeyError):
    """Unknown GPU type; the message lists the known ones."""

    def __str__(self) -> str:
        return f"unknown GPU type '{self.args[0]}'; the known ones are {', '.join(GPU_SPECIFICATIONS)}"


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
    """Read a file in Gavel's JSON format."""
    return parse_gavel_table(path.read_text(), name=str(path))


def parse_gavel_table(text: str, *, name: str) -> RateTable:
    """Parse Gavel's JSON: type → "('workload', gpus)" → rate alone under "null", rates of pairs by the other's key.

    InvalidTable calls the table by the name.
    """
    rates: dict[str, dict[tuple[str, int], float]] = {}
    together: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
    try:
        for gpu_type, rows in json.loads(text).items():
            for key, row in rows.items():
                workload, gpus = _read_key(key)
                rates.setdefault(workload, {})[gpu_type, gpus] = float(row["null"])
                for other, rate in _read_pairs(row, gpus):
                    together.setdefault((workload, other), {})[gpu_type, gpus] = rate
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidTable(f"{name} is not a table of rates in Gavel's JSON format: {error!r}") from error
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


MEMORY = re.compile(r"m\d+$")
"""End of a type's name in Alibaba's traces: V100M16 has 16 GiB, V100M32 has 32."""


def data_sheet(gpu_type: str) -> GpuSpecification | None:
    """Figures of a GPU type by its name, without regard to case and to the memory that the name ends with."""
    name = gpu_type.casefold()
    return GPU_SPECIFICATIONS.get(name) or GPU_SPECIFICATIONS.get(MEMORY.sub("", name))


@dataclass(frozen=True)
class BySpeed:
    """Rates of any program from the speed of the GPU type and the scaling law; one V100 does a step per second."""

    taken_as_reference: frozenset[str] = frozenset()
    """Types without a data sheet that are taken to be as fast as a V100."""

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        sheet = data_sheet(REFERENCE if gpu_type in self.taken_as_reference else gpu_type)
        if sheet is None:
            raise UnknownGpuType(gpu_type)
        faster = sheet.spec.speed / GPU_SPECIFICATIONS[REFERENCE].spec.speed
        return faster * float(scaling_law(np.array(sum(placement)), np.array(len(placement))))


@dataclass(frozen=True)
class TracedRates:
    """Rates that the trace tells of a job; those of a job of which it tells none are as in the other source.

    On other numbers of GPUs, and on other types, a job is as much faster or slower than at its nearest known rate as
    the data sheets and the scaling law say; on a type without a data sheet it cannot run unless its rate is known.
    """

    others: RateSource

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        if not program.rates:
            return self.others.rate(program, gpu_type, placement)
        known = min(program.rates, key=lambda known: _distance(known, gpu_type, sum(placement)))
        if (known.gpu_type, known.gpus) == (gpu_type, sum(placement)):
            return known.steps_per_s
        if known.gpu_type != gpu_type and None in (data_sheet(known.gpu_type), data_sheet(gpu_type)):
            return 0.0
        return known.steps_per_s * _speed(gpu_type, placement) / _speed(known.gpu_type, (known.gpus,))


def _distance(known: KnownRate, gpu_type: str, gpus: int) -> tuple[bool, int, float]:
    """Rates of the same type are nearest, then those of as many GPUs, then the fastest."""
    return known.gpu_type != gpu_type, abs(known.gpus - gpus), -known.steps_per_s


def _speed(gpu_type: str, placement: Placement) -> float:
    """Rate by the data sheet; of a type that has none, as if it were the reference."""
    return BySpeed().rate(UNKNOWN, gpu_type if data_sheet(gpu_type) else REFERENCE, placement)


def known_prices(gpu_types: Sequence[str]) -> list[float] | None:
    """Dollars per GPU-hour of each type, or None if one is unknown."""
    prices = [sheet.price_per_hour if (sheet := data_sheet(name)) else None for name in gpu_types]
    known = [price for price in prices if price is not None]
    return known if len(known) == len(prices) else None
