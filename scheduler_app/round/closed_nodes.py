"""Windows in a round: the nodes from which jobs are kept, and the jobs that can start nowhere else. No queries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import isfinite, isinf
from typing import Any
from uuid import UUID

import numpy as np

from allocation.plan_round import Plan
from allocation.problem import Problem
from allocation.rounds.pending_reasons import ReasonCode
from allocation.rounds.windows import LONGEST_PART, OpenNodes, Stays, Windows, open_nodes, slowest_rates, weights_of
from allocation.types import Bools, Floats, Ints
from estimation.durations import DurationEstimate
from estimation.estimate import HIGH, NORMAL
from scheduler_app.round.inputs import InputRows, JobRow, NodeRow
from scheduler_app.round.job_options import Timing
from scheduler_app.round.reason_texts import ReasonText, reason_text
from scheduler_app.round.snapshot import Crossing, KeptOff, LeftOut, Snapshot, rate_spreads, seconds_worked
from scheduler_app.windows.reading import WindowRow, time_to_save


def close_nodes(snapshot: Snapshot, left_out: LeftOut, rows: InputRows, timing: Timing) -> tuple[Snapshot, LeftOut]:
    """Restrict each job to the nodes that windows leave open to it, and leave out jobs without any such node."""
    if not rows.windows or not snapshot.jobs:
        return snapshot, left_out
    jobs = {str(job.id): job for job in rows.jobs}
    queue = [jobs[key] for key in snapshot.jobs]
    stays = stays_of(snapshot, queue, timing.min_run_s, rows.checkpoint_s)
    left = open_nodes(snapshot.problem, snapshot.inventory, windows_of(rows.windows, rows.nodes, timing.now), stays)
    able: Bools = np.asarray(left.possible.any(axis=1))
    kept, position = _kept_off(snapshot.problem, left, stays, rows.windows), np.cumsum(able) - 1
    nowhere = {queue[row].id: why for row, why in kept.items() if not able[row]}
    partly = {int(position[row]): why for row, why in kept.items() if able[row]}
    return _narrowed(snapshot, left, able), replace(left_out, kept_off=nowhere, partly_kept_off=partly)


def _narrowed(snapshot: Snapshot, left: OpenNodes, able: Bools) -> Snapshot:
    """The rows that are able to start or stay somewhere, with the rates that they can have there."""
    some = replace(snapshot, inventory=left.inventory).subset(able)
    rate = np.where(left.possible, snapshot.problem.rate, 0)[able]
    weight = weights_of(snapshot.problem, np.flatnonzero(able))
    return replace(some, problem=replace(some.problem, rate=rate, weight=weight))


def windows_of(windows: Sequence[WindowRow], nodes: Sequence[NodeRow], now: datetime) -> Windows:
    """The windows as arrays."""
    return Windows(
        begins_s=np.array([(row.begins_at - now).total_seconds() for row in windows], dtype=float),
        ends_s=np.array([(row.ends_at - now).total_seconds() for row in windows], dtype=float),
        gap_s=np.array([row.gap_s for row in windows], dtype=float),
        nodes=np.array([[node.id in row.nodes for node in nodes] for row in windows], dtype=np.bool_),
        team=np.array([-1 if row.team_id is None else row.team_id for row in windows], dtype=np.int64),
    )


def stays_of(snapshot: Snapshot, jobs: Sequence[JobRow], min_run_s: float, checkpoint_s: Mapping[UUID, float]) -> Stays:
    """How long jobs hold GPUs: until their time limit, else the 90 % quantile of their remaining time.

    And so long before a window as they would be stopped to save their work: none is to be stopped just before its end.
    """
    problem, left_s = snapshot.problem, snapshot.problem.limit_s[:, None]
    saving = [time_to_save(job.grace_s, checkpoint_s.get(job.id)).total_seconds() for job in jobs]
    saving_s = np.array(saving, dtype=float)
    length_s = np.where(np.isfinite(left_s), left_s, _forecast_s(snapshot, jobs)) + saving_s[:, None]
    preemptible = np.array([job.preemptible for job in jobs], dtype=np.bool_)
    return Stays(length_s, np.where(preemptible, saving_s + problem.restart_s + min_run_s, np.inf))


def _forecast_s(snapshot: Snapshot, jobs: Sequence[JobRow]) -> Floats:
    """90 % quantile (m, n) of the seconds left, in the slowest configuration of each type."""
    problem = snapshot.problem
    steps = _steps_left(problem, jobs, snapshot.durations) * np.exp(NORMAL.inv_cdf(HIGH) * rate_spreads(snapshot))
    slowest = slowest_rates(problem)
    found: Floats = problem.restart_s[:, None] + np.where(np.isfinite(slowest), steps[:, None] / slowest, np.inf)
    return found


def _steps_left(problem: Problem, jobs: Sequence[JobRow], durations: Sequence[DurationEstimate | None]) -> Floats:
    """90 % quantile (m,) of the steps left; infinite: nothing is known."""
    worked_s = seconds_worked(
        jobs, problem.rate, problem.held, problem.held_s, base_gpus=problem.base_gpus, base_rate=problem.base_rate
    )
    steps = problem.remaining_steps.copy()
    for row, (job, duration) in enumerate(zip(jobs, durations, strict=True)):
        if job.steps_in_all is None and duration is not None:
            steps[row] = duration.estimate.quantile_left(HIGH, float(worked_s[row])) * problem.base_rate[row]
    return steps


def _kept_off(problem: Problem, left: OpenNodes, stays: Stays, windows: Sequence[WindowRow]) -> dict[int, KeptOff]:
    """Waiting rows that windows keep from nodes."""
    found = {}
    order = np.argsort([row.ends_at.timestamp() for row in windows], kind="stable")
    length_s = stays.length_s.min(axis=1, initial=np.inf)
    waits: Bools = np.asarray(left.closed.any(axis=1) & (problem.held < 0))
    for row in np.flatnonzero(waits).tolist():
        first = windows[int(order[left.closed[row, order]][0])]
        found[row] = KeptOff(first, _crossing(float(length_s[row]), float(stays.least_s[row]), first.gap_s))
    return found


def _crossing(length_s: float, least_s: float, gap_s: float) -> Crossing:
    """Why a job of this length does not start: least_s is infinite for one that may not be stopped."""
    if isinf(length_s):
        return Crossing.UNKNOWN
    if isinf(least_s):
        return Crossing.NEVER if length_s > gap_s else Crossing.LATE
    return Crossing.NEAR if length_s > LONGEST_PART * gap_s else Crossing.LATE


# -- reasons -------------------------------------------------------------------------------------------------------


def window_reasons(
    words: Mapping[str, list[ReasonText]],
    snapshot: Snapshot,
    plan: Plan,
    left_out: LeftOut,
    *,
    rows: InputRows,
    now: datetime,
) -> dict[str, list[ReasonText]]:
    """The reasons with those of windows: alone where a job could start on no other nodes."""
    found = dict(words)
    found |= {str(job): [reason_of(why, now)] for job, why in left_out.kept_off.items()}
    found |= _of_nodes_out(words, left_out, rows, now)
    return found | _of_nodes_kept(words, snapshot, plan, left_out, rows=rows, now=now)


def _of_nodes_out(
    words: Mapping[str, list[ReasonText]], left_out: LeftOut, rows: InputRows, now: datetime
) -> dict[str, list[ReasonText]]:
    """Reasons of jobs for which no node is in service, while one of their GPU types is in maintenance."""
    going_on = [row for row in rows.windows if row.team_id is None and row.covers(now)]
    if not going_on:
        return {}
    name_of = {kind.id: kind.name for kind in rows.types}
    types = [{name_of[node.gpu_type_id] for node in rows.nodes if node.id in row.nodes} for row in going_on]
    found = {}
    for job in left_out.cannot_run:
        its = [row for row, names in zip(going_on, types, strict=True) if names.intersection(job.gpu_types or names)]
        if its and words[str(job.id)][0]["code"] == ReasonCode.NO_HEALTHY_NODE:
            first = min(its, key=lambda row: row.ends_at)
            found[str(job.id)] = [reason_of(KeptOff(first), now)]
    return found


def _of_nodes_kept(
    words: Mapping[str, list[ReasonText]],
    snapshot: Snapshot,
    plan: Plan,
    left_out: LeftOut,
    *,
    rows: InputRows,
    now: datetime,
) -> dict[str, list[ReasonText]]:
    """Reasons of jobs that windows keep from some nodes: the window comes first where GPUs idle there for the job.

    The jobs have those in the order of the queue, each its smallest gang: others would wait without the window, too.
    """
    found: dict[str, list[ReasonText]] = {}
    idle = np.bincount(snapshot.inventory.gpu_node[plan.owner < 0], minlength=len(snapshot.nodes))
    for row, why in sorted(left_out.partly_kept_off.items()):
        reasons = words.get(snapshot.jobs[row], [])
        if reasons:
            closed = np.array([node.id in why.window.nodes for node in rows.nodes], dtype=np.bool_)
            would_do = reasons[0]["code"] in OF_OTHERS and _takes_idle(idle, closed, row, snapshot)
            mine = [reason_of(why, now, gpus=_gpus_on(closed, snapshot))]
            found[snapshot.jobs[row]] = [*mine, *reasons] if would_do else [*reasons, *mine]
    return found


OF_OTHERS = {
    code.value
    for code in (
        ReasonCode.INSUFFICIENT_GPUS,
        ReasonCode.FRAGMENTED,
        ReasonCode.OUTBID,
        ReasonCode.AWAITING_RELEASE,
        ReasonCode.NEXT_ROUND,
    )
}
"""Reasons that are other jobs: more nodes would do."""


def _gpus_on(nodes: Bools, snapshot: Snapshot) -> int:
    """GPUs in service on these nodes (N,)."""
    return int(nodes[snapshot.inventory.gpu_node].sum())


def _takes_idle(idle: Ints, closed: Bools, row: int, snapshot: Snapshot) -> bool:
    """Whether idle GPUs (N,) of closed nodes, with those open to the row, hold its smallest gang; takes them if so."""
    needs, inventory = int(snapshot.problem.base_gpus[row]), snapshot.inventory
    for j in np.unique(inventory.node_type[closed & (idle > 0)]).tolist():
        of_type = inventory.node_type == j
        mine = of_type & inventory.open_to(row) & ~closed
        if idle[mine].sum() < needs <= idle[mine].sum() + idle[of_type & closed].sum():
            _take(idle, np.flatnonzero(of_type & closed), needs - int(idle[mine].sum()))
            return True
    return False


def _take(idle: Ints, nodes: Ints, gpus: int) -> None:
    """Take so many GPUs from those that idle on these nodes."""
    for node in nodes.tolist():
        taken = min(int(idle[node]), gpus)
        idle[node] -= taken
        gpus -= taken


def reason_of(why: KeptOff, now: datetime, *, gpus: int = 0) -> ReasonText:
    """Why a job waits: the window, its end, and what would let the job start earlier.

    gpus: those on the nodes of the window, where the job may use other nodes.
    """
    window = why.window
    code = ReasonCode.RESERVED if window.team_id is not None else ReasonCode.MAINTENANCE
    numbers: dict[str, Any] = {"begins_at": window.begins_at.isoformat(), "ends_at": window.ends_at.isoformat()}
    if window.begins_at <= now and gpus:
        some = "1 GPU that could run it is" if gpus == 1 else f"{gpus} GPUs that could run it are"
        return reason_text(code, f"{some} {window.state_words}.", gpus=gpus, **numbers)
    if window.begins_at <= now:
        return reason_text(code, f"Nodes that could run it are in a window: {window.words}.", **numbers)
    if isfinite(window.gap_s):
        numbers["longest_gap_s"] = window.gap_s
    return reason_text(code, _kept_off_text(why), **numbers)


def _kept_off_text(why: KeptOff) -> str:
    """Why a job does not start before a future window, and what would let it start."""
    words, gap = why.window.words, f"{why.window.gap_s / 3600:.3g} h"
    near = f"A window of nodes that could run it is near: {words}."
    match why.why:
        case Crossing.LATE:
            return f"It might not end before a window of nodes that could run it: {words}."
        case Crossing.NEAR:
            return (
                f"{near} It is long for the {gap} between windows: it starts after this one, and saves its work and"
                " makes room before the next."
            )
        case Crossing.NEVER:
            return (
                f"It can never run on nodes with this window: {words}. They are open for {gap} at most, and it may"
                " run longer and may not be stopped. Make it preemptible, or give it a shorter time limit."
            )
        case Crossing.UNKNOWN:
            return f"{near} How long it runs is not known: with a time limit that ends before, it may start."
