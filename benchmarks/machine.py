"""What else the machine did while something was measured on it."""

from collections.abc import Callable
from pathlib import Path

TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Of all processors together, as /proc/stat has them."""
UNWANTED = ("idle", "iowait")


def watch_thefts() -> Callable[[], float]:
    """Gives the share of the processors' time that was wanted from now on and that the hypervisor gave to others."""
    began = _ticks()

    def stolen() -> float:
        spent = {name: ticks - began[name] for name, ticks in _ticks().items()}
        wanted = sum(ticks for name, ticks in spent.items() if name not in UNWANTED)
        return spent["steal"] / wanted if wanted else 0.0

    return stolen


def _ticks() -> dict[str, int]:
    first, *_ = Path("/proc/stat").read_text().splitlines()
    return dict(zip(TIMES, map(int, first.split()[1:]), strict=False))
