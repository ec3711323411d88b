"""Samples of the GPUs of ranks: written on the nodes by `engines.slurm.sampler`, read by the service."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from engines.agent.codec import decode, encode
from engines.attempt_files import read_json
from engines.protocol import GpuReading, WatchedGpu
from engines.slurm.files import SlurmFiles
from engines.supervision.engine_root import EngineRoot

MOST_REMEMBERED = 10_000
"""Ranks of which the last sample is known; beyond, all are forgotten, and the last sample of some is read twice."""


@dataclass(frozen=True)
class RankSample:
    """Sample of the GPUs of a rank; new ones are recognised by number, so that no two clocks are compared."""

    number: int
    gpus: Mapping[int, GpuReading]
    """As Slurm numbers them."""


def write_sample(path: Path, sample: RankSample) -> None:
    """Replace the sample before; one that a full or slow disk does not take is missing, and nothing waits for it."""
    beside = path.with_name(f".{path.name}")
    with suppress(OSError):
        beside.write_text(json.dumps(encode(sample)))
        beside.replace(path)


class Samples:
    """Reads the samples below `root`, each of them once."""

    def __init__(self, root: EngineRoot) -> None:
        self._root = root
        self._last: dict[tuple[int, int], int] = {}

    def read(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        """New readings of GPUs that Slurm gave to the attempts which have claims on their nodes."""
        numbers = {(gpu.node, gpu.index): gpu.gpu for gpu in gpus}
        nodes: dict[int, set[str]] = defaultdict(set)
        for gpu in gpus:
            if gpu.attempt is not None and not gpu.emulated:
                nodes[gpu.attempt].add(gpu.node)
        return [
            replace(reading, gpu=numbers[node, index], attempt=attempt)
            for attempt, its in nodes.items()
            for node, sample in self._new(attempt, its)
            for index, reading in sample.gpus.items()
            if (node, index) in numbers
        ]

    def _new(self, attempt: int, nodes: set[str]) -> Iterator[tuple[str, RankSample]]:
        """Node and sample of each rank on these nodes that has a new one."""
        files = SlurmFiles(self._root.attempt(attempt))
        site = files.read_launch()
        for rank, name in enumerate(site["nodes"] if site is not None else ()):
            sample = _read(files.samples(rank)) if name.lower() in nodes else None
            if sample is not None and self._is_new(attempt, rank, sample):
                yield name.lower(), sample

    def _is_new(self, attempt: int, rank: int, sample: RankSample) -> bool:
        if len(self._last) > MOST_REMEMBERED:
            self._last.clear()
        before, self._last[attempt, rank] = self._last.get((attempt, rank)), sample.number
        return sample.number != before


def _read(path: Path) -> RankSample | None:
    """The sample; None if there is none, or it cannot be parsed."""
    try:
        return decode(RankSample, read_json(path))
    except (OSError, ValueError):
        return None
