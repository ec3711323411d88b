"""Pending reasons of waiting jobs: the core's codes and numbers as sentences.

A sentence may name another team's job, but shows its team in place of its name.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import isclose
from typing import Any
from uuid import UUID

from accounting_app.fairness.budgets import TeamBudget
from allocation.plan_round import Plan
from allocation.rounds.pending_reasons import PendingReason, ReasonCode, explain
from cluster_app.feasibility import NodeShape, Request, why_never
from cluster_app.storage import TRIED_AGAIN_AFTER
from jobs_app.models import Job
from jobs_app.models.job import begin_time_text
from scheduler_app.models import SetAside
from scheduler_app.round.holders import JobName, words_of_holders
from scheduler_app.round.inputs import JobRow
from scheduler_app.round.snapshot import LeftOut, Snapshot

MOST_NAMED = 4
"""GPU types, nodes or jobs in one sentence."""
MOST_PARENTS = 5
"""Jobs that a job waits for, in one sentence."""
SAME = 1e-5
"""Relative difference below which two priorities are shown as equal."""
ReasonText = dict[str, Any]
"""`{code, detail, numbers}`, as in answers and in `Job.reasons`; `figures`, of an optimiser, are words beside these."""
BEFORE_ROUNDS = [ReasonCode.SET_ASIDE, ReasonCode.DEPENDENCY, ReasonCode.BEGIN_TIME, ReasonCode.BUDGET]
"""Reasons for which no round considers a job, in the order in which they are told."""
ReasonsByRow = Mapping[int, Sequence[PendingReason]]
"""By row."""


def reasons_of(snapshot: Snapshot, plan: Plan, rows: Iterable[int] | None = None) -> ReasonsByRow:
    """All pending reasons of each waiting row among these, or of all, as codes and numbers."""
    return explain(
        snapshot.problem,
        plan.decision,
        snapshot.inventory,
        snapshot.quotas,
        assignment=plan.assignment,
        owner=plan.owner,
        round_s=snapshot.round_s,
        rows=rows,
    )


def reason_texts(snapshot: Snapshot, left: ReasonsByRow, names: Mapping[str, JobName]) -> dict[str, list[ReasonText]]:
    """The reasons of each waiting job as sentences; `names` holds the names of rival jobs by id."""
    return {
        snapshot.jobs[row]: _merge_short_types([_reason_text(reason, row, snapshot, names) for reason in reasons])
        for row, reasons in left.items()
    }


def joined_reasons(*parts: Mapping[str, list[ReasonText]]) -> dict[str, list[ReasonText]]:
    """All the reasons of each job: what must come first is the headline, the rest in the order of these parts."""
    found: dict[str, list[ReasonText]] = defaultdict(list)
    for part in parts:
        for job, reasons in part.items():
            found[job] += reasons
    return {job: sorted(reasons, key=_is_later) for job, reasons in found.items()}


def _is_later(reason: ReasonText) -> int:
    """Place among the reasons that hold until something else has happened; those of a round come after them."""
    return BEFORE_ROUNDS.index(reason["code"]) if reason["code"] in BEFORE_ROUNDS else len(BEFORE_ROUNDS)


def rivals_named(snapshot: Snapshot, left: ReasonsByRow) -> set[str]:
    """Ids of the jobs that reasons refer to."""
    every = [reason for reasons in left.values() for reason in reasons]
    rows = {reason.rival for reason in every if reason.rival is not None}
    holders = {id(reason.holders): reason.holders for reason in every if reason.holders}  # one per GPU type
    rows |= {holder.row for of_type in holders.values() for holder in of_type.first}
    return {snapshot.jobs[row] for row in rows}


def names_of(jobs: Iterable[str]) -> dict[str, JobName]:
    """Names by job id."""
    found = Job.objects.filter(pk__in=[UUID(job) for job in jobs]).select_related("team")
    named = found.only("name", "array_index", "team__name")
    return {str(job.pk): JobName(str(job), job.team_id, job.team.name) for job in named}


def reason_texts_of_left_out(
    left_out: LeftOut,
    waiting_for: Mapping[Any, Sequence[str]],
    inventory: Sequence[NodeShape],
    *,
    missing: Mapping[str, Sequence[str]],
) -> dict[str, list[ReasonText]]:
    """Reason texts, by job id, of the queued jobs that were left out of the snapshot.

    `missing`: storage → the nodes on which it was found missing lately.
    """
    words = {str(job): [_dependency(parents)] for job, parents in waiting_for.items()}
    words |= {str(job.id): [_throttled(job)] for job in left_out.throttled}
    words |= {str(job): [_set_aside(row)] for job, row in left_out.set_aside.items()}
    return words | {str(job.id): [_cannot_run(job, inventory, missing)] for job in left_out.cannot_run}


def reason_texts_of_begin_times(begin_times: Mapping[Any, datetime]) -> dict[str, list[ReasonText]]:
    """Reason texts, by job id, of the queued jobs that wait for their begin time."""
    return {
        str(job): [reason_text(ReasonCode.BEGIN_TIME, begin_time_text(at), begin_time=at.isoformat())]
        for job, at in begin_times.items()
    }


def reason_texts_of_budgets(over_budget: Mapping[Any, TeamBudget]) -> dict[str, list[ReasonText]]:
    """Reason texts, by job id, of the queued jobs of teams whose budget is used up."""
    return {str(job): [_reason_of_budget(budget)] for job, budget in over_budget.items()}


def _reason_of_budget(budget: TeamBudget) -> ReasonText:
    return reason_text(
        ReasonCode.BUDGET,
        budget.why_jobs_wait,
        budget_gpu_hours=budget.gpu_hours,
        used_gpu_hours=budget.used_gpu_hours,
        period=budget.period,
        resets_at=budget.resets_at.isoformat(),
    )


def _merge_short_types(reasons: list[ReasonText]) -> list[ReasonText]:
    """One reason in place of those of several GPU types that are short of GPUs; the first type's numbers lead."""
    short = [one for one in reasons if one["code"] == ReasonCode.INSUFFICIENT_GPUS]
    if len(short) < 2:
        return reasons
    merged = short[0] | {
        "detail": _short_types_text([one["numbers"] for one in short]),
        "numbers": short[0]["numbers"] | {"others": [one["numbers"] for one in short[1:]]},
    }
    return [merged if one is short[0] else one for one in reasons if one is short[0] or one not in short]


