"""Job files of other systems: recognised by their fields, and translated to Motley's with notes on what differs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from motley_command.convert import determined, dstack, skypilot, wandb_sweep
from motley_command.convert.fields import Translation


class Format(NamedTuple):
    """A kind of file: its name in messages, its test and its translation."""

    name: str
    is_one: Callable[[Mapping[str, Any]], bool]
    translated: Callable[[Mapping[str, Any]], Translation]


FORMATS = (
    Format("a SkyPilot task", skypilot.is_task, skypilot.translated),
    Format("a dstack configuration", dstack.is_configuration, dstack.translated),
    Format("a Determined experiment", determined.is_experiment, determined.translated),
    Format("a sweep of W&B", wandb_sweep.is_sweep, wandb_sweep.translated),
)


def format_of(document: Any) -> Format | None:
    """The system that this document is written for; None where it is a job of Motley, or of nobody known."""
    if not isinstance(document, Mapping) or not all(isinstance(name, str) for name in document):
        return None
    return next((one for one in FORMATS if one.is_one(document)), None)
