"""Looking at jobs, and changing what they are."""

import re
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any

import typer

from motley_client.answers import ACTIVE_STATES, Job, JobInFull, State
from motley_client.client import Client
from motley_client.completion import JobArgument, TeamOption, gpu_types
from motley_client.errors import Conflict
from motley_client.lookup import connect, find_job
from motley_client.spec import SpecError, merged, pairs_of
from motley_client.tables.jobs import attempts_table, events_table, explanation, job_details, jobs_table
from motley_client.terminal import Output, OutputOption, WatchOption, emit, now, present, say, warn

SECONDS_PER = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
TRIES = 10
"""A running job changes with every report; what was read of it may be old before it is written."""


def ps(
    context: typer.Context,
    search: Annotated[str | None, typer.Argument(help="Beginnings of names and ids, and tags as NAME=VALUE.")] = None,
    *,
    state: Annotated[list[State] | None, typer.Option(metavar="STATE", help="Only this; repeat it for more.")] = None,
    all_states: Annotated[bool, typer.Option("--all", "-a", help="Finished jobs too.")] = False,
    team: TeamOption = None,
    owner: Annotated[str | None, typer.Option()] = None,
    gpu_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="That they run on.", autocompletion=gpu_types)
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME[=VALUE]", help="Repeat it for more.")] = None,
    array: Annotated[str | None, typer.Option(metavar="ID", help="Only the members of this array.")] = None,
    since: Annotated[str | None, typer.Option(help="Submitted since, as in 2h or 2026-12-01T12:00:00Z.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List jobs, the newest first; those that have not finished, unless told otherwise."""
    wanted: dict[str, Any] = {
        "state": state or ([] if all_states else ACTIVE_STATES),
        "q": search,
        "team": team,
        "owner": owner,
        "gpu_type": gpu_type,
        "tag": tag or [],
        "array": array,
        "created_after": since_of(since),
        "page_size": min(limit + 1, 200),
    }
    with connect(context) as client:
        present(
            lambda: _newest(client, wanted, limit, quiet=watch),
            output=output,
            watch=watch,
            names=lambda jobs: [job["id"] for job in jobs],
            table=lambda jobs: jobs_table(jobs, now=now()),
        )


def show(
    context: typer.Context, job: JobArgument, *, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """Show all of one job: its state, why it waits, and its attempts."""
    with connect(context) as client:
        found = find_job(client, job)["id"]
        present(
            lambda: client.job(found),
            output=output,
            watch=watch,
            names=lambda job: [job["id"]],
            table=lambda job: job_details(job, now=now()),
        )


def explain(
    context: typer.Context,
    job: JobArgument,
    *,
    would_start: Annotated[
        bool,
        typer.Option("--would-start", help="Also try what would start it now: fewer GPUs, another type, more weight."),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a job waits, with numbers, and how fast it is taken to be on each type of GPU."""
    with connect(context) as client:
        found = find_job(client, job)
        answer = client.explain(found["id"], would_start=would_start)
    emit(output, answer, names=[found["id"]], table=lambda: explanation(found, answer))


def events(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List what happened to a job, and who did it."""
    with connect(context) as client:
        found = list(client.events(find_job(client, job)["id"]))
    emit(output, found, names=[str(one["id"]) for one in found], table=lambda: events_table(found, now=now()))


def attempts(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List each time that a job was given GPUs: which, how long, and how it ended."""
    with connect(context) as client:
        found = list(client.attempts(find_job(client, job)["id"]))
    emit(output, found, names=[str(one["number"]) for one in found], table=lambda: attempts_table(found, now=now()))


def change(
    context: typer.Context,
    job: JobArgument,
    *,
    name: Annotated[str | None, typer.Option("--name", "-n")] = None,
    weight: Annotated[float | None, typer.Option(help="The share within the team.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set it; the others stay.")] = None,
    untag: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Take the tag off.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="As in 48h; none lifts it.")] = None,
    deadline: Annotated[str | None, typer.Option(help="As in 2026-12-01T12:00:00Z; none lifts it.")] = None,
    retries: Annotated[int | None, typer.Option(help="After failures; preemptions never count.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a job: its name, weight, tags, limits or retries; of a finished one only the name and the tags."""
    fields = merged({}, {"name": name, "weight": weight, "retries": retries})
    limits = {"time_limit": time_limit, "deadline": deadline}
    fields |= {limit: None if text == "none" else text for limit, text in limits.items() if text is not None}
    tags = pairs_of("--tag", tag or [])
    if not (fields or tags or untag):
        raise SpecError("What should change? Give an option, as in: --weight 2")
    with connect(context) as client:
        changed = _change(client, find_job(client, job)["id"], fields, tags, set(untag or []))
    if output is Output.TABLE:
        say("Changed.")
    emit(output, changed, names=[changed["id"]], table=lambda: job_details(changed, now=now()))


def since_of(text: str | None) -> str | None:
    """The time that is `2h` ago; a time as it is."""
    ago = re.fullmatch(r"(\d{1,6})([smhd])", text or "")
    return (now() - timedelta(seconds=int(ago[1]) * SECONDS_PER[ago[2]])).isoformat() if ago else text


def _newest(client: Client, wanted: dict[str, Any], limit: int, *, quiet: bool) -> list[Job]:
    found = list(islice(client.jobs(**wanted), limit + 1))
    if len(found) > limit and not quiet:
        warn(f"These are the newest {limit}; --limit shows more.")
    return found[:limit]


def _change(client: Client, job_id: str, fields: dict[str, Any], tags: dict[str, str], untag: set[str]) -> JobInFull:
    """Tags are replaced as a whole: they are read and written until nobody came in between."""
    if not (tags or untag):
        return client.change(job_id, fields)
    for _ in range(TRIES - 1):
        try:
            return _retag(client, job_id, fields, tags, untag)
        except Conflict as error:
            if error.code != "stale":
                raise
    return _retag(client, job_id, fields, tags, untag)


def _retag(client: Client, job_id: str, fields: dict[str, Any], tags: dict[str, str], untag: set[str]) -> JobInFull:
    job = client.job(job_id)
    kept = {name: value for name, value in job["spec"].get("tags", {}).items() if name not in untag}
    return client.change(job_id, fields | {"tags": kept | tags}, if_match=job["etag"])
