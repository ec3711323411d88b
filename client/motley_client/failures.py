"""What can go wrong with a command: what it says then, and what the shell sees."""

from typing import Any

import typer
from typer.core import TyperGroup

from motley_client.configuration import ConfigurationError
from motley_client.errors import (
    AuthError,
    Conflict,
    FieldError,
    InvalidRequest,
    MotleyError,
    NotFound,
    ServerError,
    Unreachable,
)
from motley_client.inert import inert
from motley_client.lookup import AmbiguousJob, AmbiguousToken
from motley_client.spec import SpecError
from motley_client.tables.jobs import jobs_table
from motley_client.terminal import console, now, warn

EXIT_CODES: dict[type[Exception], int] = {
    SpecError: 2,
    ConfigurationError: 2,
    AmbiguousJob: 2,
    AmbiguousToken: 2,
    InvalidRequest: 2,
    AuthError: 3,
    NotFound: 4,
    Conflict: 5,
    ServerError: 6,
    Unreachable: 6,
}
EXPECTED = tuple(EXIT_CODES)


class ErrorsAsExitCodes(TyperGroup):
    """Every command may raise; what the shell sees is decided here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            raise typer.Exit(explain(error)) from error


def explain(error: Exception) -> int:
    """Say what went wrong, once, field by field where the service did; the exit code."""
    faults = error.errors if isinstance(error, MotleyError) else ()
    if len(faults) > 1:
        warn(f"Error: {len(faults)} things are wrong.")
        for fault in faults:
            warn(f"  {_in_words(fault)}")
    else:
        warn(f"Error: {_in_words(faults[0]) if faults else inert(str(error))}")
    if isinstance(error, AmbiguousJob):
        console(stderr=True).print(jobs_table(error.candidates, now=now()))
    if isinstance(error, ServerError) and error.request_id:
        warn(inert(f"  Quote the request id when you report it: {error.request_id}"))
    return EXIT_CODES[type(error)]


def _in_words(fault: FieldError) -> str:
    field = field_of(fault.pointer)
    return inert(f"{field}: {fault.detail}" if field else fault.detail)


def field_of(pointer: str) -> str:
    """`after[0].job` for `/after/0/job`: a field as people write it."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps).removeprefix(".")
