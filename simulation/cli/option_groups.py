"""Groups of command-line options as dataclasses: declared once, and shared by several commands."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

Command = Callable[..., None]


def with_options(group: type) -> Callable[[Command], Command]:
    """Add the fields of a dataclass to a command's options; its parameter of that type gets an instance of it."""

    def add(command: Command) -> Command:
        # Typer makes options of a function's parameters: the fields become some of them.
        declared = list(signature(command, eval_str=True).parameters.values())
        (name,) = (parameter.name for parameter in declared if parameter.annotation is group)
        own = [parameter for parameter in declared if parameter.name != name]

        @wraps(command)
        def run(**given: Any) -> None:
            values = {field.name: given.pop(field.name) for field in fields(group)}
            command(**given, **{name: group(**values)})

        order = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        ordered = sorted(
            [*own, *signature(group, eval_str=True).parameters.values()], key=lambda p: order.index(p.kind)
        )
        run.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
        return run

    return add
