"""State of a Slurm cluster: its nodes, our jobs by attempt, and nodes on which an attempt may have processes."""

import logging
import secrets
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from engines.protocol import EngineError, EngineUnreachable
from engines.slurm.commands import SlurmCommands
from engines.slurm.drains import DrainChange, drain_changes
from engines.slurm.foreign_use import with_partition, with_reservations
from engines.slurm.parsing import Allocation, SlurmJob, SlurmNode

log = logging.getLogger(__name__)


class Site:
    """A cluster, seen by the service whose files lie in `root`; of its nodes those of `partition`, if one is named."""

    def __init__(self, slurm: SlurmCommands, *, root: Path, partition: str, reservation: str) -> None:
        self.slurm = slurm
        self._root = root
        self._partition = partition
        self._reservation = reservation
        self._known: dict[str, SlurmNode] = {}

    def nodes(self) -> dict[str, SlurmNode]:
        """The nodes by their names in Motley, polled again."""
        found = [node for node in self.slurm.nodes() if not self._partition or self._partition in node.partitions]
        free = with_reservations(found, self.slurm.reservations(), own=self._reservation)
        open_ones = with_partition(free, self.slurm.partitions(), own=self._partition)
        self._known = {node.name.lower(): node for node in open_ones}
        return self._known

    def node(self, name: str) -> SlurmNode:
        node = self._known.get(name) or self.nodes().get(name)
        if node is None:
            raise EngineError(f"Slurm knows no node {name}: see `scontrol show node`, or remove it from the inventory.")
        return node

    def jobs(self) -> dict[int, list[SlurmJob]]:
        """Our Slurm jobs by attempt, the active and the newest first."""
        found = self.slurm.jobs(self.job_name(""))
        return {
            self.attempt_of(name): sorted(jobs, key=lambda job: (not job.is_active, -job.number))
            for name, jobs in found.items()
        }

    def allocations(self) -> list[Allocation]:
        """Resources of our Slurm jobs on their nodes."""
        return self.slurm.allocations(self.job_name(""))

    def accounted(self, number: int) -> list[SlurmJob]:
        """Records of a job in Slurm's accounting; empty if there is no accounting, or it does not answer."""
        try:
            return self.slurm.accounted(number, self.job_name(""))
        except EngineError as error:
            log.warning("the accounting of Slurm does not answer: %s", error)
            return []

    def attempt_of(self, job_name: str) -> int:
        return int(job_name.removeprefix(self.job_name("")))

    def job_name(self, attempt: int | str) -> str:
        return f"motley-{self._instance}-{attempt}"

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Make Motley's own drains those of `wanted`; returns the nodes of which Slurm refused it, and why."""
        refusals: dict[str, str] = {}
        for change in drain_changes(self._known, wanted, mark=self.drain_mark):
            try:
                self._set_drain(change)
            except EngineUnreachable:
                raise
            except EngineError as error:
                verb = "drain" if change.note else "end the drain of"
                refusals |= dict.fromkeys(change.nodes, f"Slurm refused to {verb} it: {error}")
        return refusals

    @property
    def drain_mark(self) -> str:
        """Beginning of the reason of a drain of ours."""
        return f"Motley {self._instance}:"

    def unproven(self, names: Iterable[str]) -> list[str]:
        """The nodes on which an attempt that Slurm has ended may still have processes."""
        suspects = list(names)
        known = self.nodes() if suspects else {}
        return [name for name in suspects if name not in known or not _has_ended_all(known[name])]

    def is_down(self, name: str) -> bool:
        """Whether the node did not respond to Slurm at the last poll."""
        node = self._known.get(name)
        return node is None or not node.state.is_heard

    def _set_drain(self, change: DrainChange) -> None:
        names = [self._known[name].name for name in change.nodes]
        if change.note:
            self.slurm.drain(names, change.note)
        else:
            self.slurm.undrain(names)

    @cached_property
    def kill_wait_s(self) -> float:
        """Seconds between SIGTERM and SIGKILL where Slurm ends a job."""
        words = self.slurm.config().get("KillWait", "30 sec").split()
        return float(words[0])

    @cached_property
    def _instance(self) -> str:
        """Random name of this service among those that use the same cluster."""
        path = self._root / "instance"
        try:
            with path.open("x") as file:
                file.write(secrets.token_hex(4))
        except FileExistsError:
            pass
        return path.read_text()


def _has_ended_all(node: SlurmNode) -> bool:
    return node.state.is_heard and "COMPLETING" not in node.flags
