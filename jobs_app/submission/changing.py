"""Change of a job: of what a queued one requests by the validation and admission of a submission."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from jobs_app.errors import Conflict, InvalidSpec, NotTheOwner
from jobs_app.models import Job
from jobs_app.submission.admission import Admission, ParsedSpec, default_workload
from jobs_app.submission.conversion import IN_REPLICAS, parse_change, parse_spec, spec_of
from jobs_app.submission.spec import JobChange
from web.rest.errors import Fault

REQUEST = tuple(JobChange.OF_QUEUED)
"""Fields of a spec that may be changed while the job waits in the queue."""
PROGRAM = {"command", "setup", "env"}
"""Fields that say what runs, with the secrets that the job names: of such a job its owner alone changes them."""
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
    try:
        columns = parse_change(data)
    except InvalidSpec as error:
        may = job.state == Job.State.QUEUED and (administrator or actor.pk == job.owner_id)
        more = _further_faults(job, data, error, administrator=administrator) if may else []
        raise InvalidSpec([*error.faults, *more]) from None
    asked = {name: data[name] for name in REQUEST if name in data}
    if not asked:
        return columns
    if job.state != Job.State.QUEUED:
        raise Conflict(f"{', '.join(asked)}: only of a job that waits in the queue. Requeue it, or clone it.")
    if actor.pk != job.owner_id and not administrator:
        raise NotTheOwner(job.owner.get_username())
    if actor.pk != job.owner_id and job.secrets and PROGRAM & asked.keys():
        raise NotTheOwner(job.owner.get_username(), what="runs with secrets")
    kept = {name: value for name, value in columns.items() if name not in COLUMNS}
    try:
        return kept | _requested(job, asked, administrator=administrator)
    except InvalidSpec as error:
        raise InvalidSpec([*error.faults, *_further_faults(job, asked, error, administrator=administrator)]) from None


def _further_faults(job: Job, data: Any, first: InvalidSpec, *, administrator: bool) -> list[Fault]:
    """Faults of what the job would request without the fields at fault: validation and admission stop at theirs."""
    wrong = {fault["pointer"].split("/")[1] for fault in first.faults if "/" in fault["pointer"]}
    asked = {name: data[name] for name in REQUEST if isinstance(data, Mapping) and name in data and name not in wrong}
    if not asked or asked.keys() == data.keys():
        return []
    try:
        _requested(job, asked, administrator=administrator)
    except InvalidSpec as error:
        return [*error.faults, *_further_faults(job, asked, error, administrator=administrator)]
    return []


def _requested(job: Job, asked: Mapping[str, Any], *, administrator: bool) -> dict[str, Any]:
    """Columns with which the job requests what is asked; they are admitted as those of its owner's new job."""
    left_out = NOT_OF_REQUEST | (IN_REPLICAS if "gpus" in asked else set())
    spec = {name: value for name, value in spec_of(job).items() if name not in left_out}
    if "command" in asked and job.workload == default_workload(job.name, job.command):
        del spec["workload"]  # another program has other rates
    parsed = ParsedSpec.of(parse_spec({**spec, **asked}))
    admitted = Admission(job.owner, administrator=administrator).admit(parsed).columns
    return {name: admitted.get(name, default) for name, default in COLUMNS.items()}
