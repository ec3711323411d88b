"""Change of a job: of what a queued one requests by the validation and admission of a submission."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from jobs_app.errors import Conflict, NotTheOwner
from jobs_app.models import Job
from jobs_app.submission.admission import Admission, ParsedSpec, default_workload
from jobs_app.submission.conversion import IN_REPLICAS, parse_change, parse_spec, spec_of
from jobs_app.submission.spec import JobChange

REQUEST = tuple(JobChange.OF_QUEUED)
"""Fields of a spec that may be changed while the job waits in the queue."""
COLUMNS: dict[str, Any] = {
    "command": "",
    "setup": "",
    "env": {},
    "gpus_min": 1,
    "gpus_max": 1,
    "gpus_per_replica": {},
    "gpu_types": [],
    "gpu_memory_mib": 0,
    "cpus_per_gpu": 0,
    "memory_per_gpu_mib": 0,
    "total_steps": None,
    "workload": "",
}
"""Columns that they are stored in, with what a spec without them means."""
NOT_OF_REQUEST = {"after", "begin_time", "deadline", "weight"}
"""What a submission would check, and the change leaves as it is: a begin time may have passed."""


def read_change(job: Job, data: Any, *, actor: User, administrator: bool = False) -> dict[str, Any]:
    """Validate the change of a job and return columns of `Job`; raise `InvalidSpec` with every fault."""
    columns = parse_change(data)
    asked = {name: data[name] for name in REQUEST if name in data}
    if not asked:
        return columns
    if job.state != Job.State.QUEUED:
        raise Conflict(f"{', '.join(asked)}: only of a job that waits in the queue. Requeue it, or clone it.")
    if actor.pk != job.owner_id and not administrator:
        raise NotTheOwner(job.owner.get_username())
    kept = {name: value for name, value in columns.items() if name not in COLUMNS}
    return kept | _requested(job, asked, administrator=administrator)


def _requested(job: Job, asked: Mapping[str, Any], *, administrator: bool) -> dict[str, Any]:
    """Columns with which the job requests what is asked; they are admitted as those of its owner's new job."""
    left_out = NOT_OF_REQUEST | (IN_REPLICAS if "gpus" in asked else set())
    spec = {name: value for name, value in spec_of(job).items() if name not in left_out}
    if "command" in asked and job.workload == default_workload(job.name, job.command):
        del spec["workload"]  # another program has other rates
    parsed = ParsedSpec.of(parse_spec({**spec, **asked}))
    admitted = Admission(job.owner, administrator=administrator).admit(parsed).columns
    return {name: admitted.get(name, default) for name, default in COLUMNS.items()}
