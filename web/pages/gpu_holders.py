"""Holders of the GPUs that a waiting job may use: by GPU type, the teams whose jobs hold them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db.models import Count

from insight_app.gpu_occupancy import GpuCounts, gpu_counts
from jobs_app.models import GpuClaim, Job, Team
from web.pages.charts import OKABE_ITO

OTHERS = "other teams"
"""Holders that the user may not see."""


class Holder(NamedTuple):
    """A team, or all those that the user may not see, and how many GPUs of the type its jobs hold."""

    name: str
    gpus: int
    before: int
    """GPUs of the holders left of it on the bar."""
    tint: int
    """Its colour, as a place in the palette: of a team the same on each type."""


@dataclass(frozen=True)
class HeldType:
    """GPUs of a type that are present, and their holders."""

    gpu_type: str
    gpus: int
    idle: int
    holders: Sequence[Holder]


def read_gpu_holders(job: Job, gpu_types: Collection[str], user: User) -> list[HeldType]:
    """Holders of GPUs of these types, those of the job's team first; none for a job that does not wait for GPUs."""
    if job.state != Job.State.QUEUED or job.held:
        return []
    seen = set(Team.objects.visible_to(user).values_list("name", flat=True))
    claims = GpuClaim.objects.holding().filter(gpu__present=True, gpu__node__gpu_type__name__in=gpu_types).order_by()
    of_teams = claims.values_list("gpu__node__gpu_type__name", "attempt__job__team__name").annotate(Count("pk"))
    held = Counter[tuple[str, str]]()
    for gpu_type, team, gpus in of_teams:
        held[gpu_type, team if team in seen else OTHERS] += gpus
    counts = [one for one in gpu_counts() if one.gpu_type in gpu_types]
    return held_types(counts, held, first=job.team.name)


def held_types(counts: Collection[GpuCounts], held: Mapping[tuple[str, str], int], *, first: str) -> list[HeldType]:
    """Holders by type: the given one first, then by name, unnamed ones last."""
    names = sorted({name for _, name in held}, key=lambda name: (name != first, name == OTHERS, name))
    gpus = {one.gpu_type: [held.get((one.gpu_type, name), 0) for name in names] for one in counts}
    return [HeldType(one.gpu_type, one.total, one.idle, _side_by_side(names, gpus[one.gpu_type])) for one in counts]


def _side_by_side(names: Sequence[str], gpus: Sequence[int]) -> list[Holder]:
    columns = enumerate(zip(names, gpus, accumulate(gpus, initial=0), strict=False))
    return [Holder(name, n, before, tint % len(OKABE_ITO)) for tint, (name, n, before) in columns if n]
