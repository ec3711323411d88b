"""Throughputs of workloads by CPUs per GPU, as measured at the starts of their jobs."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import NamedTuple

from django.utils import timezone

from estimation.cpu_curve import CpuSample, cpu_curve, with_next_trial
from jobs_app.models import CpuRate
from scheduler_app.round.inputs.job_row import DeclaredSensitivity

FORGOTTEN_AFTER = timedelta(days=30)
"""A rate to which no report came for so long counts no more: the program may have changed, or the trial gone badly."""


class Gang(NamedTuple):
    """A workload on GPUs of one type."""

    team_id: int
    workload: str
    gpu_type_id: int
    gpus: int
    nodes: int


class MeasuredCurve(NamedTuple):
    """Measured rates of a workload by CPUs per GPU, and the most CPUs that were tried."""

    sensitivity: DeclaredSensitivity
    most_tried: int
    """CPUs per GPU."""


CpuCurves = Mapping[Gang, MeasuredCurve]


def read_cpu_curves(workloads: Collection[tuple[int, str]]) -> dict[Gang, MeasuredCurve]:
    """The curves of these workloads (team and name), each of one gang, without rates that are too old."""
    samples = defaultdict[Gang, list[CpuSample]](list)
    columns = (*Gang._fields, "cpus_per_gpu", "batch_size", "steps_per_second", "reports")
    teams, names = {team for team, _ in workloads}, {name for _, name in workloads}
    fresh = CpuRate.objects.filter(updated_at__gt=timezone.now() - FORGOTTEN_AFTER)
    for row in fresh.filter(team__in=teams, workload__in=names).values_list(*columns):
        samples[Gang._make(row[:5])].append(CpuSample(*row[5:]))
    curves = {gang: cpu_curve(of_gang) for gang, of_gang in samples.items()}
    return {
        gang: MeasuredCurve(DeclaredSensitivity(tuple(with_next_trial(curve).items()), None), max(curve))
        for gang, curve in curves.items()
        if curve
    }
