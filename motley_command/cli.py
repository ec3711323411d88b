"""The `motley` command: all its subcommands in the order of `motley --help`."""

from typing import Annotated

import typer

from motley_command.aliases import Verbs, aliases_in_words
from motley_command.commands import (
    account,
    cluster,
    convert,
    files,
    history,
    jobs,
    lab,
    logs,
    mcp,
    notifications,
    recipes,
    recurring,
    sbatch,
    scheduling,
    secrets,
    servers,
    sessions,
    simulate,
    slurm,
    ssh,
    submit,
    sweeps,
    team_limits,
    teams,
    wait,
    web_ports,
    windows,
)
from motley_command.commands.job_options import CommandAfterDashes, CommandWithRecipe
from motley_command.exit_codes import ErrorsAsExitCodes

app = typer.Typer(
    cls=ErrorsAsExitCodes,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=f"{aliases_in_words()} Slurm's commands: sbatch, squeue, scancel, sacct, sinfo, scontrol.",
)

for command in (submit.submit, submit.plan):
    app.command(cls=CommandWithRecipe)(command)
app.command(cls=CommandAfterDashes)(submit.clone)
app.command(cls=sbatch.SlurmCommand)(sbatch.sbatch)
app.command()(convert.convert)
app.command()(submit.replica_size)
app.command(name="exec", cls=CommandAfterDashes)(sessions.execute)
app.command()(sessions.port)
app.command(name="open")(web_ports.open_page)
app.command(cls=CommandAfterDashes)(web_ports.notebook)
app.command()(web_ports.tensorboard)
app.command(name="ssh-config")(ssh.ssh_config)
app.command(name="ssh-proxy", hidden=True)(ssh.ssh_proxy)
for command in (
    jobs.ps,
    jobs.show,
    jobs.explain,
    jobs.events,
    jobs.attempts,
    jobs.metrics,
    jobs.graph,
    jobs.receipt,
    jobs.change,
    jobs.comment,
    logs.logs,
    files.files,
    files.checkpoints,
    wait.wait,
    jobs.cancel,
    jobs.hold,
    jobs.release,
    jobs.requeue,
    cluster.nodes,
    cluster.cordon,
    cluster.drain,
    cluster.resume,
    cluster.retire,
    cluster.restore,
    cluster.types,
    cluster.storage,
    cluster.rates,
    scheduling.share,
    scheduling.usage,
    scheduling.report,
    scheduling.rounds,
):
    app.command()(command)
for command in (slurm.squeue, slurm.scancel, slurm.sacct, slurm.sinfo, slurm.scontrol):
    app.command(hidden=True)(command)
for name in slurm.INSTEAD:
    app.command(name, hidden=True, context_settings=simulate.AS_IT_IS)(slurm.instead)
app.add_typer(recipes.recipe, cls=Verbs, name="recipe")
app.add_typer(recurring.recurring, cls=Verbs, name="recurring")
app.add_typer(sweeps.sweep, cls=Verbs, name="sweep")
app.add_typer(windows.window, cls=Verbs, name="window")
app.add_typer(cluster.gpu_type_group, cls=Verbs, name="gpu-type")
app.add_typer(servers.server, cls=Verbs, name="server")
app.add_typer(teams.team, cls=Verbs, name="team")
app.add_typer(team_limits.quota, cls=Verbs, name="quota")
app.add_typer(team_limits.budget, cls=Verbs, name="budget")
app.add_typer(scheduling.policy, cls=Verbs, name="policy")
app.add_typer(history.history, cls=Verbs, name="history")
app.add_typer(lab.lab, cls=Verbs, name="lab")
app.command(context_settings=simulate.AS_IT_IS)(simulate.simulate)
app.command(context_settings=simulate.AS_IT_IS)(simulate.shadow)
app.command()(mcp.mcp)
for command in (account.login, account.logout, account.me, account.version):
    app.command()(command)
app.add_typer(account.config, cls=Verbs, name="config")
app.add_typer(account.token, cls=Verbs, name="token")
app.add_typer(secrets.secret, cls=Verbs, name="secret")
app.add_typer(notifications.notifications, cls=Verbs, name="notifications")


@app.callback()
def main(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="Address of the service. Default: $MOTLEY_URL, then the configuration file.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="API token. Default: $MOTLEY_TOKEN, then the configuration file.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=account.version_if_asked, is_eager=True)
    ] = False,
) -> None:
    """Submit and manage jobs on a GPU cluster of mixed GPU types.

    Exit codes: 0 success, 1 job failed, 2 usage error, 3 not authorized, 4 not found, 5 conflict, 6 service error.
    """
    context.obj = {"url": url, "token": token}
