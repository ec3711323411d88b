"""Remaining lengths of jobs that declare none: drawn from durations of others, censored ones included."""

from collections.abc import Sequence

from accounting_app.durations.duration_history import EndedJob
from estimation.duration_curves import DurationCurves, DurationLeft
from estimation.durations import Basis, DurationEstimate, JobTraits
from estimation.types import Floats
from scheduler_app.round.inputs import JobRow

FROM_OTHERS = frozenset({Basis.SIMILAR, Basis.SIMILAR_OF_TEAM, Basis.USER, Basis.ALL})
"""Estimates in whose place the durations of other jobs are taken; arrays, stages and models know more."""


def left_by_others(
    every: Sequence[JobRow],
    durations: Sequence[DurationEstimate | None],
    ended: Sequence[EndedJob],
    *,
    jobs: int,
    base_gpus: Floats,
    done_s: Floats,
) -> list[DurationLeft | None]:
    """Samples of the remaining length of each row; None if its length is known, or too few others took longer.

    The first rows are the jobs that are there, the others samples, which are not counted again. An array is one
    observation, once a task of it has ended.
    """
    estimated = [found is not None and found.basis in FROM_OTHERS for found in durations]
    if not any(estimated):
        return []
    traits = [traits_of(job, int(gpus)) for job, gpus in zip(every, base_gpus.tolist(), strict=True)]
    so_far = done_s.tolist()
    there = zip(every[:jobs], traits, so_far, strict=False)
    curves = DurationCurves.of(
        ((JobTraits(one.owner_id, one.name, one.gpus, one.team_id), one.seconds) for one in ended),
        ((of_job, seconds) for job, of_job, seconds in there if seconds > 0 and job.array_id is None),
    )
    rows = zip(traits, so_far, estimated, strict=True)
    return [curves.left_of(of_job, seconds) if asked else None for of_job, seconds, asked in rows]


def traits_of(job: JobRow, gpus: int) -> JobTraits:
    """Traits by which durations are estimated, with the GPUs of the smallest gang."""
    return JobTraits(job.owner_id, job.name, gpus, job.team_id)
