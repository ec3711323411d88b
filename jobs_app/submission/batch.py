"""Batch submission: parse and admit up to 10,000 jobs, with the pointer of each fault."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from uuid_utils.compat import uuid7

from jobs_app.errors import InvalidSpec, TooManyJobs
from jobs_app.submission.admission import Admission, Admitted, ParsedSpec
from jobs_app.submission.conversion import SpecReader
from web.rest.errors import MORE_FAULTS, MOST_FAULTS, Fault

LARGEST_BATCH = 10_000


def admitted_batch(data: Any, owner: User, *, administrator: bool = False) -> list[Admitted]:
    """Parse and admit all jobs; raise `InvalidSpec` with the first faults. Nothing is written."""
    specs = _specs_of(data)
    ids = [uuid7() for _ in specs]
    asked, faults = _parsed(specs, ids)
    parents = {need["job"] for one in asked for need in one.needs}
    admission = Admission(owner, parents, siblings=set(ids), administrator=administrator)
    place = {pk: n for n, pk in enumerate(ids)}
    admitted = []
    for one in asked:
        if len(faults) >= MOST_FAULTS:
            break
        try:
            admitted.append(admission.admit(one))
        except InvalidSpec as refusal:
            faults += _placed(refusal, place[one.id])
    if faults:
        raise InvalidSpec(_first(faults))
    return admitted


def _first(faults: Sequence["PlacedFault"]) -> Iterator[Fault]:
    """The first faults in the order of the jobs; if there are more, that they are not listed."""
    yield from (fault for _, fault in sorted(faults, key=lambda placed: placed[0])[:MOST_FAULTS])
    if len(faults) >= MOST_FAULTS:
        text = f"Only the first {MOST_FAULTS} faults are listed; the jobs after them were not looked at."
        yield Fault(pointer="/jobs", code=MORE_FAULTS, detail=text)


PlacedFault = tuple[int, Fault]


def _specs_of(data: Any) -> Sequence[Any]:
    if not isinstance(data, Mapping) or not isinstance(data.get("jobs"), list) or not data["jobs"]:
        raise InvalidSpec.at("/jobs", "required", "Send {jobs: [...]} with at least one job.")
    if unknown := [name for name in data if name != "jobs"]:
        raise InvalidSpec.at(f"/{unknown[0]}", "unknown", f"Unknown field {unknown[0]!r}. The only field is `jobs`.")
    specs: list[Any] = data["jobs"]
    if len(specs) > LARGEST_BATCH:
        raise TooManyJobs(LARGEST_BATCH, len(specs))
    return specs


def _parsed(specs: Sequence[Any], ids: Sequence[UUID]) -> tuple[list[ParsedSpec], list[PlacedFault]]:
    read = SpecReader().read
    asked: list[ParsedSpec] = []
    faults: list[PlacedFault] = []
    for position, spec in enumerate(specs):
        if len(faults) >= MOST_FAULTS:
            break
        try:
            one = ParsedSpec.of(read(_with_ids(spec, position, ids)), id=ids[position])
            if one.array is not None:
                text = "A batch cannot contain an array: submit the array by itself."
                raise InvalidSpec.at("/array", "array_in_batch", text)
            asked.append(one)
        except InvalidSpec as refusal:
            faults += _placed(refusal, position)
    return asked, faults


def _placed(refusal: InvalidSpec, position: int) -> Iterator[PlacedFault]:
    for fault in refusal.faults:
        yield position, Fault(**{**fault, "pointer": f"/jobs/{position}{fault['pointer']}"})


def _with_ids(spec: Any, position: int, ids: Sequence[UUID]) -> Any:
    """The spec, with `#3` in `after` replaced by the id of the fourth job."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("after"), list):
        return spec
    after = [_with_id(need, f"/after/{n}/job", position, ids) for n, need in enumerate(spec["after"])]
    return {**spec, "after": after}


def _with_id(need: Any, pointer: str, position: int, ids: Sequence[UUID]) -> Any:
    index = re.fullmatch(r"#(\d{1,6})", str(need.get("job"))) if isinstance(need, Mapping) else None
    if index is None:
        return need
    parent = int(index[1])
    if parent >= len(ids):
        raise InvalidSpec.at(
            pointer, "no_such_job", f"There is no job #{parent} in the batch; the last is #{len(ids) - 1}."
        )
    if parent >= position:
        text = f"#{parent} does not come before #{position}: list a job after the jobs that it depends on."
        raise InvalidSpec.at(pointer, "cycle", text)
    return {**need, "job": str(ids[parent])}
