"""Slurm's texts: nodes and jobs as its commands print them, and its reasons in words. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engines.protocol import NodeState, SiteReason
from engines.slurm.node_states import ALLOCATED, node_state, state_flags

ACTIVE = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"),
        *("RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REVOKED"),
    }
)
"""States of a Slurm job that may still run or has processes."""
WAITING = frozenset({"PENDING", "CONFIGURING"})

ENDINGS = {
    "BOOT_FAIL": (SiteReason.NODE_FAILED, "A node could not be booted for it (BOOT_FAIL)."),
    "CANCELLED": (SiteReason.CANCELLED, "It was cancelled in Slurm, not by Motley."),
    "DEADLINE": (SiteReason.TIME_LIMIT, "Slurm's deadline ended it (DEADLINE)."),
    "NODE_FAIL": (SiteReason.NODE_FAILED, "A node failed under it (NODE_FAIL)."),
    "OUT_OF_MEMORY": (SiteReason.OUT_OF_MEMORY, "It used more memory than it was given (OUT_OF_MEMORY)."),
    "PREEMPTED": (SiteReason.PREEMPTED, "Slurm preempted it for another job (PREEMPTED)."),
    "TIMEOUT": (
        SiteReason.TIME_LIMIT,
        "The time limit of Slurm ended it (TIMEOUT): set the job's time limit below it.",
    ),
}
"""State of a Slurm job that the site ended → reason and words."""

_WAITING_REASONS = {
    "Resources": (SiteReason.WAITING_RESOURCES, "others use its GPUs, CPUs or memory (Resources)"),
    "Priority": (SiteReason.WAITING_RESOURCES, "jobs of higher priority are before it (Priority)"),
    "ReqNodeNotAvail": (SiteReason.WAITING_NODE, "a node is drained, reserved or down"),
    "Reservation": (SiteReason.WAITING_NODE, "it waits for a reservation (Reservation)"),
    "NodeDown": (SiteReason.WAITING_NODE, "a node is down (NodeDown)"),
    "PartitionDown": (SiteReason.HELD, "the partition is down (PartitionDown)"),
    "PartitionInactive": (SiteReason.HELD, "the partition is inactive (PartitionInactive)"),
    "PartitionConfig": (SiteReason.HELD, "it asks for more than the partition allows (PartitionConfig)"),
    "PartitionTimeLimit": (SiteReason.HELD, "its time limit is over the partition's (PartitionTimeLimit)"),
    "JobHeldAdmin": (SiteReason.HELD, "an administrator holds it (JobHeldAdmin)"),
    "JobHeldUser": (SiteReason.HELD, "it is held (JobHeldUser)"),
}
_FIELD = re.compile(r" (?=[A-Za-z]+=)")  # OS= contains spaces
_REASON = re.compile(r" Reason=(.*) \[[^\[\]]*@[^\[\]]*\](?= Comment=|$)")
"""Free text, with who set it and when."""


@dataclass(frozen=True)
class SlurmNode:
    """One node, as `scontrol show node -d -o` prints it."""

    name: str
    address: str
    gpus: dict[str, int]
    """GPU type as Slurm spells it → count; an untyped GPU has the type ""."""
    used_gpus: int
    cpus: int
    used_cpus: int
    memory_mib: int
    used_memory_mib: int
    state: NodeState
    reason: str
    """Why it is not ok, in words."""
    note: str
    """The reason that an administrator, or Motley, gave Slurm."""
    partitions: frozenset[str]
    flags: frozenset[str]
    cpus_per_core: int = 1
    """A core is given to one job alone, with all of its threads."""

    @property
    def gpu_type(self) -> str:
        return next(iter(self.gpus), "")

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())

    @property
    def is_allocated(self) -> bool:
        """Whether a job has resources of the node, or has not completely left it."""
        return bool(self.flags & ALLOCATED)


@dataclass(frozen=True)
class Partition:
    """A partition; jobs start in one that is `UP`."""

    name: str
    is_default: bool
    state: str


@dataclass(frozen=True)
class SlurmJob:
    """One job, as squeue prints it."""

    number: int
    name: str
    state: str
    reason: str
    nodes: str

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING


@dataclass(frozen=True)
class Allocation:
    """Resources of a Slurm job, or of a component of a heterogeneous one, on each of its nodes."""

    name: str
    component: int
    cpus: int
    memory_mib: int


@dataclass(frozen=True)
class Reservation:
    """A reservation of whole nodes."""

    name: str
    is_active: bool
    until: str
    nodes: frozenset[str]
    flags: frozenset[str]


JOB_FORMAT = "%i|%T|%r|%N|%j"
ACCOUNTED_FORMAT = "JobID,State,Reason,NodeList,JobName"
"""The name is last: jobs that are not ours may have any name."""


def parse_jobs(text: str, prefix: str) -> Iterator[SlurmJob]:
    """Jobs named by the prefix and a number, in lines of `squeue -o JOB_FORMAT` or `sacct -P -o ACCOUNTED_FORMAT`.

    The components 7+0 and 7+1 of a heterogeneous job are job 7; the state may be `CANCELLED by 1000`. Other jobs of
    the account, such as tasks of arrays (`17_[3-9]`), are passed over.
    """
    line = re.compile(rf"(\d+)(?:\+\d+)?\|(\w+)[^|]*\|([^|]*)\|([^|]*)\|({re.escape(prefix)}-?\d+)", re.ASCII)
    for found in filter(None, map(line.fullmatch, text.splitlines())):
        number, state, reason, nodes, name = found.groups()
        yield SlurmJob(int(number), name, state, "" if reason == "None" else reason, nodes)


ALLOCATION_FORMAT = "Name:100,HetJobOffset:10,NumNodes:10,tres-alloc:200"
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


def parse_allocations(text: str, prefix: str) -> Iterator[Allocation]:
    """Of jobs named by the prefix and a number, in lines of `squeue -O` with `ALLOCATION_FORMAT`.

    All nodes of a component have the same of it.
    """
    line = re.compile(rf"({re.escape(prefix)}-?\d+)\s+(\S+)\s+(\d+)\s+(\S+)\s*", re.ASCII)
    for found in filter(None, map(line.fullmatch, text.splitlines())):
        name, offset, nodes, tres = found.groups()
        amounts = dict(re.findall(r"([^=,]+)=([^,]*)", tres))
        cpus, memory_mib = int(amounts.get("cpu", 0)), _mib(amounts.get("mem", "0M"))
        component = int(offset) if offset.isdigit() else 0
        yield Allocation(name, component, cpus // int(nodes), int(memory_mib / int(nodes)))


def _mib(text: str) -> float:
    """MiB of an amount such as `7.50G`."""
    return float(text[:-1]) * _MIB[text[-1]] if text[-1] in _MIB else float(text)


def parse_partitions(text: str) -> list[Partition]:
    """Lines of `scontrol show partition -o`."""
    lines = [line for line in text.splitlines() if line.startswith("PartitionName=")]
    found = [dict(re.findall(r"\b(\w+)=(\S*)", line)) for line in lines]
    return [Partition(one["PartitionName"], one.get("Default") == "YES", one.get("State", "UP")) for one in found]


def parse_reservations(text: str) -> list[Reservation]:
    """Lines of `scontrol show reservation -o`, without reservations of single cores, licences or burst buffers."""
    lines = [line for line in text.splitlines() if line.startswith("ReservationName=") and " CoreIDs=" not in line]
    return [_reservation(dict(re.findall(r"\b(\w+)=(\S*)", line))) for line in lines]


def _reservation(fields: dict[str, str]) -> Reservation:
    return Reservation(
        name=fields["ReservationName"],
        is_active=fields["State"] == "ACTIVE",
        until=fields["EndTime"],
        nodes=frozenset(expand_hosts(fields["Nodes"])) - {"(null)"},
        flags=frozenset(fields["Flags"].split(",")),
    )


def expand_hosts(text: str) -> list[str]:
    """Names in a list of hosts such as `n[1-2,07],login`."""
    return [name for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text) for name in _expand_one(part)]


def _expand_one(part: str) -> list[str]:
    found = re.search(r"\[([^\]]*)\]", part)
    if found is None:
        return [part]
    return [
        name
        for number in expand_numbers(found.group(1))
        for name in _expand_one(part[: found.start()] + number + part[found.end() :])
    ]


def expand_numbers(text: str) -> list[str]:
    """Numbers in a list such as `0-1,3`, with their leading zeros."""
    return [number for span in text.split(",") for number in _numbers_in(span)]


def _numbers_in(span: str) -> list[str]:
    first, _, last = span.partition("-")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last or first) + 1)]


def parse_node(line: str) -> SlurmNode:
    """A line of `scontrol show node -d -o`."""
    said = _REASON.search(line.rstrip())
    facts = line[: said.start()] if said else line
    fields = dict(part.strip().split("=", 1) for part in _FIELD.split(facts.strip()))
    flags = state_flags(fields["State"])
    gpus = parse_gpus(fields.get("Gres", ""))
    note = said.group(1) if said else fields.get("Reason", "")
    state, reason = node_state(flags, note, gpus)
    return SlurmNode(
        name=fields["NodeName"],
        address=fields.get("NodeAddr") or fields.get("NodeHostName") or fields["NodeName"],
        gpus=gpus,
        used_gpus=sum(parse_gpus(fields.get("GresUsed", "")).values()),
        cpus=int(fields["CPUTot"]),
        used_cpus=int(fields.get("CPUAlloc", 0)),
        memory_mib=int(fields["RealMemory"]),
        used_memory_mib=int(fields.get("AllocMem", 0)),
        state=state,
        reason=reason,
        note=note,
        partitions=frozenset(fields.get("Partitions", "").split(",")),
        flags=flags,
        cpus_per_core=_cpus_per_core(fields),
    )


def _cpus_per_core(fields: Mapping[str, str]) -> int:
    """Threads of a core, where these are what Slurm counts as CPUs; 1 where it counts cores."""
    cores = int(fields.get("Sockets", 0)) * int(fields.get("CoresPerSocket", 0))
    threads = int(fields.get("ThreadsPerCore", 1))
    return threads if cores and int(fields["CPUTot"]) >= cores * threads else 1


def parse_gpus(gres: str) -> dict[str, int]:
    """GPU types with their counts in a text of generic resources: `gpu:a100:4(S:0-1),shard:8` is 4 of a100."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", gres).split(","):
        kind, *rest = part.split(":")
        if kind != "gpu":
            continue
        count = rest.pop() if rest and rest[-1].isdigit() else "1"
        name = rest[0] if rest else ""
        found[name] = found.get(name, 0) + int(count)
    return {name: count for name, count in found.items() if count}


def waiting_reason(reason: str) -> tuple[SiteReason, str]:
    """Reason of a pending job as a code and in words."""
    first = re.split(r"[,\s]", reason, maxsplit=1)[0]
    code, words = _WAITING_REASONS.get(first, (SiteReason.HELD, f"Slurm's reason is {reason}"))
    detail = f" ({reason})" if first == "ReqNodeNotAvail" else ""
    return code, f"Slurm has not started it: {words}{detail}."
