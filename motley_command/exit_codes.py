"""Exit code and error message of a command that fails."""

from typing import Any

import typer

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
from motley_client.spec import SpecError
from motley_command.aliases import Verbs
from motley_command.configuration import ConfigurationError
from motley_command.lookup import AmbiguousArray, AmbiguousJob, AmbiguousName, AmbiguousToken
from motley_command.tables.jobs import jobs_table, namesakes_table
from motley_command.terminal import console, now, sanitized, warn

EXIT_CODES: dict[type[Exception], int] = {
    SpecError: 2,
    ConfigurationError: 2,
    AmbiguousArray: 2,
    AmbiguousJob: 2,
    AmbiguousName: 2,
    AmbiguousToken: 2,
    InvalidRequest: 2,
    AuthError: 3,
    NotFound: 4,
    Conflict: 5,
    ServerError: 6,
    Unreachable: 6,
}
EXPECTED = tuple(EXIT_CODES)


class ErrorsAsExitCodes(Verbs):
    """Command group that turns expected exceptions into a message on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            raise typer.Exit(report_error(error)) from error
        except Exception as error:
            # Newer versions of typer have a copy of click, so that its NoSuchOption has no one place to import it from.
            if getattr(error, "option_name", "") == "--json":  # of other programs
                vars(error).update(message="No such option: --json. Write -o json.", possibilities=None)
            raise


def report_error(error: Exception) -> int:
    """Print the error on stderr, field by field if there are several, and return its exit code."""
    faults = error.errors if isinstance(error, MotleyError) else ()
    if len(faults) > 1:
        warn(f"Error: the request has {len(faults)} errors.")
        for fault in faults:
            warn(f"  {_field_message(fault)}")
    else:
        warn(f"Error: {_field_message(faults[0]) if faults else sanitized(str(error))}")
    if isinstance(error, AmbiguousJob):
        console(stderr=True).print(jobs_table(error.candidates, now=now()))
    if isinstance(error, AmbiguousArray):
        console(stderr=True).print(namesakes_table(error.newest, now=now()))
    if isinstance(error, ServerError) and error.request_id:
        warn(sanitized(f"  Request id, to include in a report: {error.request_id}"))
    return EXIT_CODES[type(error)]


def _field_message(fault: FieldError) -> str:
    field = field_name(fault.pointer)
    return sanitized(f"{field}: {fault.detail}" if field else fault.detail)


def field_name(pointer: str) -> str:
    """Field name of a JSON pointer: `after[0].job` for `/after/0/job`."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps).removeprefix(".")
