"""Preview of a policy: the next round under it beside the next round under the present one. Writes nothing.

Both are planned from the same rows, by the function that decides live rounds, without measurements of rates.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from allocation.plan_round import Plan
from jobs_app.models import Job
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import validated_parameters
from scheduler_app.round.commit import changes_of
from scheduler_app.round.inputs import InputRows, read_input_rows
from scheduler_app.round.job_options import Timing
from scheduler_app.round.run_round import decide, ids_set_aside, snapshot_without, timing_for, with_cpu_curves
from scheduler_app.round.snapshot import Snapshot

MOST_LISTED = 100
LONGEST_SOLVE_S = 20.0
"""Of each of the two rounds: a request waits for them. A live round may have longer."""


class PreviewedAction(StrEnum):
    """Action of a round on a job; actions that take GPUs away come first."""

    STOP = "stop"
    RESIZE = "resize"
    MOVE = "move"
    START = "start"
    KEEP = "keep"
    WAIT = "wait"


DEEDS = (PreviewedAction.START, PreviewedAction.STOP, PreviewedAction.MOVE, PreviewedAction.RESIZE)
"""Those that are counted."""


class PreviewedJob(NamedTuple):
    """Action of a round on a job, and the GPUs that the job then has."""

    deed: PreviewedAction
    gpu_type: str
    gpus: int

    def __str__(self) -> str:
        return f"{self.gpus} {self.gpu_type.upper()}" if self.gpus else "none"


class JobPreview(NamedTuple):
    """A job that the two rounds treat differently; `row` is None if it has been deleted since."""

    id: UUID
    job: Job | None
    present: PreviewedJob
    chosen: PreviewedJob


@dataclass(frozen=True)
class Preview:
    """The two rounds: how many jobs each would start, stop, move or resize, and the jobs that differ."""

    jobs: int
    present: Mapping[PreviewedAction, int]
    chosen: Mapping[PreviewedAction, int]
    differing: int
    listed: Sequence[JobPreview]
    """Of those that differ the first, those that lose GPUs before the others."""


def preview_policy(setting: PolicySetting, now: datetime) -> Preview:
    """Preview the next round under this setting; raises `InvalidChoice` with every fault of its policy."""
    setting.parameters = validated_parameters(setting.policy, setting.parameters)
    both = PolicySetting.objects.current(), setting
    timings = [_limited(timing_for(now, one)) for one in both]
    rows = read_input_rows(min(timing.shares_since for timing in timings), now)
    aside = ids_set_aside(rows, now)
    present, chosen = (_fates(rows, timing, one, aside) for timing, one in zip(timings, both, strict=True))
    return _compared(present, chosen)


def _limited(timing: Timing) -> Timing:
    return replace(timing, solve_limit_s=min(timing.solve_limit_s, LONGEST_SOLVE_S))


def _fates(rows: InputRows, timing: Timing, setting: PolicySetting, aside: Collection[UUID]) -> dict[str, PreviewedJob]:
    snapshot, _ = snapshot_without(aside, with_cpu_curves(rows, setting), timing)
    if not snapshot.jobs:
        return {}
    return dict(fates_of(snapshot, decide(snapshot, setting.policy, setting.parameters)))


def fates_of(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[str, PreviewedJob]]:
    """Each job of the snapshot with its fate. Pure."""
    changes = changes_of(snapshot, plan)
    starts, stops = {start.row for start in changes.starts}, set(changes.stops)
    size = {start.row: len(start.gpus) for start in changes.starts}
    for row, job in enumerate(snapshot.jobs):
        before, after = int(snapshot.problem.held[row]), int(plan.assignment[row])
        gpus = size.get(row, int(snapshot.problem.gpus[after]) if after >= 0 else 0)
        stays = before >= 0 <= after and snapshot.type_of(before) == snapshot.type_of(after) and before != after
        deed = _deed(starts=row in starts, stops=row in stops, resized=stays, held=before >= 0)
        yield job, PreviewedJob(deed, snapshot.type_of(after) if gpus else "", gpus)


def _deed(*, starts: bool, stops: bool, resized: bool, held: bool) -> PreviewedAction:
    """`resized`: it has another number of GPUs of the same type."""
    if starts and stops:
        return PreviewedAction.RESIZE if resized else PreviewedAction.MOVE
    if starts or stops:
        return PreviewedAction.START if starts else PreviewedAction.STOP
    return PreviewedAction.KEEP if held else PreviewedAction.WAIT


def _compared(present: Mapping[str, PreviewedJob], chosen: Mapping[str, PreviewedJob]) -> Preview:
    waits = PreviewedJob(PreviewedAction.WAIT, "", 0)
    pairs = {job: (present.get(job, waits), chosen.get(job, waits)) for job in present.keys() | chosen.keys()}
    differing = sorted(
        (job for job, pair in pairs.items() if pair[0] != pair[1]), key=lambda job: _order(job, *pairs[job])
    )
    first = [UUID(job) for job in differing[:MOST_LISTED]]
    named = Job.objects.select_related("team").in_bulk(first)
    return Preview(
        jobs=len(pairs),
        present=_counts(present),
        chosen=_counts(chosen),
        differing=len(differing),
        listed=[JobPreview(pk, named.get(pk), *pairs[str(pk)]) for pk in first],
    )


def _order(job: str, present: PreviewedJob, chosen: PreviewedJob) -> tuple[int, int, str]:
    order = list(PreviewedAction)
    return order.index(chosen.deed), order.index(present.deed), job


def _counts(fates: Mapping[str, PreviewedJob]) -> dict[PreviewedAction, int]:
    counted = Counter(fate.deed for fate in fates.values())
    return {deed: counted[deed] for deed in DEEDS}
