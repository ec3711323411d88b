"""The `motley` command."""

from typing import Annotated

import typer

from motley_client.commands import account, cluster, jobs, logs, scheduling, simulate, submitting, verbs, waiting
from motley_client.commands.described import CommandAfterDashes
from motley_client.failures import ErrorsAsExitCodes

app = typer.Typer(cls=ErrorsAsExitCodes, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)

for command in (submitting.submit, submitting.plan, submitting.clone):
    app.command(cls=CommandAfterDashes)(command)
for command in (
    jobs.ps,
    jobs.show,
    jobs.explain,
    jobs.events,
    jobs.attempts,
    jobs.change,
    logs.logs,
    waiting.wait,
    verbs.cancel,
    verbs.hold,
    verbs.release,
    verbs.requeue,
    cluster.nodes,
    cluster.cordon,
    cluster.drain,
    cluster.resume,
    cluster.types,
    cluster.rates,
    scheduling.share,
    scheduling.rounds,
):
    app.command()(command)
app.add_typer(scheduling.policy, name="policy")
app.command(context_settings=simulate.AS_IT_IS)(simulate.simulate)
for command in (account.login, account.logout, account.me, account.version):
    app.command()(command)
app.add_typer(account.token, name="token")


@app.callback()
def main(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="Default: $MOTLEY_URL, then the configuration file.")] = None,
    token: Annotated[str | None, typer.Option(help="Default: $MOTLEY_TOKEN, then the configuration file.")] = None,
) -> None:
    """Submit jobs to a cluster of GPUs of mixed types, and watch over them.

    Exit codes: 0 done, 1 the job failed, 2 usage, 3 not allowed, 4 not found, 5 conflict, 6 the service failed.
    """
    context.obj = {"url": url, "token": token}
