"""Environment variables of a job's processes. Pure; the engine adds the paths that only it knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.protocol import Launch, NodeLaunch


@dataclass(frozen=True)
class LaunchGpu:
    """One GPU of a gang: its node, its index there, and its UUID if it is real."""

    node: str
    index: int
    uuid: str
    emulated: bool


@dataclass(frozen=True)
class LaunchSpec:
    """An attempt with everything that its launch command and environment contain."""

    attempt: int
    number: int
    job: str
    name: str
    team: str
    command: str | Sequence[str]
    env: dict[str, str]
    gpu_type: str
    gpus: Sequence[LaunchGpu]
    gpus_per_replica: int
    master_port: int
    rate: float
    """Steps/s that the round assumed."""
    batch_size: int
    """Samples per step; 0: not tuned."""
    micro_batches: int
    resume: bool
    grace_s: int
    array_index: int | None
    api_url: str
    job_token: str


def tasks_of(spec: LaunchSpec) -> list[NodeLaunch]:
    """One launch per node, in the order of ranks."""
    nodes = list(dict.fromkeys(gpu.node for gpu in spec.gpus))
    return [NodeLaunch(node, _of_node(spec, rank, nodes)) for rank, node in enumerate(nodes)]


def shared_env(spec: LaunchSpec) -> dict[str, str]:
    """Variables that all nodes of the gang share; Motley's take precedence over the job's own."""
    motley = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MOTLEY_JOB_ID": spec.job,
        "MOTLEY_JOB_NAME": spec.name,
        "MOTLEY_ATTEMPT": str(spec.number),
        "MOTLEY_TEAM": spec.team,
        "MOTLEY_GPU_TYPE": spec.gpu_type,
        "MOTLEY_WORLD_SIZE": str(len(spec.gpus)),
        "MOTLEY_REPLICAS": str(len(spec.gpus) // spec.gpus_per_replica),
        "MOTLEY_GPUS_PER_REPLICA": str(spec.gpus_per_replica),
        "MOTLEY_RESUME": "1" if spec.resume else "0",
        "MOTLEY_GRACE_SECONDS": str(spec.grace_s),
        "MOTLEY_API_URL": spec.api_url,
        "MOTLEY_JOB_TOKEN": spec.job_token,
        **({"MOTLEY_ARRAY_INDEX": str(spec.array_index)} if spec.array_index is not None else {}),
    }
    return {**spec.env, **motley, **_batch(spec), **_emulation(spec)}


def _batch(spec: LaunchSpec) -> dict[str, str]:
    if not spec.batch_size:
        return {}
    return {"MOTLEY_BATCH_SIZE": str(spec.batch_size), "MOTLEY_MICRO_BATCHES": str(spec.micro_batches)}


def _of_node(spec: LaunchSpec, rank: int, nodes: Sequence[str]) -> dict[str, str]:
    here = [gpu for gpu in spec.gpus if gpu.node == nodes[rank]]
    address = "127.0.0.1" if len(nodes) == 1 or here[0].emulated else nodes[0]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid or str(gpu.index) for gpu in here),
        "MOTLEY_NODE_RANK": str(rank),
        "MOTLEY_NUM_NODES": str(len(nodes)),
        "MOTLEY_GPUS_PER_NODE": str(len(here)),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(spec.master_port),
        "PET_NNODES": str(len(nodes)),
        "PET_NPROC_PER_NODE": str(len(here)),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(spec.master_port),
        "PET_RDZV_ID": f"motley-{spec.attempt}",
        "PET_RDZV_BACKEND": "c10d" if len(nodes) > 1 else "static",
        "PET_RDZV_ENDPOINT": f"{address}:{spec.master_port}",
    }


def _emulation(spec: LaunchSpec) -> dict[str, str]:
    if not any(gpu.emulated for gpu in spec.gpus):
        return {}
    return {"MOTLEY_EMULATED": "1", "MOTLEY_EMULATED_RATE": f"{spec.rate:.6g}"}


def launch_of(spec: LaunchSpec, *, workdir: str, log_limit_bytes: int) -> Launch:
    """Build the engine's launch command."""
    return Launch(
        attempt=spec.attempt,
        job=spec.job,
        command=spec.command,
        tasks=tasks_of(spec),
        env=shared_env(spec),
        workdir=Path(workdir) if workdir else None,
        log_limit_bytes=log_limit_bytes,
    )
