"""Why each waiting job waits: the core's codes and numbers in words. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from typing import Any

from allocation.explain import explain
from allocation.planning import Plan
from allocation.reasons import Reason, ReasonCode
from cluster_app.feasibility import NodeShape, Request, why_never
from scheduler_app.naming import Named
from scheduler_app.reading import JobRow
from scheduler_app.snapshot import LeftOut, Snapshot

MOST_NAMED = 4
"""GPU types in one sentence."""
SAME = 1e-5
"""Priorities that differ by less are shown as equal."""
Words = dict[str, Any]
"""`{code, detail, numbers}`, as in answers and in `Job.reasons`."""
Reasons = Mapping[int, Sequence[Reason]]
"""By row."""


def reasons_of(snapshot: Snapshot, plan: Plan) -> Reasons:
    """For each row left waiting, all its reasons, in the core's terms."""
    return explain(
        snapshot.problem,
        plan.decision,
        snapshot.floor,
        snapshot.limits,
        picks=plan.picks,
        owner=plan.owner,
        round_s=snapshot.round_s,
    )


def words_of_round(snapshot: Snapshot, left: Reasons, names: Mapping[str, Named]) -> dict[str, list[Words]]:
    """The same in words; `names` gives the name of a job by its id."""
    return {
        snapshot.jobs[row]: _any_would_do([_word(reason, row, snapshot, names) for reason in reasons])
        for row, reasons in left.items()
    }


def rivals_in(snapshot: Snapshot, left: Reasons) -> set[str]:
    """The jobs that stood before others: their names are needed."""
    return {snapshot.jobs[r.rival] for reasons in left.values() for r in reasons if r.rival is not None}


def words_of_left_out(
    left_out: LeftOut, waiting_for: Mapping[Any, Sequence[str]], inventory: Sequence[NodeShape]
) -> dict[str, list[Words]]:
    """For the queued jobs that the round did not consider."""
    words = {str(job): [_dependency(parents)] for job, parents in waiting_for.items()}
    words |= {str(job.id): [_throttled(job)] for job in left_out.throttled}
    return words | {str(job.id): [_cannot_run(job, inventory)] for job in left_out.cannot_run}


def _any_would_do(words: list[Words]) -> list[Words]:
    """Where several types would do and each is short, the headline names them all."""
    short = [one["numbers"] for one in words if one["code"] == ReasonCode.INSUFFICIENT_GPUS]
    if len(short) < 2 or words[0]["code"] != ReasonCode.INSUFFICIENT_GPUS:
        return words
    named, more = short[:MOST_NAMED], " or others" * (len(short) > MOST_NAMED)
    needed = " or ".join(f"{one['needed']} {one['gpu_type']}" for one in named)
    left = ", ".join(f"{one['left']} {one['gpu_type']}" for one in named)
    return [
        words[0] | {"detail": f"{needed}{more} needed; left over after the jobs that come first: {left}."},
        *words[1:],
    ]


def word(code: ReasonCode, detail: str, **numbers: Any) -> Words:
    return {"code": code.value, "detail": detail, "numbers": numbers}


def _word(reason: Reason, row: int, snapshot: Snapshot, names: Mapping[str, Named]) -> Words:
    numbers: dict[str, Any] = {name: _round(value) for name, value in reason.numbers.items()}
    if "gpu_type" in numbers:
        numbers["gpu_type"] = snapshot.types[int(reason.numbers["gpu_type"])]
    if reason.rival is not None:
        rival = names.get(snapshot.jobs[reason.rival])
        numbers["rival"] = rival.before(int(snapshot.problem.team[row])) if rival else "another job"
    return word(reason.code, _text_of(reason).format_map(_Loose(numbers)), **numbers)


def _text_of(reason: Reason) -> str:
    if reason.code == ReasonCode.OUTBID:
        return _text_of_outbid(reason.numbers)
    return _TEXT.get(reason.code, _TEXT[ReasonCode.NEXT_ROUND])


def _text_of_outbid(numbers: Mapping[str, float]) -> str:
    if "price" in numbers:
        return (
            "{gpus} {gpu_type} for it would add {value} to the objective, and their price is {price}: others gain more."
        )
    if "priority" not in numbers:
        return "It is queued behind {rival}."
    tie = isclose(numbers["priority"], numbers["rival_priority"], rel_tol=SAME)
    behind = (
        "{rival} is "
        + ("as far" if tie else "further")
        + (
            " behind its share of {gpu_type}: its priority is {rival_priority} "
            "(share {rival_share}), this job's {priority} (share {share})"
        )
    )
    if numbers.get("needed_share", 0) < 1:
        return behind + "; with a share above {needed_share} it would come first."
    return behind + "; no share of its time would put it first."


class _Loose(dict[str, Any]):
    """A number that a reason does not carry is left out of its sentence."""

    def __missing__(self, key: str) -> str:
        return "-"


_TEXT = {
    ReasonCode.QUOTA: "The limit is {limit} GPUs at once, {used} are in use, and this job needs {needed}.",
    ReasonCode.INSUFFICIENT_GPUS: "{needed} {gpu_type} needed, {left} left over after the jobs that come first.",
    ReasonCode.FRAGMENTED: (
        "{left} {gpu_type} are left over, but scattered: {per_node} are needed on one node, "
        "where at most {largest_block} are free."
    ),
    ReasonCode.NEXT_ROUND: "It is considered in the next round.",
}


def _dependency(parents: Iterable[str]) -> Words:
    named = sorted(parents)
    return word(ReasonCode.DEPENDENCY, f"Waits for {', '.join(named[:5])}.", jobs=len(named))


def _throttled(job: JobRow) -> Words:
    text = f"The array runs at most {job.at_a_time} of its jobs at a time, and they are running."
    return word(ReasonCode.QUOTA, text, limit=job.at_a_time)


def _cannot_run(job: JobRow, inventory: Sequence[NodeShape]) -> Words:
    """No node in service could run it: because of what the cluster is, or because of what is out of service."""
    request = Request(
        gpus=job.gpus_min,
        gpu_types=tuple(job.gpu_types),
        gpu_memory_mib=job.gpu_memory_mib,
        cpus_per_gpu=job.cpus_per_gpu,
        memory_per_gpu_mib=job.memory_per_gpu_mib,
        uneven_gang=job.uneven_gang,
    )
    if never := why_never(request, inventory):
        return word(_CODE_OF_REFUSAL.get(never.code, ReasonCode.NO_SUCH_GPU), never.detail)
    text = "The nodes that could run it are out of service: cordoned, draining or not heard from."
    return word(ReasonCode.NO_HEALTHY_NODE, text)


_CODE_OF_REFUSAL = {
    "gpu_memory_too_small": ReasonCode.GPU_MEMORY_TOO_SMALL,
    "insufficient_memory": ReasonCode.GANG_TOO_LARGE,
    "insufficient_cpus": ReasonCode.GANG_TOO_LARGE,
    "gang_too_large": ReasonCode.GANG_TOO_LARGE,
}


def _round(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(f"{value:.3g}")
