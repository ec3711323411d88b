"""The commands `motley submit`, `plan` (dry run) and `clone`."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from motley_client.client import Client
from motley_client.code import packed
from motley_client.responses import Job, JobDetail, Plan, Recipe
from motley_client.spec import SpecError, is_digest, value_of
from motley_command.commands.job_options import Specs, takes_changes, takes_specs
from motley_command.commands.wait import exit_code_of, wait_for_all
from motley_command.completion import JobArgument
from motley_command.lookup import connect, find_job, find_recipe, with_ids
from motley_command.replica_size import MOST, memory_by_type, model_memory_mib, proposed_size, written
from motley_command.tables.jobs import jobs_table, plan_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, say

MAX_LISTED_IDS = 10
"""How many ids of a batch are printed in the table output."""

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job has finished; exit with its exit code.")]


@takes_specs
def submit(
    context: typer.Context,
    *,
    specs: Specs,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and submit nothing, like motley plan.")
    ] = False,
    wait: WaitOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job. Examples:

    motley submit job.yaml

    motley submit --name resnet --gpus 4 -- python train.py

    motley submit recipe:resnet --set lr=0.1

    motley submit train.sh

    The last is a batch script: its #SBATCH lines are read, and those that are not honoured are named.
    Of a file with several jobs, either all are submitted or none.
    """
    if dry_run:
        _plan(context, specs, output)
        return
    if "recipe" in context.meta:
        with connect(context) as client:
            of = _of_recipe(context, client, specs, output)
            made = client.submit_recipe(of.recipe["id"], of.values, changes=of.changes, version=of.version)
            _follow_up(client, made, wait=wait, output=output)
        return
    submit_specs(context, specs, wait=wait, output=output)


def submit_specs(context: typer.Context, specs: Specs, *, wait: bool, output: Output) -> None:
    """Submit the jobs, with their code, and print them, or wait for their end."""
    with connect(context) as client:
        resolved = with_uploaded_code(client, _with_dependency_ids(client, specs), output)
        if len(resolved) == 1:
            _follow_up(client, client.submit(resolved[0]), wait=wait, output=output)
        else:
            _follow_up_batch(client, client.submit_many(resolved), wait=wait, output=output)


@takes_specs
def plan(context: typer.Context, *, specs: Specs, output: OutputOption = Output.TABLE) -> None:
    """Plan a job without submitting it. Shows where it could run, how fast, at what cost, and if it could start."""
    _plan(context, specs, output)


def _plan(context: typer.Context, specs: Specs, output: Output) -> None:
    with connect(context) as client:
        if "recipe" not in context.meta:
            _show_plans(client, _with_dependency_ids(client, specs), output)
            return
        of = _of_recipe(context, client, specs, Output.NAME)
        forecast = output is not Output.NAME
        made = client.plan_recipe(of.recipe["id"], of.values, changes=of.changes, version=of.version, forecast=forecast)
        emit(output, made, names=_types_of(made), table=lambda: plan_table(made, now=now()))


class _OfRecipe(NamedTuple):
    """A recipe that is to be submitted: values of its parameters, and fields in place of its own."""

    recipe: Recipe
    values: dict[str, str]
    changes: dict[str, Any]
    version: int | None


def _of_recipe(context: typer.Context, client: Client, specs: Specs, output: Output) -> _OfRecipe:
    """What `recipe:NAME@VERSION` and the options ask for; a `--set` that names no parameter is a field of the job."""
    (changes,), given = specs, context.meta["set"]
    name, at, version = context.meta["recipe"].partition("@")
    if at and not version.isdecimal():
        raise SpecError(f"recipe:{name}@{version}: write a number after @, e.g. recipe:{name}@3.")
    recipe = find_recipe(client, name, changes.pop("team", None))
    parameters = _parameters_of(client, recipe, version)
    values = {one: text for one, text in given.items() if one in parameters}
    fields = {one: value_of(f"--set {one}", text) for one, text in given.items() if one not in parameters}
    (changes,) = with_uploaded_code(client, [{**changes, **fields, "team": recipe["team"]}], output)
    changes = with_ids(client, {field: value for field, value in changes.items() if field != "team"})
    return _OfRecipe(recipe, values, changes, int(version) if version else None)


