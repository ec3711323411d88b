"""Environment variables of a job's processes. Pure; the engine adds the paths that only it knows."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from engines.protocol import CpuLimit, Image, Launch, NodeLaunch, Setup
from estimation.checkpoint_plan import CheckpointTerms
from scheduler_app.round.slurm_variables import SlurmArray, SlurmJob, variables_of_job, variables_of_node

LAUNCHER_MARGIN_S = 5
"""Part of the grace period that torchrun needs after it has killed its workers."""


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
    account: str
    command: str | Sequence[str]
    env: dict[str, str]
    mounts: dict[str, str]
    """Storage → its path on these nodes."""
    gpu_type: str
    gpus: Sequence[LaunchGpu]
    gpus_per_replica: int
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    shares_cpus: bool
    """Whether the round has chosen the CPUs, and not the job."""
    master_port: int
    rate: float
    """Steps/s that the round assumed."""
    batch_size: int
    """Samples per step; 0: not tuned."""
    micro_batches: int
    batch_choices: Sequence[Sequence[float]]
    """Batches among which it may choose while it runs: samples, micro-batches, samples/s."""
    resume: bool
    grace_s: int
    time_limit_s: int | None
    array_index: int | None
    api_url: str
    job_token: str
    checkpoints: CheckpointTerms | None = None
    """None: not known, as its nodes have been removed."""
    slurm_variables: bool = False
    """Whether it finds Slurm's variables as well: the job of a batch script."""
    array: SlurmArray | None = None


def tasks_of(spec: LaunchSpec) -> list[NodeLaunch]:
    """One launch per node, in the order of ranks."""
    nodes = list(dict.fromkeys(gpu.node for gpu in spec.gpus))
    count = Counter(gpu.node for gpu in spec.gpus)
    return [
        NodeLaunch(
            node,
            _of_node(spec, rank, nodes),
            gpus=count[node],
            cpus=count[node] * spec.cpus_per_gpu,
            memory_mib=count[node] * spec.memory_per_gpu_mib,
        )
        for rank, node in enumerate(nodes)
    ]


UNLESS_THE_JOB_SAYS = {"PYTHONUNBUFFERED": "1"}
"""Python keeps 8 KiB of what it prints to a file, so that the log of a running job would stay empty for hours."""


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
    mounts = {f"MOTLEY_MOUNT_{name.upper()}": path for name, path in spec.mounts.items()}
    return {
        **UNLESS_THE_JOB_SAYS,
        **_threads(spec),
        **(variables_of_job(_in_slurm(spec)) if spec.slurm_variables else {}),
        **spec.env,
        **motley,
        **mounts,
        **_batch(spec),
        **_checkpoints(spec),
        **_emulation(spec),
    }


def _in_slurm(spec: LaunchSpec) -> SlurmJob:
    return SlurmJob(
        id=spec.job,
        name=spec.name,
        team=spec.team,
        attempt=spec.number,
        nodes=Counter(gpu.node for gpu in spec.gpus),
        cpus_per_gpu=spec.cpus_per_gpu,
        memory_per_gpu_mib=spec.memory_per_gpu_mib,
        array=spec.array,
        array_index=spec.array_index,
    )


def _threads(spec: LaunchSpec) -> dict[str, str]:
    """Threads of libraries such as PyTorch in each process, where the round has chosen its CPUs."""
    return {"OMP_NUM_THREADS": str(spec.cpus_per_gpu)} if spec.shares_cpus else {}


def _batch(spec: LaunchSpec) -> dict[str, str]:
    if not spec.batch_size:
        return {}
    told = {"MOTLEY_BATCH_SIZE": str(spec.batch_size), "MOTLEY_MICRO_BATCHES": str(spec.micro_batches)}
    return told | ({"MOTLEY_BATCH_CHOICES": json.dumps(spec.batch_choices)} if spec.batch_choices else {})


def _checkpoints(spec: LaunchSpec) -> dict[str, str]:
    """Variables from which a training loop chooses its checkpoints: losses of nodes, cost of the last checkpoint."""
    if spec.checkpoints is None:
        return {}
    stay, cost_s = spec.checkpoints
    return {
        "MOTLEY_MEAN_UP_SECONDS": f"{stay.mean_up_s:.6g}",
        "MOTLEY_NOTIFIED": f"{stay.notified:.3g}",
        "MOTLEY_NOTICE_SECONDS": f"{stay.notice_s:.6g}",
        **({"MOTLEY_CHECKPOINT_SECONDS": f"{cost_s:.6g}"} if cost_s is not None else {}),
    }


