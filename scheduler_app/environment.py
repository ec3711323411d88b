"""The environment that a job's processes start with. Pure; the engine adds the paths that only it knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.protocol import Launch, Task


@dataclass(frozen=True)
class Seat:
    """One GPU of a gang: on which node, at which place, and its UUID where it is real."""

    node: str
    index: int
    uuid: str
    emulated: bool


@dataclass(frozen=True)
class Run:
    """What is to be launched."""

    attempt: int
    number: int
    job: str
    name: str
    team: str
    command: str | Sequence[str]
    env: dict[str, str]
    gpu_type: str
    seats: Sequence[Seat]
    master_port: int
    rate: float
    """Its own steps/s that the round counts on."""
    batch_size: int
    """Samples of a step; 0: the job's own affair."""
    micro_batches: int
    resume: bool
    grace_s: int
    array_index: int | None
    api_url: str
    job_token: str


def tasks_of(run: Run) -> list[Task]:
    """One task per node, in the order of ranks."""
    nodes = list(dict.fromkeys(seat.node for seat in run.seats))
    return [Task(node, _of_node(run, rank, nodes)) for rank, node in enumerate(nodes)]


def shared_env(run: Run) -> dict[str, str]:
    """What every node of the gang is told; what Motley says comes before what the job asked for."""
    motley = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MOTLEY_JOB_ID": run.job,
        "MOTLEY_JOB_NAME": run.name,
        "MOTLEY_ATTEMPT": str(run.number),
        "MOTLEY_TEAM": run.team,
        "MOTLEY_GPU_TYPE": run.gpu_type,
        "MOTLEY_WORLD_SIZE": str(len(run.seats)),
        "MOTLEY_RESUME": "1" if run.resume else "0",
        "MOTLEY_GRACE_SECONDS": str(run.grace_s),
        "MOTLEY_API_URL": run.api_url,
        "MOTLEY_JOB_TOKEN": run.job_token,
        **({"MOTLEY_ARRAY_INDEX": str(run.array_index)} if run.array_index is not None else {}),
    }
    return {**run.env, **motley, **_batch(run), **_emulation(run)}


def _batch(run: Run) -> dict[str, str]:
    if not run.batch_size:
        return {}
    return {"MOTLEY_BATCH_SIZE": str(run.batch_size), "MOTLEY_MICRO_BATCHES": str(run.micro_batches)}


def _of_node(run: Run, rank: int, nodes: Sequence[str]) -> dict[str, str]:
    here = [seat for seat in run.seats if seat.node == nodes[rank]]
    address = "127.0.0.1" if len(nodes) == 1 or here[0].emulated else nodes[0]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(seat.uuid or str(seat.index) for seat in here),
        "MOTLEY_NODE_RANK": str(rank),
        "MOTLEY_NUM_NODES": str(len(nodes)),
        "MOTLEY_GPUS_PER_NODE": str(len(here)),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(run.master_port),
        "PET_NNODES": str(len(nodes)),
        "PET_NPROC_PER_NODE": str(len(here)),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(run.master_port),
        "PET_RDZV_ID": f"motley-{run.attempt}",
        "PET_RDZV_BACKEND": "c10d" if len(nodes) > 1 else "static",
        "PET_RDZV_ENDPOINT": f"{address}:{run.master_port}",
    }


def _emulation(run: Run) -> dict[str, str]:
    if not any(seat.emulated for seat in run.seats):
        return {}
    return {"MOTLEY_EMULATED": "1", "MOTLEY_EMULATED_RATE": f"{run.rate:.6g}"}


def launch_of(run: Run, *, workdir: str, log_limit_bytes: int) -> Launch:
    """The command for the engine."""
    return Launch(
        attempt=run.attempt,
        job=run.job,
        command=run.command,
        tasks=tasks_of(run),
        env=shared_env(run),
        workdir=Path(workdir) if workdir else None,
        log_limit_bytes=log_limit_bytes,
    )
