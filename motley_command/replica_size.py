"""GPUs that one replica of a model needs, from its size and the memory of GPU types: a proposal for a job's spec."""

import re
from collections.abc import Iterable, Mapping

from motley_client.spec import SpecError
from motley_command.units import mib_per

BYTES_PER_PARAMETER = 16
"""Mixed precision with Adam: weights and gradients of 2 bytes, and 12 of weights and moments in single precision."""
USABLE = 0.7
"""Part of a GPU's memory for them; the rest is for activations and buffers."""
MOST = 64
"""GPUs of a replica beyond which none is proposed."""
THOUSANDS = {"M": 10**6, "B": 10**9, "T": 10**12}


def model_memory_mib(text: str) -> float:
    """Memory of a model in training: `13B` parameters, or `120GiB` as it is."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text.strip())
    if match and match[2] in THOUSANDS:
        return float(match[1]) * THOUSANDS[match[2]] * BYTES_PER_PARAMETER / 1024**2
    if match and (mib := mib_per(match[2])):
        return float(match[1]) * mib
    raise SpecError(f"{text}: expected parameters, e.g. 13B, or memory, e.g. 120GiB.")


def proposed_size(memory_mib: float, gpu_memory_mib: Mapping[str, int]) -> dict[str, int]:
    """The fewest GPUs of each type, a power of two, whose memory holds the model.

    A power of two divides most layers' widths and most nodes evenly; types that need too many GPUs are left out.
    """
    sizes = {name: _fewest(memory_mib / (USABLE * memory)) for name, memory in gpu_memory_mib.items() if memory}
    return {name: size for name, size in sizes.items() if size <= MOST}


def written(size: Mapping[str, int]) -> str:
    """As a line of a job's file: gpus_per_replica: {a100: 2, v100: 4}."""
    return f"gpus_per_replica: {{{', '.join(f'{name}: {gpus}' for name, gpus in size.items())}}}"


def memory_by_type(kinds: Iterable[Mapping[str, object]]) -> dict[str, int]:
    """Memory by GPU type, as the service lists types."""
    return {str(kind["name"]): int(str(kind["memory_mib"] or 0)) for kind in kinds}


def _fewest(gpus: float) -> int:
    size = 1
    while size < gpus:
        size *= 2
    return size
