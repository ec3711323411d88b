"""Why an attempt has its CPUs and memory, in one sentence. Pure."""

from jobs_app.models import Attempt

How = Attempt.CpuMemory
BECAUSE = {
    How.TUNED: "with that it reaches 99 % or more of the best that it can there, by the CPU curve that it declares "
    "and, where the bandwidth of its storage is known, its data",
    How.TRIED: "more CPUs than jobs of its workload had there before, to measure what they gain",
    How.PROPORTIONAL: "the share of its GPUs in the node, for it declares no sensitivity to more and none is measured "
    "yet, or it started before CPUs were shared by that",
    How.REVERTED: "the share of its GPUs in the node; it would be faster with more, but others there need theirs",
}
BY_MEASUREMENT = "more gained jobs of its workload less than 10 %, or could not be given there"


def explain_cpu_memory(attempt: Attempt | None) -> str:
    """One sentence on an attempt whose CPUs or memory the round has chosen; empty for any other."""
    if attempt is None or not attempt.cpu_memory or not amount_of(attempt):
        return ""
    return f"It has {amount_of(attempt)} per GPU: {_because(attempt)}."


def _because(attempt: Attempt) -> str:
    how = How(attempt.cpu_memory)
    return BY_MEASUREMENT if how == How.TUNED and not attempt.job.sensitivity else BECAUSE[how]


def amount_of(attempt: Attempt) -> str:
    """What the round has chosen, in words: 3 CPUs and 62.5 GiB of memory."""
    cpus, memory_gib = attempt.cpus_per_gpu, attempt.memory_per_gpu_mib / 1024
    words = [f"{cpus} CPU{'' if cpus == 1 else 's'}"] if cpus else []
    return " and ".join([*words, *([f"{memory_gib:.4g} GiB of memory"] if memory_gib else [])])
