"""Variables of Slurm for the jobs of batch scripts: what `sbatch` would have set, by the same names. Pure.

A script is started once on each node of its job, so that its tasks are its nodes. Numbers of jobs are made of their
ids, as scripts calculate with them and name folders after them: a job keeps its number over all attempts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

NUMBER_BITS = 48
"""Of an id's random part; more than that would not fit into the arithmetic of every shell."""


@dataclass(frozen=True)
class SlurmArray:
    """The array of a task: its id and all its indices in ascending order."""

    id: str
    indices: Sequence[int]


@dataclass(frozen=True)
class SlurmJob:
    """What the variables of one attempt tell; `gpus` are those of each node."""

    id: str
    name: str
    team: str
    attempt: int
    nodes: Mapping[str, int]
    cpus_per_gpu: int
    memory_per_gpu_mib: int
    array: SlurmArray | None = None
    array_index: int | None = None


def number_of(uuid: str) -> str:
    """Decimal number of a job or an array."""
    return str(UUID(uuid).int & ((1 << NUMBER_BITS) - 1))


def variables_of_job(job: SlurmJob) -> dict[str, str]:
    """Those that all nodes share."""
    nodes, gpus = len(job.nodes), sum(job.nodes.values())
    names = ",".join(job.nodes)
    per_node = "1" if nodes == 1 else f"1(x{nodes})"
    return {
        **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), number_of(job.id)),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_ACCOUNT": job.team,
        "SLURM_CLUSTER_NAME": "motley",
        "SLURM_RESTART_COUNT": str(job.attempt - 1),
        **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS"), str(nodes)),
        **dict.fromkeys(("SLURM_JOB_NODELIST", "SLURM_NODELIST"), names),
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_GPUS": str(gpus),
        **_of_array(job),
    }


def variables_of_node(job: SlurmJob, rank: int) -> dict[str, str]:
    """Those of one node."""
    node = list(job.nodes)[rank]
    gpus = job.nodes[node]
    cpus, memory = gpus * job.cpus_per_gpu, gpus * job.memory_per_gpu_mib
    own = {
        **dict.fromkeys(("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"), cpus),
        "SLURM_CPUS_PER_GPU": job.cpus_per_gpu,
        "SLURM_MEM_PER_NODE": memory,
    }
    return {
        **dict.fromkeys(("SLURM_PROCID", "SLURM_NODEID"), str(rank)),
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": node,
        **dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), str(gpus)),
        **{name: str(figure) for name, figure in own.items() if figure},
    }


def _of_array(job: SlurmJob) -> dict[str, str]:
    if job.array is None or job.array_index is None:
        return {}
    indices = job.array.indices
    steps = {after - before for before, after in pairwise(indices)}
    return {
        "SLURM_ARRAY_JOB_ID": number_of(job.array.id),
        "SLURM_ARRAY_TASK_ID": str(job.array_index),
        "SLURM_ARRAY_TASK_MIN": str(indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(indices[-1]),
        "SLURM_ARRAY_TASK_COUNT": str(len(indices)),
        "SLURM_ARRAY_TASK_STEP": str(min(steps, default=1)),
    }
