"""Dependencies (`after`) given by names of jobs, in the form as in the command."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User

from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from jobs_app.submission.fields import is_text
from web.rest.errors import Fault, encodable

TASK = re.compile(r"(.+)\[(\d{1,9})\]")


def with_ids(spec: Mapping[str, Any], owner: User) -> dict[str, Any]:
    """The spec with ids in place of names in `after`; raises `InvalidSpec` for an unknown or ambiguous name."""
    after = spec.get("after")
    if not isinstance(after, list):
        return dict(spec)
    found, faults = [], []
    for position, need in enumerate(after):
        try:
            found.append(_with_id(need, owner))
        except LookupError as error:
            detail = encodable(str(error))
            faults.append(Fault(pointer=f"/after/{position}/job", code="no_such_job", detail=detail))
    if faults:
        raise InvalidSpec(faults)
    return {**spec, "after": found}


def _with_id(need: Any, owner: User) -> Any:
    """A name alone stands for `{job: NAME}`."""
    need = {"job": need} if isinstance(need, str) else need
    typed = need.get("job") if isinstance(need, Mapping) else None
    if not isinstance(typed, str) or not typed or _is_id(typed):
        return need
    return {**need, "job": str(job_named(typed, owner).pk)}


def job_named(typed: str, owner: User) -> Job:
    """The only job of this name that the user may see, or of several the only unfinished one; else `LookupError`."""
    if not is_text(typed):
        raise LookupError("No job has such a name: it has a character that no name may have.")
    task = TASK.fullmatch(typed)
    by_name = {"name": task[1], "array_index": int(task[2])} if task else {"name": typed}
    jobs = Job.objects.visible_to(owner).filter(**by_name).select_related("array")
    chosen = _only(jobs.order_by("-pk")[:2]) or _only(jobs.unfinished().order_by("-pk")[:2])
    if chosen is not None:
        return chosen
    some = jobs.first()
    if some is None:
        raise LookupError(f"No job named {typed} that you may see: check the name, or give its id.")
    if some.array_id and task is None:
        raise LookupError(f"{typed} is an array: give one of its tasks, e.g. {some}.")
    raise LookupError(f"Several jobs are named {typed}: give the id of one.")


def _only(jobs: Iterable[Job]) -> Job | None:
    found = list(jobs)
    return found[0] if len(found) == 1 else None


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
