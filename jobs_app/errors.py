"""Errors about jobs. `config.problems` maps them to HTTP."""

from collections.abc import Iterable
from datetime import datetime

from web.rest.errors import Fault, bounded, encodable


class JobsError(Exception):
    """Base of all errors about jobs; `code` is for machines, the text for people."""

    code = "jobs"
    faults: tuple[Fault, ...] = ()


class InvalidSpec(JobsError):
    """The job as described cannot be accepted; every fault is listed."""

    code = "invalid_spec"

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(bounded(faults))
        super().__init__("; ".join(f"{fault['pointer'] or '/'}: {fault['detail']}" for fault in self.faults))

    @classmethod
    def at(cls, pointer: str, code: str, detail: str) -> "InvalidSpec":
        return cls([Fault(pointer=encodable(pointer), code=code, detail=encodable(detail))])


class TooManyJobs(InvalidSpec):
    code = "too_many"

    def __init__(self, most: int, given: int) -> None:
        text = f"A batch may have at most {most:,} jobs; this one has {given:,}. Split it."
        super().__init__([Fault(pointer="/jobs", code=self.code, detail=text)])


class KeyReused(InvalidSpec):
    """The Idempotency-Key was used for something else."""

    code = "idempotency_key_reused"

    def __init__(self, key: str) -> None:
        text = f"The key {key!r} was used with another body or query. Use a new key for a new request."
        super().__init__([Fault(pointer="", code=self.code, detail=text)])


class NotAllowed(JobsError):
    """The user may see the object but not do this with it."""

    code = "not_allowed"


class LoginEnded(NotAllowed):
    """The login, or the token, of the request has ended since it was authenticated."""

    def __init__(self) -> None:
        super().__init__("The login, or the token, with which this was asked for has ended in the meantime.")


class Conflict(JobsError):
    """The job's state does not allow this."""

    code = "wrong_state"


class TeamInUse(Conflict):
    """A team was to be retired that has unfinished jobs."""

    code = "team_in_use"

    def __init__(self, team: str, jobs: int) -> None:
        has = "an unfinished job: cancel it" if jobs == 1 else f"{jobs:,} unfinished jobs: cancel them"
        super().__init__(f"The team {team} has {has}, and retire the team then.")


class NotAccepted(JobsError):
    """A person could not be added to a team, or invited, as written; `field` is the one at fault."""

    code = "not_accepted"

    def __init__(self, field: str, detail: str) -> None:
        self.field = field
        self.faults = (Fault(pointer=f"/{field}", code=self.code, detail=encodable(detail)),)
        super().__init__(detail)


class FilesDeleted(JobsError):
    """The logs of a job that ended long ago were deleted."""

    code = "files_deleted"

    def __init__(self, at: datetime) -> None:
        super().__init__(f"The logs, working folder and checkpoints of this job were deleted on {at:%d %B %Y}.")


class InProgress(Conflict):
    """A request with the same Idempotency-Key is being answered at this moment."""

    code = "in_progress"
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("A request with this key is in progress. Try again in a moment.")


class NotTheOwner(NotAllowed):
    """Somebody else of the team changes what a job runs: it runs with its owner's secrets."""

    code = "not_the_owner"

    def __init__(self, owner: str, *, what: str = "runs and requests") -> None:
        super().__init__(f"What the job {what} is changed by {owner}, whose job it is. Clone it instead.")


class JobIsFinished(Conflict):
    code = "job_is_finished"

    def __init__(self, state: str) -> None:
        super().__init__(f"The job has already {'been ' if state == 'cancelled' else ''}{state}.")


class JobIsArchived(Conflict):
    code = "job_is_archived"

    def __init__(self) -> None:
        super().__init__("The job is in the archive: it can be read and cloned, but not changed.")


class JobIsNotHeld(Conflict):
    code = "job_is_not_held"

    def __init__(self) -> None:
        super().__init__("The job is not held.")
