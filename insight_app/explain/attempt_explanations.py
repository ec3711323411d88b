"""Explanations of one attempt: its exit code, its CPUs and memory, and what a cancel would cost."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs_app.models import Attempt, Job
from jobs_app.submission.larger_requests import Shortage

How = Attempt.CpuMemory
BECAUSE = {
    How.TUNED: "with that it reaches 99 % or more of the best that it can there, by the CPU curve that it declares "
    "and, where the bandwidth of its storage is known, its data",
    How.TRIED: "more CPUs than jobs of its workload had there before, to measure what they gain",
    How.PROPORTIONAL: "the share of its GPUs in the node, for it declares no sensitivity to more and none is measured "
    "yet, or it started before CPUs were shared by that",
    How.REVERTED: "the share of its GPUs in the node; it would be faster with more, but others there need theirs",
    How.RAISED: "what it started with; it had less for a while, which others there needed",
}
BY_MEASUREMENT = "more gained jobs of its workload less than 10 %, or could not be given there"


def explain_cpu_memory(attempt: Attempt | None) -> str:
    """One sentence on CPUs or memory that a round has chosen for an attempt; empty if it has chosen none."""
    if attempt is None or not attempt.cpu_memory or not amount_of(attempt):
        return ""
    return f"It has {amount_of(attempt)} per GPU: {_because(attempt)}."


def _because(attempt: Attempt) -> str:
    how = How(attempt.cpu_memory)
    return BY_MEASUREMENT if how == How.TUNED and not attempt.job.sensitivity else BECAUSE[how]


def amount_of(attempt: Attempt) -> str:
    """The CPUs and memory that the round has chosen, as text: 3 CPUs and 62.5 GiB of memory."""
    cpus, memory_gib = attempt.cpus_per_gpu, attempt.memory_per_gpu_mib / 1024
    words = [f"{cpus} CPU{'' if cpus == 1 else 's'}"] if cpus else []
    return " and ".join([*words, *([f"{memory_gib:.4g} GiB of memory"] if memory_gib else [])])


GPU_MEMORY = re.compile(
    r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|RESOURCE_EXHAUSTED", re.IGNORECASE
)
NOT_FOUND = re.compile(r"command not found|: not found|No such file or directory", re.IGNORECASE)
MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']{1,80})'")
KILLED = 137
MEANINGS = {  # of 126 and 127 the supervisor says more
    75: "It asked to be requeued (75), more often than a job may.",
    130: "It was interrupted (130 = 128 + signal 2, SIGINT).",
    134: "It aborted itself (134 = 128 + signal 6, SIGABRT), as after a failed assertion.",
    135: "It accessed memory wrongly (135 = 128 + signal 7, SIGBUS); a full /dev/shm is a common cause.",
    KILLED: "It was killed (137 = 128 + signal 9, SIGKILL): often by the kernel, because memory ran out. "
    "Motley did not ask it to end. Ask for more memory per GPU, or use less.",
    139: "It accessed memory that it does not have (139 = 128 + signal 11, SIGSEGV): a fault in native code.",
    143: "It was asked to end (143 = 128 + signal 15, SIGTERM), but not by Motley.",
}
GPU_MEMORY_MEANING = (
    "The memory of a GPU ran out: use a smaller batch, or ask for GPUs with more memory by `gpu_memory`."
)


def explain_exit(attempt: Attempt, last_lines: Sequence[str]) -> str:
    """One or two sentences; empty if the code says no more than that the job failed."""
    text = "\n".join(last_lines)
    if GPU_MEMORY.search(text):
        return GPU_MEMORY_MEANING
    if found := MODULE.search(text):
        return f"Python did not find the module {found.group(1)}: install it in `setup`, or choose another environment."
    if attempt.exit_code == 1 and NOT_FOUND.search(text):
        return "A command or a file was not found: see the lines below."
    return MEANINGS.get(attempt.exit_code or 0, "")


def shortage_of(job: Job, attempt: Attempt, last_lines: Sequence[str]) -> Shortage | None:
    """The resource that a failed or timed-out job ran out of, derived from how it ended; None: not known."""
    if job.state == Job.State.TIMED_OUT:
        return Shortage.TIME
    if job.state != Job.State.FAILED:
        return None
    if GPU_MEMORY.search("\n".join(last_lines)):
        return Shortage.GPU_MEMORY
    return Shortage.MEMORY if attempt.exit_code == KILLED else None


@dataclass(frozen=True)
class CancelCost:
    """`checkpoint_at`: when the last checkpoint that was reported was made; `attempt`: the one whose processes run."""

    job: Job
    worked_gpu_s: float
    unsaved_gpu_s: float
    checkpoint_at: datetime | None = None
    attempt: Attempt | None = None

    @property
    def words(self) -> str:
        """Whether its work is known to be saved."""
        if not self.worked_gpu_s:
            return "It has not run yet."
        if self.checkpoint_at is None:
            return "It has reported no checkpoint: whether any of its work is saved is not known."
        return "Its work up to its last checkpoint is saved."


def cancel_cost(job: Job, attempts: Iterable[Attempt], now: datetime) -> CancelCost:
    """Cost of cancelling the job now; `attempts` in the order in which they were made."""
    worked_gpu_s = unsaved_gpu_s = 0.0
    checkpoint_at, running = None, None
    for attempt in attempts:
        worked_gpu_s += attempt.ran_s(now) * attempt.gpu_count
        unsaved_gpu_s += attempt.ran_s(now) * attempt.gpu_count
        if attempt.checkpoint_at is not None:
            checkpoint_at = attempt.checkpoint_at
            since_s = ((attempt.ended_at or now) - checkpoint_at).total_seconds()
            unsaved_gpu_s = max(0.0, since_s) * attempt.gpu_count
        running = attempt if attempt.started_at and attempt.ended_at is None else None
    return CancelCost(job, worked_gpu_s, unsaved_gpu_s, checkpoint_at, running)