def _parameters_of(client: Client, recipe: Recipe, version: str) -> list[str]:
    """Names of the parameters of the version, by default of the latest."""
    if not version or int(version) == recipe["version"]:
        return [one["name"] for one in recipe["parameters"]]
    found = (one for one in client.recipe_versions(recipe["id"]) if one["version"] == int(version))
    return [parameter["name"] for one in found for parameter in one["parameters"]]


@takes_changes
def clone(
    context: typer.Context,
    job: JobArgument,
    *,
    changes: dict[str, Any],
    checkpoint: Annotated[
        str,
        typer.Option(
            help="Begin with this checkpoint of the job, of motley checkpoints JOB; a dot: with all that it saved.",
            metavar="NAME",
        ),
    ] = "",
    wait: WaitOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a copy of a job with changes. Example: motley clone resnet --gpus 8"""
    with connect(context) as client:
        found = find_job(client, job)
        (changes,) = with_uploaded_code(client, [{"team": found["team"], **changes}], output)
        made = client.clone(found["id"], with_ids(client, changes), checkpoint=checkpoint)
        _follow_up(client, made, wait=wait, output=output)


def replica_size(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="SIZE", help="Parameters of the model, e.g. 13B, or its memory in training, e.g. 120GiB."
        ),
    ],
    *,
    output: OutputOption = Output.TABLE,
) -> None:
    """Propose gpus_per_replica: the fewest GPUs of each type whose memory holds the model. Example: 13B

    The memory of a model is taken to be 16 bytes per parameter (mixed precision, Adam), and 70 % of a GPU's memory to
    be for it; frameworks that shard or offload less need more GPUs.
    """
    memory_mib = model_memory_mib(model)
    with connect(context) as client:
        size = proposed_size(memory_mib, memory_by_type(client.gpu_types()))
    if not size:
        raise SpecError(f"No GPU type holds {model} on {MOST} GPUs or fewer.")
    if output is Output.TABLE:
        say(written(size))
    else:
        emit(output, {"gpus_per_replica": size}, names=list(size), table=lambda: "")


def _with_dependency_ids(client: Client, specs: Specs) -> Specs:
    for spec in specs:
        if "command" not in spec:
            raise SpecError(_no_command(spec))
    return [with_ids(client, spec) for spec in specs]


def with_uploaded_code(client: Client, specs: Specs, output: Output) -> Specs:
    """The specs with the digest of the uploaded archive in place of each folder of code."""
    digests: dict[tuple[str, str], str] = {}
    resolved = []
    for spec in specs:
        folder, team = spec.get("code"), spec.get("team") or ""
        if not (isinstance(folder, str) and isinstance(team, str) and folder) or is_digest(folder):
            resolved.append(spec)  # nothing to upload, or nothing that the service would accept
            continue
        if (folder, team) not in digests:
            digests[folder, team] = _uploaded(client, Path(folder), team or client.default_team(), output)
        resolved.append({**spec, "code": digests[folder, team]})
    return resolved


def _uploaded(client: Client, folder: Path, team: str, output: Output) -> str:
    """Upload the folder and return its digest."""
    with packed(folder) as code:
        is_new = client.upload_packed(code, team=team)
        if output is Output.TABLE:
            what = f"{_files(code.files)}, {_size(code.size_bytes)} packed"
            say(f"Code {code.digest[:12]}: {what}, {'uploaded' if is_new else 'uploaded before'}.")
        return code.digest


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _size(size_bytes: int) -> str:
    mib = size_bytes / (1 << 20)
    return f"{mib:,.1f} MiB" if mib >= 1 else f"{size_bytes / 1024:,.1f} KiB"


def _no_command(spec: Mapping[str, Any]) -> str:
    if meant := get_close_matches("command", spec, n=1):
        return f"Unknown field {meant[0]!r}: did you mean 'command'?"
    return "No command: give a file with `command: ...`, or the command after --, e.g. -- python train.py"


def _show_plans(client: Client, specs: Specs, output: Output) -> None:
    plans = [client.plan(_without_siblings(spec), forecast=output is not Output.NAME) for spec in specs]
    if output is Output.TABLE:
        for made in plans:
            if len(plans) > 1:
                say(f"{sanitized(str(made['spec'].get('name', '')))}:")
            emit(output, made, names=[], table=lambda made=made: plan_table(made, now=now()))  # type: ignore[misc]
        return
    answer = plans if len(plans) > 1 else plans[0]
    emit(output, answer, names=[name for made in plans for name in _types_of(made)], table=lambda: "")


def _without_siblings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The job without what a plan does not need: jobs of the same file, and a folder of code that is not uploaded."""
    if not is_digest(str(spec.get("code", ""))):
        spec = {name: value for name, value in spec.items() if name != "code"}
    after = [need for need in spec.get("after") or [] if not _is_sibling(need)]
    return {**{name: value for name, value in spec.items() if name != "after"}, **({"after": after} if after else {})}


def _is_sibling(need: Any) -> bool:
    return isinstance(need, Mapping) and str(need.get("job", "")).startswith("#")


def _types_of(plan: Plan) -> list[str]:
    """The GPU types that the job could use, the preferred one first."""
    return [option["gpu_type"] for option in sorted(plan["options"], key=lambda option: not option["preferred"])]


def _follow_up(client: Client, job: JobDetail, *, wait: bool, output: Output) -> None:
    """Print the new job, or wait for it, for an array all its members, and exit with the exit code."""
    if output is Output.TABLE:
        _announce(job)
    if not wait:
        if output is not Output.TABLE:
            emit(output, job, names=[job["id"]], table=lambda: "")
        return
    members = list(client.jobs(array=job["array"], fields=("id", "name"))) if job["array"] else [job]
    ended = wait_for_all(client, members)
    if output is not Output.TABLE:
        emit(output, ended[0] if len(ended) == 1 else ended, names=[one["id"] for one in ended], table=lambda: "")
    raise typer.Exit(exit_code_of(ended))


def _follow_up_batch(client: Client, ids: list[str], *, wait: bool, output: Output) -> None:
    if output is Output.TABLE:
        _announce_batch(ids)
    elif not wait:
        emit(output, {"count": len(ids), "ids": ids}, names=ids, table=lambda: "")
    if wait:
        ended = wait_for_all(client, [client.job(one) for one in ids])
        if output is not Output.TABLE:
            emit(output, ended, names=ids, table=lambda: jobs_table(ended, now=now()))
        raise typer.Exit(exit_code_of(ended))


def _announce(job: Job) -> None:
    array = f", the first of the array {job['array']}" if job["array"] else ""
    say(f"Submitted {sanitized(job['name'])} ({job['id']}){array}, {job['state']}.")
    if job["reason"] == "budget":
        say(sanitized(job["message"]))
    whole, log = (job["array"], "follow the log of its first task") if job["array"] else (job["id"], "follow its log")
    say(f"  motley logs -f {job['id']}   {log}")
    for verb, purpose in (("show", "show its state"), ("cancel", "cancel it")):
        say(f"  motley {verb:7} {whole}   {purpose}")


def _announce_batch(ids: list[str]) -> None:
    say(f"Submitted {len(ids):,} jobs.")
    for one in ids[:MAX_LISTED_IDS]:
        say(f"  {one}")
    say(f"  and {len(ids) - MAX_LISTED_IDS:,} more\n" if len(ids) > MAX_LISTED_IDS else "")
    say("  motley ps   show their state")
