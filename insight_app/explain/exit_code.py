"""Meaning of an exit code, with the last lines of standard error as evidence. Pure."""

import re
from collections.abc import Sequence

from jobs_app.models import Attempt, Job
from jobs_app.submission.larger_requests import Shortage

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
    """What a job that failed or reached its time limit ran out of, as far as its end tells; None: nothing known."""
    if job.state == Job.State.TIMED_OUT:
        return Shortage.TIME
    if job.state != Job.State.FAILED:
        return None
    if GPU_MEMORY.search("\n".join(last_lines)):
        return Shortage.GPU_MEMORY
    return Shortage.MEMORY if attempt.exit_code == KILLED else None
