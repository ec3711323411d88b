"""GPU types as their makers specify them: the one table that the service, the demo and the simulator read.

It lies here because the simulator may import no Django app, and the scheduler imports the estimation anyway.
"""

from dataclasses import dataclass

from estimation.profile import GpuSpec

CLOUD = "Google Cloud, list price on demand of the GPU alone"


@dataclass(frozen=True)
class GpuSpecification:
    """A GPU type's figures with their sources; the price is an example, to be edited in the admin."""

    spec: GpuSpec
    power_w: float
    source: str
    price_per_hour: float | None = None
    """Dollars per GPU and hour; None: no public price is recorded."""
    price_source: str = ""


def _datasheet(name: str) -> str:
    return f"NVIDIA {name} data sheet: dense half precision (single where half is no faster), bandwidth, memory, power"


GPU_SPECIFICATIONS = {
    entry.spec.name: entry
    for entry in (
        GpuSpecification(GpuSpec("k80", 4.1, 240, 12_288), 150, _datasheet("Tesla K80, one of two"), 0.45, CLOUD),
        GpuSpecification(GpuSpec("m60", 4.8, 160, 8_192), 150, _datasheet("Tesla M60, one of two")),
        GpuSpecification(GpuSpec("p4", 5.5, 192, 8_192), 75, _datasheet("Tesla P4"), 0.60, CLOUD),
        GpuSpecification(GpuSpec("p100", 21.2, 732, 16_384), 300, _datasheet("Tesla P100 SXM2"), 1.46, CLOUD),
        GpuSpecification(GpuSpec("v100", 125, 900, 16_384), 300, _datasheet("Tesla V100 SXM2"), 2.48, CLOUD),
        GpuSpecification(GpuSpec("rtx2080ti", 54, 616, 11_264), 250, _datasheet("Turing architecture, RTX 2080 Ti")),
        GpuSpecification(GpuSpec("t4", 65, 320, 16_384), 70, _datasheet("T4"), 0.35, CLOUD),
        GpuSpecification(GpuSpec("a10", 125, 600, 24_576), 150, _datasheet("A10")),
        GpuSpecification(GpuSpec("a30", 165, 933, 24_576), 165, _datasheet("A30")),
        GpuSpecification(GpuSpec("a100", 312, 1555, 40_960), 400, _datasheet("A100 SXM4, 40 GB"), 2.93, CLOUD),
        GpuSpecification(GpuSpec("l4", 121, 300, 24_576), 72, _datasheet("L4")),
        GpuSpecification(GpuSpec("h100", 989, 3350, 81_920), 700, _datasheet("H100 SXM5")),
        GpuSpecification(GpuSpec("h200", 989, 4800, 144_384), 700, _datasheet("H200 SXM5")),
    )
}
