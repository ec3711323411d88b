"""Insertion of admitted jobs into the queue, with their dependencies, tags and first events."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from database.bulk_insert import insert_many
from database.row_locks import shared
from jobs_app.code.storage import note_use
from jobs_app.ended_logins import refuse_ended_login
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job, JobArray, JobDependency, JobEvent, JobTag, Reason, Team
from jobs_app.models.job import begin_time_text
from jobs_app.submission.admission import Admitted, note_of_weight
from jobs_app.submission.arrays import array_text
from jobs_app.submission.conversion import spec_of

Row = dict[str, Any]


def enqueue(asked: Sequence[Admitted]) -> tuple[Job, list[UUID]]:
    """Insert the jobs in bulk and return the first, and the ids of all in order. Call it inside a transaction.

    Raises `LoginEnded` as `refuse_ended_logins` does, and `InvalidSpec` as `refuse_retired_teams` does.
    """
    refuse_ended_logins(asked)
    refuse_retired_teams(asked)
    note_use(one.code for one in asked if one.code is not None)
    rows, needs, tags, events = [], [], [], []
    for one in asked:
        for row in _rows_of(one):
            rows.append(row)
            needs += [{"child_id": row["id"], "parent_id": need["job"], "on": need["on"]} for need in one.needs]
            tags += [{"job_id": row["id"], "name": name, "value": text} for name, text in row.get("tags", {}).items()]
            events.append(_submitted(one, row))
    first = _job_of(asked[0], rows[0])
    first.save(force_insert=True)
    for model, made in ((Job, rows[1:]), (JobDependency, needs), (JobTag, tags), (JobEvent, events)):
        if made:
            insert_many(model, made)
    return first, [row["id"] for row in rows]


def refuse_ended_logins(asked: Iterable[Admitted]) -> None:
    """Raise `LoginEnded` for jobs with secrets if the login of their owner has ended since it was read.

    Another person has the account then, whose secrets they would start with. Call it before other rows are locked.
    """
    owners = {one.owner.pk: one.owner for one in asked if one.columns.get("secrets")}
    for _, owner in sorted(owners.items()):
        refuse_ended_login(owner)


def refuse_retired_teams(asked: Iterable[Admitted]) -> None:
    """Raise `InvalidSpec` if a team has been retired since it was read; none is until the end of the transaction."""
    teams = Team.objects.filter(pk__in={one.team.pk for one in asked}).order_by("pk")
    for team in shared(teams.only("name", "retired_at")):
        if team.retired_at is not None:
            raise InvalidSpec.at("/team", "team_retired", f"The team {team} has just been retired: choose another.")


def draft_spec(asked: Admitted) -> dict[str, Any]:
    """The spec after parsing, with defaults filled in; nothing is written."""
    return spec_of(just_written(draft(asked), asked)) | ({"array": array_text(asked.array)} if asked.array else {})


def draft(asked: Admitted) -> Job:
    """Unsaved job, or any member of the array."""
    return _job_of(asked, _row(asked))


def _rows_of(asked: Admitted) -> Iterator[Row]:
    """One row, or one for each index of the array."""
    if asked.array is None:
        yield _row(asked)
        return
    array = JobArray.objects.create(**asked.array)
    for index in array.all_indices:
        own = {} if index == array.start else {"id": uuid7()}
        yield _row(asked) | {"array_id": array.pk, "array_index": index} | own


def _row(asked: Admitted) -> Row:
    reason, message = _why_it_waits(asked)
    fresh = {"reason": reason.value, "message": message, "team_id": asked.team.pk, "owner_id": asked.owner.pk}
    return {"id": asked.id, **asked.columns, **fresh}


def _why_it_waits(asked: Admitted) -> tuple[Reason, str]:
    begin_time = asked.columns.get("begin_time")
    if begin_time and not asked.needs:
        return Reason.BEGIN_TIME, begin_time_text(begin_time)
    if asked.waits and not asked.needs:
        return asked.waits
    reason = Reason.DEPENDENCY if asked.needs else Reason.NEXT_ROUND
    return reason, str(reason.label)


def _job_of(asked: Admitted, row: Row) -> Job:
    job = Job(**row)
    job.team, job.owner, job.code = asked.team, asked.owner, asked.code
    return job


def just_written(job: Job, asked: Admitted) -> Job:
    """The job with its relations filled in, so that it can be serialised without reading it back."""
    needs = [JobDependency(child=job, parent_id=need["job"], on=need["on"]) for need in asked.needs]
    known: dict[str, list[Any]] = {"attempts": [], "needs": needs}
    job._prefetched_objects_cache = known  # type: ignore[attr-defined]  # as `prefetch_related` leaves it
    return job


def _submitted(asked: Admitted, row: Row) -> Row:
    """First event of the job; it wakes the scheduler."""
    notes = (note_of_weight(row.get("weight", 0.0), asked.team), asked.note)
    message = "; ".join(note for note in notes if note)[:500]
    return {"job_id": row["id"], "kind": JobEvent.Kind.SUBMITTED.value, "actor_id": row["owner_id"], "message": message}
