"""Rates of GPU types that a person gives in a small file: relative speeds, or steps/s of workloads.

As CSV, `gpu_type,speed` or `workload,gpu_type,steps_per_s` with, if wanted, `gpus` (1). As YAML, a map of types, or a
map of workloads to such maps: `{a100: 2.5, v100: 1}` or `{resnet50: {a100: 310, v100: 120}}`. Speeds hold for every
workload that the file does not name. Between numbers of GPUs the scaling law holds. Names of types are compared
without regard to case.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from estimation.scaling import scaling_law
from simulation.cluster import Placement
from simulation.traces.trace import KnownRate, Program
from simulation.workloads.rate_sources import InvalidTable, UnknownWorkload

YAML_SUFFIXES = frozenset({".yaml", ".yml"})
SPEEDS, WORKLOADS = ("gpu_type", "speed"), ("workload", "gpu_type", "steps_per_s")
EXAMPLE = "write gpu_type,speed and lines such as a100,2.5; or workload,gpu_type,steps_per_s and resnet50,a100,310"
YAML_EXAMPLE = "write types with their speeds, a100: 2.5, or workloads with such maps, resnet50: {a100: 310}"


class _Row(NamedTuple):
    """A rate, and of which workload, None: of any."""

    workload: str | None
    known: KnownRate


@dataclass(frozen=True)
class GivenRates:
    """Rates by workload, those of any other workload, and of what file they are."""

    name: str
    of_workload: Mapping[str, Sequence[KnownRate]] = field(default_factory=dict)
    of_any: Sequence[KnownRate] = ()

    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        """Rate by the known one of this type on the nearest number of GPUs; 0: the file has none of this type."""
        known = [rate for rate in self._known(program) if rate.gpu_type == gpu_type.casefold()]
        if not known:
            return 0.0
        nearest = min(known, key=lambda rate: abs(rate.gpus - sum(placement)))
        return nearest.steps_per_s * _scaled(sum(placement), len(placement)) / _scaled(nearest.gpus, 1)

    def _known(self, program: Program) -> Sequence[KnownRate]:
        known = self.of_workload.get(program.workload or "", self.of_any)
        if not known:
            raise UnknownWorkload(program.workload)
        return known

    def missing(self, gpu_types: Iterable[str]) -> list[str]:
        """Types of which the file has no rate of any workload."""
        there = {rate.gpu_type for rates in (self.of_any, *self.of_workload.values()) for rate in rates}
        return [gpu_type for gpu_type in gpu_types if gpu_type.casefold() not in there]


def read_rates(path: Path) -> GivenRates:
    """Read the file as YAML by its suffix, else as CSV; raises InvalidTable with the line and what to write."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidTable(f"{path} is not text in UTF-8: {error}") from error
    rows = list(_of_yaml(text, path) if path.suffix in YAML_SUFFIXES else _of_csv(text, path))
    if not rows:
        raise InvalidTable(f"{path} has no rates: {EXAMPLE}")
    workloads = dict.fromkeys(row.workload for row in rows)
    by_workload = {name: [row.known for row in rows if row.workload == name] for name in workloads}
    return GivenRates(str(path), {k: v for k, v in by_workload.items() if k is not None}, by_workload.get(None, ()))


def _of_csv(text: str, path: Path) -> Iterator[_Row]:
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    header = set(rows.fieldnames or ())
    if not (header.issuperset(SPEEDS) or header.issuperset(WORKLOADS)):
        raise InvalidTable(f"{path}, line 1: the header '{','.join(rows.fieldnames or ()):.60}' is unknown: {EXAMPLE}")
    value = "speed" if header.issuperset(SPEEDS) else "steps_per_s"
    for row in rows:
        place = f"{path}, line {rows.line_num}"
        gpus = _number(row.get("gpus") or 1, f"{place}: gpus")
        rate = _number(row[value], f"{place}: {value}")
        if gpus != int(gpus) or not (row["gpu_type"] or "").strip():
            raise InvalidTable(f"{place}: gpu_type must not be empty, and gpus a whole number")
        workload = (row.get("workload") or "").strip() or None
        yield _Row(workload, KnownRate(row["gpu_type"].strip().casefold(), int(gpus), rate))


def _of_yaml(text: str, path: Path) -> Iterator[_Row]:
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidTable(f"{path} is not YAML: {error}; {YAML_EXAMPLE}") from error
    if not isinstance(given, dict):
        raise InvalidTable(f"{path} is not a map: {YAML_EXAMPLE}")
    for name, value in given.items():
        if not isinstance(value, dict):
            yield _Row(None, KnownRate(str(name).casefold(), 1, _number(value, f"{path}: {name}")))
            continue
        for gpu_type, rate in value.items():
            known = KnownRate(str(gpu_type).casefold(), 1, _number(rate, f"{path}: {name}: {gpu_type}"))
            yield _Row(str(name), known)


def _number(value: object, place: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise InvalidTable(f"{place} '{value!s:.40}' is not a number") from None
    if not (isfinite(number) and number > 0):
        raise InvalidTable(f"{place} {value!s:.40} is not a positive number")
    return number


def _scaled(gpus: int, nodes: int) -> float:
    return float(scaling_law(np.array(gpus), np.array(nodes)))
