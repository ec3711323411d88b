"""Slurm's commands, each with a time limit; a cluster that does not answer is distinguished from one that refuses."""

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from engines.protocol import EngineError, EngineUnreachable
from engines.slurm.parsing import (
    ACCOUNTED_FORMAT,
    ALLOCATION_FORMAT,
    JOB_FORMAT,
    Allocation,
    Partition,
    Reservation,
    SlurmJob,
    SlurmNode,
    parse_allocations,
    parse_jobs,
    parse_node,
    parse_partitions,
    parse_reservations,
)

ALLOCATED = "CONFIGURING,RUNNING,COMPLETING,SUSPENDED,STOPPED,SIGNALING,STAGE_OUT,RESIZING"
"""States of jobs that have their nodes."""
SEARCH_PATH = "/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_NO_ANSWER = re.compile(
    r"unable to contact|socket timed out|connection refused|connect failure|timed out|temporarily unable|"
    r"zero bytes|transport endpoint|authentication|munge|try again|in standby mode|unexpected message",
    re.IGNORECASE,
)


class SlurmCommands:
    """The commands of one cluster; `conf` is its slurm.conf, None the system's."""

    def __init__(self, *, conf: Path | None = None, timeout_s: float = 20.0) -> None:
        self.env = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"} | ({"SLURM_CONF": str(conf)} if conf else {})
        if conf is None and "SLURM_CONF" in os.environ:
            self.env["SLURM_CONF"] = os.environ["SLURM_CONF"]
        self._timeout_s = timeout_s

    def nodes(self) -> list[SlurmNode]:
        lines = self._run("scontrol", "show", "node", "-d", "-o").splitlines()
        return [parse_node(line) for line in lines if line.startswith("NodeName=")]

    def jobs(self, prefix: str) -> dict[str, list[SlurmJob]]:
        """Our jobs named by the prefix and a number, by name; also ended ones, as long as Slurm remembers them."""
        found: dict[str, list[SlurmJob]] = defaultdict(list)
        for job in parse_jobs(self._run("squeue", "-h", "-t", "all", "--me", "-o", JOB_FORMAT), prefix):
            found[job.name].append(job)
        return found

    def accounted(self, number: int, prefix: str) -> list[SlurmJob]:
        """The job in Slurm's accounting, the newest start first; nothing where there is no accounting."""
        if not self._has_accounting:
            return []
        text = self._run("sacct", "-X", "-n", "-P", "-D", "-j", str(number), "-o", ACCOUNTED_FORMAT)
        return list(parse_jobs(text, prefix))[::-1]

    @cached_property
    def _has_accounting(self) -> bool:
        return self.config().get("AccountingStorageType", "").endswith("slurmdbd")

    def allocations(self, prefix: str) -> list[Allocation]:
        """Resources on their nodes of our jobs named by the prefix and a number."""
        text = self._run("squeue", "-h", "-t", ALLOCATED, "--me", "-O", ALLOCATION_FORMAT)
        return list(parse_allocations(text, prefix))

    def reservations(self) -> list[Reservation]:
        return parse_reservations(self._run("scontrol", "show", "reservation", "-o"))

    def partitions(self) -> list[Partition]:
        return parse_partitions(self._run("scontrol", "show", "partition", "-o"))

    def submit(self, options: Sequence[str], script: str) -> int:
        """Number of the new job. Nothing of our environment is passed on: Slurm would store it in clear."""
        answer = self._run("sbatch", "--parsable", "--no-requeue", "--export=NIL", *options, text=script)
        return int(answer.strip().split(";")[0])

    def cancel(self, numbers: Iterable[int], *options: str) -> None:
        if words := [str(number) for number in numbers]:
            self._run("scancel", *options, *words)

    def drain(self, nodes: Iterable[str], note: str) -> None:
        self._run("scontrol", "update", f"NodeName={','.join(nodes)}", "State=DRAIN", f"Reason={note}")

    def undrain(self, nodes: Iterable[str]) -> None:
        """End the drain; unlike State=RESUME it brings up no node that is down."""
        self._run("scontrol", "update", f"NodeName={','.join(nodes)}", "State=UNDRAIN")

    def node(self, name: str) -> SlurmNode:
        return parse_node(self._run("scontrol", "show", "node", "-d", "-o", name).splitlines()[0])

    def set_power(self, name: str, state: str) -> None:
        self._run("scontrol", "update", f"NodeName={name}", f"State={state}")

    def config(self) -> dict[str, str]:
        """The cluster's configuration."""
        pairs = (line.split("=", 1) for line in self._run("scontrol", "show", "config").splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, value in pairs}

    def _run(self, *argv: str, text: str = "") -> str:
        try:
            done = subprocess.run(  # noqa: S603 - words of ours and of the inventory, through no shell
                argv, input=text, capture_output=True, text=True, env=self.env, timeout=self._timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise EngineUnreachable(
                f"{argv[0]} did not answer within {self._timeout_s:g} s: check that slurmctld runs."
            ) from None
        except FileNotFoundError:
            raise EngineError(
                f"{argv[0]} is not installed on this machine: install Slurm's client commands (slurm-client)."
            ) from None
        if done.returncode:
            said = done.stderr.strip()[-500:]
            kind = EngineUnreachable if _NO_ANSWER.search(said) else EngineError
            raise kind(f"{argv[0]} said: {said}")
        return done.stdout
