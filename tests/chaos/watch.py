"""Watch of the processes of jobs: two attempts of a rank, or two jobs on a GPU, are never alive at once."""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.chaos.ledger import MARK
from tests.deployment import others, told

POLL_S = 0.2
SERVER = re.compile(r"/(gpu[0-9]+)/agent/engine/")
"""In the path of a checkpoint folder on a server of the site: each has a folder of its own."""
STILL_THERE_S = 0.5
"""A process that was sent SIGKILL is seen for a moment: only what is alive after this time is taken for a violation."""


class Running(NamedTuple):
    """A process of a job, as it is found on the machine."""

    pid: int
    job: str
    attempt: str
    rank: str
    gpus: frozenset[str]
    """As node/device."""


class Watch(threading.Thread):
    """Looks at the processes of jobs again and again: two attempts of a rank, or two jobs on a GPU, are a violation."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.violations: list[str] = []
        self._root = str(root)
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(POLL_S):
            if together := self._together():
                time.sleep(STILL_THERE_S)
                for violation in sorted(together & self._together()):
                    say(f"VIOLATION {violation}")
                    self.violations.append(violation)

    def end(self) -> list[str]:
        self._done.set()
        self.join()
        return list(dict.fromkeys(self.violations))

    def _together(self) -> set[str]:
        places: dict[str, set[Running]] = defaultdict(set)
        for one in job_processes(self._root):
            for place in {f"rank {one.rank} of {one.job}", *(f"GPU {gpu}" for gpu in one.gpus)}:
                places[place].add(one)
        return {f"{place}: {sorted(its)}" for place, its in places.items() if len(its) > 1}


def job_processes(root: str) -> Iterator[Running]:
    """Processes of jobs whose files lie below `root`."""
    for pid in others():
        if MARK not in told(pid, "cmdline"):
            continue
        env = environment(pid)
        if env.get("MOTLEY_CHECKPOINT_DIR", "").startswith(root) and "CUDA_VISIBLE_DEVICES" in env:
            devices = env["CUDA_VISIBLE_DEVICES"].split(",")
            gpus = frozenset(f"{node_of(env)}/{device}" for device in devices)
            yield Running(pid, env["MOTLEY_JOB_ID"], env["MOTLEY_ATTEMPT"], env["MOTLEY_NODE_RANK"], gpus)


def node_of(env: Mapping[str, str]) -> str:
    """Emulated nodes are told by their GPU type: a type that has several nodes is used by gangs over all of them."""
    if server := SERVER.search(env["MOTLEY_CHECKPOINT_DIR"]):
        return server[1]
    return env.get("SLURMD_NODENAME") or f"{env['MOTLEY_GPU_TYPE']}-{env['MOTLEY_NODE_RANK']}"


def environment(pid: int) -> dict[str, str]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    return {}


def ancestors(pid: int) -> Iterator[int]:
    """The process itself, its parent, and so on."""
    while pid:
        yield pid
        stat = told(pid, "stat").decode(errors="replace").rpartition(")")[2].split()
        pid = int(stat[1]) if stat else 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
