"""Options of commands as fields of a dataclass: written once, and read by every command that takes it."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

Command = Callable[..., None]


def taking(options: type) -> Callable[[Command], Command]:
    """A command with these options beside its own; the argument of their type's name, in small letters, has them."""
    name = options.__name__.lower()

    def with_options(command: Command) -> Command:
        # typer makes options of a function's parameters: the fields become some of them.
        own = [p for p in signature(command, eval_str=True).parameters.values() if p.name != name]
        shared = list(signature(options, eval_str=True).parameters.values())

        @wraps(command)
        def run(**given: Any) -> None:
            said = {field.name: given.pop(field.name) for field in fields(options)}
            command(**given, **{name: options(**said)})

        places = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        ordered = sorted([*own, *shared], key=lambda parameter: places.index(parameter.kind))
        run.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
        return run

    return with_options