def _short_types_text(short: Sequence[Mapping[str, Any]]) -> str:
    named, more = short[:MOST_NAMED], " or others" * (len(short) > MOST_NAMED)
    needed = " or ".join(map(_amount, named))
    left = ", ".join(f"{one['left']} {one['gpu_type'].upper()}" for one in named)
    return f"{needed}{more} needed; left after the jobs that come first: {left}."


def reason_text(code: ReasonCode, detail: str, **numbers: Any) -> ReasonText:
    return {"code": code.value, "detail": detail, "numbers": numbers}


def _reason_text(reason: PendingReason, row: int, snapshot: Snapshot, names: Mapping[str, JobName]) -> ReasonText:
    numbers: dict[str, Any] = {name: _round(value) for name, value in reason.numbers.items()}
    if "gpu_type" in numbers:
        numbers["gpu_type"] = snapshot.types[int(reason.numbers["gpu_type"])]
        unit = int(snapshot.problem.gpus_per_replica[row, int(reason.numbers["gpu_type"])])
        numbers |= {"replicas": numbers["needed"] // unit} if unit > 1 and "needed" in numbers else {}
    if reason.rival is not None:
        rival = names.get(snapshot.jobs[reason.rival])
        numbers["rival"] = rival.shown_to(int(snapshot.problem.team[row])) if rival else "another job"
    where = " on nodes that it may use" if snapshot.inventory.restricted[row] else ""
    spelled = {"gpu_type": numbers["gpu_type"].upper()} if "gpu_type" in numbers else {}
    words = _DashIfMissing(numbers | spelled, amount=_amount(numbers), where=where)
    text = reason_text(reason.code, _sentence_of(reason).format_map(words), **numbers)
    if reason.holders is None or not reason.holders.jobs:
        return text
    told = words_of_holders(reason, reason.holders, row, snapshot, names)
    if reason.code == ReasonCode.AWAITING_RELEASE:
        return text | {"detail": f"{text['detail']} {told}"}
    return text | {"detail": told, "figures": text["detail"]}


def _amount(numbers: Mapping[str, Any]) -> str:
    """GPUs that are needed: 8 V100; of a hybrid-parallel job 8 V100 (2 replicas of 4)."""
    if "needed" not in numbers:
        return "-"
    needed, replicas = numbers["needed"], numbers.get("replicas")
    each = f" ({replicas} replica{'s' * (replicas != 1)} of {needed // replicas})" if replicas else ""
    return f"{needed} {numbers.get('gpu_type', '-').upper()}{each}"


def _sentence_of(reason: PendingReason) -> str:
    if reason.code == ReasonCode.OUTBID:
        return _sentence_of_outbid(reason.numbers)
    if reason.code == ReasonCode.AWAITING_RELEASE and "left" in reason.numbers:
        return _sentence_of_next(reason.numbers)
    if reason.code == ReasonCode.QUOTA and "quota" in reason.numbers:
        return _sentence_of_type_quota(reason)
    if reason.code == ReasonCode.FRAGMENTED:
        return _sentence_of_fragments(reason.numbers)
    return SENTENCES.get(reason.code, SENTENCES[ReasonCode.NEXT_ROUND])


def _sentence_of_next(numbers: Mapping[str, float]) -> str:
    """How many of the GPUs that the job needs are kept for it already."""
    if numbers["left"]:
        one = numbers["left"] == 1
        return NEXT_TO_START.replace("{are}", "is" if one else "are").replace("{them}", "it" if one else "them")
    return NEXT_OF_ONE if numbers["needed"] == 1 else NEXT_WITHOUT_ANY


def _sentence_of_type_quota(reason: PendingReason) -> str:
    """The quota that keeps the job from a type, or the team that borrows the GPUs that the job needs."""
    if reason.rival is not None:
        return BORROWED
    if "limit" in reason.numbers:
        return AT_ITS_LIMIT + INSTEAD
    return (KEPT if reason.numbers["quota"] else KEPT_FROM_ALL) + INSTEAD


def _sentence_of_fragments(numbers: Mapping[str, float]) -> str:
    if "in_one_domain" in numbers:
        return OVER_ENGINES
    return SHORT_OF_CPUS if numbers["free_block"] >= numbers["per_node"] else SENTENCES[ReasonCode.FRAGMENTED]


def _sentence_of_outbid(numbers: Mapping[str, float]) -> str:
    if "price" in numbers:
        dear = "{gpus} {gpu_type} would add {value} to the objective, and their price is {price}."
        return dear + _sentence_of_backlog(numbers)
    if "needed" in numbers:
        return KEPT_FOR_ANOTHER
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
        return behind + "; with a share above {needed_share} this job would come first."
    return behind + "; no share would put this job first."


def _sentence_of_backlog(numbers: Mapping[str, float]) -> str:
    if "behind" not in numbers:
        return ""
    if numbers["behind"] >= numbers["furthest_behind"]:
        return " Its team is {behind} GPU-hours behind its share, further than any other."
    return " Its team is {behind} GPU-hours behind its share, another {furthest_behind}."


class _DashIfMissing(dict[str, Any]):
    """Format mapping that shows a dash for a number that the reason does not carry."""

    def __missing__(self, key: str) -> str:
        return "-"


AT_ITS_LIMIT = (
    "The quota of its team is {quota} {gpu_type}, and {limit} with what it may borrow at most: {used} are in use, and "
    "this job needs {needed}."
)
KEPT = (
    "The quota of its team is {quota} {gpu_type}, of which {used} are in use; the {left} that are left in the cluster "
    "are kept for the quotas of other teams, and this job needs {needed}."
)
KEPT_FROM_ALL = (
    "Its team has no quota on {gpu_type}; the {left} that are left in the cluster are kept for the quotas of other "
    "teams, and this job needs {needed}."
)
INSTEAD = " Another GPU type, fewer GPUs or a larger quota, which administrators set, would help."
BORROWED = (
    "Its team uses {used} of its quota of {quota} {gpu_type}: others borrow the rest, {rival} among them, and give it "
    "back once their minimum run times and leases are over."
)
NEXT_TO_START = (
    "It is the next to start on {gpu_type}: of the {needed} that it needs {left} {are} kept for it, and no other job "
    "starts on {them}."
)
NEXT_WITHOUT_ANY = (
    "It is the next to start on {gpu_type}: none of the {needed} that it needs is free yet, and those that become free "
    "are kept for it."
)
NEXT_OF_ONE = "It is the next to start on {gpu_type}: the one that it needs is not free yet, and is kept for it then."
KEPT_FOR_ANOTHER = (
    "{left} {gpu_type} are idle, but kept for {rival}: it has waited for long, compared with the time that it takes, "
    "and starts once it has all its GPUs."
)
OVER_ENGINES = (
    "{left} {gpu_type} are left, but at several engines: a gang runs at one of them, "
    "and at most {in_one_domain} of the {needed} that are needed are left at any."
)
SHORT_OF_CPUS = (
    "{left} {gpu_type} are left, but the CPUs or the memory beside them are used: {per_node} are needed on one node, "
    "and what is left serves at most {largest_block} on any."
)
SENTENCES = {
    ReasonCode.TEAM_LIMIT: (
        "The limit of its team on GPUs at once is {limit}: {used} in use, and this job needs {needed}. Administrators "
        "set the limit."
    ),
    ReasonCode.MEMBER_LIMIT: (
        "The limit of each member of its team on GPUs at once is {limit}: its owner has {used} in use, and this job "
        "needs {needed}. Leads of the team set the limit."
    ),
    ReasonCode.INSUFFICIENT_GPUS: "{amount} needed; {left} left{where} after the jobs that come first.",
    ReasonCode.FRAGMENTED: (
        "{left} {gpu_type} are left{where}, but scattered over nodes: {per_node} are needed on one node, "
        "and at most {largest_block} are free on any."
    ),
    ReasonCode.NEXT_ROUND: "It is considered in the next round.",
}


def _dependency(parents: Iterable[str]) -> ReasonText:
    named = sorted(parents)
    more = f" and {len(named) - MOST_PARENTS} more" * (len(named) > MOST_PARENTS)
    return reason_text(ReasonCode.DEPENDENCY, f"Waits for {', '.join(named[:MOST_PARENTS])}{more}.", jobs=len(named))


def _throttled(job: JobRow) -> ReasonText:
    tasks = "1 task" if job.at_a_time == 1 else f"{job.at_a_time} tasks"
    text = f"Its array runs at most {tasks} at a time, and that many are running."
    return reason_text(ReasonCode.ARRAY_LIMIT, text, limit=job.at_a_time)


def _set_aside(row: SetAside) -> ReasonText:
    text = (
        f"Motley failed over this job ({row.error}) and leaves it out until {row.retry_at:%F %T} UTC, so that "
        "others are decided. Tell an administrator, who finds it under Set aside."
    )
    return reason_text(ReasonCode.SET_ASIDE, text, times=row.times)


def _cannot_run(job: JobRow, inventory: Sequence[NodeShape], missing: Mapping[str, Sequence[str]]) -> ReasonText:
    """Why no node in service can run the job: the cluster or its nodes lack something, or they are out of service."""
    request = Request(
        gpus=job.gpus_min,
        gpu_types=tuple(job.gpu_types),
        gpu_memory_mib=job.gpu_memory_mib,
        cpus_per_gpu=job.cpus_per_gpu,
        memory_per_gpu_mib=job.memory_per_gpu_mib,
        uneven_gang=job.uneven_gang,
        gpus_per_replica=job.gpus_per_replica,
        mounts=job.needs,
    )
    if never := why_never(request, inventory):
        return reason_text(CODES_OF_REFUSALS.get(never.code, ReasonCode.NO_SUCH_GPU), never.detail)
    if gone := [name for name in job.mounts if name in missing]:
        return _missing(gone, missing)
    text = (
        "The nodes that could run it are out of service (cordoned, draining, asleep or without a heartbeat), "
        "or jobs outside Motley use their GPUs, or the CPUs or memory beside them."
    )
    return reason_text(ReasonCode.NO_HEALTHY_NODE, text)


def _missing(names: Sequence[str], missing: Mapping[str, Sequence[str]]) -> ReasonText:
    """The job's storage was found missing on nodes that should have it."""
    places = "; ".join(f"{name} on {', '.join(missing[name][:MOST_NAMED])}" for name in names)
    more = " and others" * any(len(missing[name]) > MOST_NAMED for name in names)
    minutes = int(TRIED_AGAIN_AFTER.total_seconds() // 60)
    text = f"Its storage was missing: {places}{more}. An administrator can repair it; after {minutes} minutes"
    text += " it is tried again."
    return reason_text(ReasonCode.NO_STORAGE, text, nodes=sum(len(missing[name]) for name in names))


CODES_OF_REFUSALS = {
    "no_such_storage": ReasonCode.NO_STORAGE,
    "no_containers": ReasonCode.NO_HEALTHY_NODE,
    "volunteers_only": ReasonCode.NO_HEALTHY_NODE,
    "gpu_memory_too_small": ReasonCode.GPU_MEMORY_TOO_SMALL,
    "insufficient_memory": ReasonCode.GANG_TOO_LARGE,
    "insufficient_cpus": ReasonCode.GANG_TOO_LARGE,
    "gang_too_large": ReasonCode.GANG_TOO_LARGE,
}


def _round(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(f"{value:.3g}")
