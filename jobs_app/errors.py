"""What can go wrong with jobs. Mapped to HTTP once, in `config.problems`."""

from collections.abc import Iterable, Iterator
from typing import Any, TypedDict


class Fault(TypedDict):
    """One thing wrong with a request: where (a JSON pointer), which kind, and what to do."""

    pointer: str
    code: str
    detail: str


def faults_of(detail: Any, pointer: str = "") -> Iterator[Fault]:
    """Walk DRF's nested error detail into a flat list with JSON pointers."""
    match detail:
        case dict():
            for name, inner in detail.items():
                yield from faults_of(inner, pointer if name == "non_field_errors" else f"{pointer}/{escaped(name)}")
        case list():
            for position, inner in enumerate(detail):
                nested = isinstance(inner, dict | list)
                yield from faults_of(inner, f"{pointer}/{position}" if nested else pointer)
        case _:
            code = getattr(detail, "code", None) or "invalid"
            yield Fault(pointer=encodable(pointer), code=code, detail=encodable(str(detail)))


def escaped(name: Any) -> str:
    """As a step of a JSON pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def encodable(text: str) -> str:
    """The text, with halves of surrogate pairs, which JSON can write and no answer can hold, as \\udc80."""
    return text.encode(errors="backslashreplace").decode()


class JobsError(Exception):
    """Base of all errors about jobs; `code` is for machines, the text for people."""

    code = "jobs"
    faults: tuple[Fault, ...] = ()


class InvalidSpec(JobsError):
    """The job as described cannot be accepted; every fault is listed."""

    code = "invalid_spec"

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{fault['pointer'] or '/'}: {fault['detail']}" for fault in self.faults))

    @classmethod
    def at(cls, pointer: str, code: str, detail: str) -> "InvalidSpec":
        return cls([Fault(pointer=encodable(pointer), code=code, detail=encodable(detail))])


class TooManyJobs(InvalidSpec):
    code = "too_many"

    def __init__(self, most: int, given: int) -> None:
        text = f"A batch has at most {most:,} jobs, and this one has {given:,}: part it."
        super().__init__([Fault(pointer="/jobs", code=self.code, detail=text)])


class KeyReused(InvalidSpec):
    """The Idempotency-Key was used for something else."""

    code = "idempotency_key_reused"

    def __init__(self, key: str) -> None:
        text = f"The key {key!r} came with another body before: take a new key for a new request."
        super().__init__([Fault(pointer="", code=self.code, detail=text)])


class NotAllowed(JobsError):
    """The person may see the job but not do this to it."""

    code = "not_allowed"


class Conflict(JobsError):
    """The job is not in a state in which this can be done."""

    code = "wrong_state"


class InProgress(Conflict):
    """Somebody is answering to the same Idempotency-Key at this moment."""

    code = "in_progress"
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__("A request with this key is under way: ask again in a moment.")


class JobIsFinished(Conflict):
    code = "job_is_finished"

    def __init__(self, state: str) -> None:
        super().__init__(f"The job is {state} already.")


class JobIsNotHeld(Conflict):
    code = "job_is_not_held"

    def __init__(self) -> None:
        super().__init__("The job is not held.")