def _of_node(spec: LaunchSpec, rank: int, nodes: Sequence[str]) -> dict[str, str]:
    here = [gpu for gpu in spec.gpus if gpu.node == nodes[rank]]
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid or str(gpu.index) for gpu in here),
        "MOTLEY_NODE_RANK": str(rank),
        "MOTLEY_NUM_NODES": str(len(nodes)),
        "MOTLEY_GPUS_PER_NODE": str(len(here)),
        **_cpus_and_memory(spec, len(here)),
        "MASTER_PORT": str(spec.master_port),
        "PET_NNODES": str(len(nodes)),
        "PET_NPROC_PER_NODE": str(len(here)),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_PORT": str(spec.master_port),
        "PET_RDZV_ID": f"motley-{spec.attempt}",
        # c10d numbers ranks by address in place of PET_NODE_RANK, and waits forever where two ranks share a host
        "PET_RDZV_BACKEND": "static",
        "PET_SHUTDOWN_TIMEOUT": str(max(spec.grace_s - LAUNCHER_MARGIN_S, 1)),
        **_of_slurms_node(spec, rank),
    }


def _of_slurms_node(spec: LaunchSpec, rank: int) -> dict[str, str]:
    """Slurm's variables of a node, but for those that the job sets itself."""
    given = variables_of_node(_in_slurm(spec), rank) if spec.slurm_variables else {}
    return {name: value for name, value in given.items() if name not in spec.env}


def _cpus_and_memory(spec: LaunchSpec, gpus: int) -> dict[str, str]:
    """CPUs and memory of the job on a node; none if neither the job nor the round sets them."""
    figures = {
        "MOTLEY_CPUS": gpus * spec.cpus_per_gpu,
        "MOTLEY_CPUS_PER_GPU": spec.cpus_per_gpu,
        "MOTLEY_MEMORY_MIB": gpus * spec.memory_per_gpu_mib,
    }
    return {name: str(figure) for name, figure in figures.items() if figure}


def setup_of(command: str, *, team: int, locks: str, gpu_type: str, image: str = "") -> Setup | None:
    """Setup of a job's environment, shared by jobs of a team with the same command, packages, GPU type and image."""
    made_of = [team, command, locks, gpu_type, *([image] if image else [])]
    key = sha256(json.dumps(made_of).encode()).hexdigest()
    return Setup(command, key[:32]) if command else None


def _emulation(spec: LaunchSpec) -> dict[str, str]:
    if not any(gpu.emulated for gpu in spec.gpus):
        return {}
    return {"MOTLEY_EMULATED": "1", "MOTLEY_EMULATED_RATE": f"{spec.rate:.6g}"}


def launch_of(
    spec: LaunchSpec,
    *,
    workdir: str,
    log_limit_bytes: int,
    limits_memory: bool = False,
    limits_cpus: CpuLimit = CpuLimit.NONE,
    most_processes: int = 0,
    secrets: Mapping[str, str] = MappingProxyType({}),
    code: Path | None = None,
    checkpoints: Path | None = None,
    setup: Setup | None = None,
    image: Image | None = None,
) -> Launch:
    """Build the engine's launch command."""
    return Launch(
        attempt=spec.attempt,
        job=spec.job,
        command=spec.command,
        tasks=tasks_of(spec),
        env=shared_env(spec),
        workdir=Path(workdir) if workdir else None,
        code=code,
        checkpoints=checkpoints,
        setup=setup,
        image=image,
        log_limit_bytes=log_limit_bytes,
        gpu_type=spec.gpu_type,
        grace=timedelta(seconds=spec.grace_s),
        time_limit=timedelta(seconds=spec.time_limit_s) if spec.time_limit_s is not None else None,
        mounts=spec.mounts,
        account=spec.account,
        limits_memory=limits_memory,
        limits_cpus=limits_cpus,
        most_processes=most_processes,
        secrets=secrets,
    )
