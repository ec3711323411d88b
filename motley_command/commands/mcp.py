"""The `motley mcp` command: serves the Model Context Protocol on standard input and output."""

from typing import Annotated

import typer

from motley_command.configuration import ConfigurationError
from motley_command.lookup import connect

MISSING = "The package mcp is not installed: pip install 'motley-client[mcp]', or the served wheel with [mcp] after it."


def mcp(
    context: typer.Context,
    *,
    allow_submit: Annotated[bool, typer.Option(help="Let the assistant submit jobs that it has planned.")] = False,
) -> None:
    """Serve an assistant by the Model Context Protocol (stdio): list, explain, plan, logs; with your token.

    Only with --allow-submit can it submit, and then only what it has planned before.
    """
    try:
        from motley_command.mcp_server import mcp_server  # noqa: PLC0415  # an extra; most people do without it
    except ModuleNotFoundError as error:
        raise ConfigurationError(MISSING) from error
    with connect(context) as client:
        mcp_server(client, allows_submit=allow_submit).run()
