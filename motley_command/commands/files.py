"""The `motley files` and `motley checkpoints` commands: folders of a job, download of a file, checkpoints."""

import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from motley_client.client import Client
from motley_client.errors import NotFound
from motley_client.responses import JobFolder
from motley_command.completion import JobArgument
from motley_command.lookup import connect, find_job
from motley_command.tables.files import checkpoints_table, files_table
from motley_command.terminal import Output, OutputOption, emit, now, sanitized, warn

STANDARD_OUTPUT = "-"


def files(
    context: typer.Context,
    job: JobArgument,
    path: Annotated[str, typer.Argument(help="Folder to list or file to download, e.g. work/out/model.pt.")] = "",
    *,
    to: Annotated[
        str | None,
        typer.Option(help="Where to write a file; - for standard output. Default: its name, here.", metavar="FILE"),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the files of a job, or download one: motley files JOB work/out/model.pt

    A job has its working folder, work, and checkpoints. Links are not followed.
    """
    with connect(context) as client:
        job_id = find_job(client, job)["id"]
        folder = None if to else _folder(client, job_id, path)
        if folder is None:
            _download(client, job_id, path, to)
            return
        names = [f"{folder['path']}/{one['name']}".lstrip("/") for one in folder["files"]]
        emit(output, folder, names=names, table=lambda: files_table(folder["files"], now=now()))
        if not folder["complete"]:
            warn(f"Only the first {len(names)} names are listed.")


def checkpoints(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the checkpoints of a job, also those that were replaced; motley clone JOB --checkpoint NAME begins with one.

    Each file or folder of checkpoints is one; of a job on a machine that joined there is an archive of all.
    """
    with connect(context) as client:
        found = client.checkpoints(find_job(client, job)["id"])
        names = [one["name"] for one in found["checkpoints"] if one["kept"]]
        emit(output, found, names=names, table=lambda: checkpoints_table(found, now=now()))


def _folder(client: Client, job_id: str, path: str) -> JobFolder | None:
    """The folder; None if the path is none, and so may be a file."""
    try:
        return client.files(job_id, path)
    except NotFound:
        return None


def _download(client: Client, job_id: str, path: str, to: str | None) -> None:
    blocks = client.file(job_id, path)
    if to == STANDARD_OUTPUT:
        for block in blocks:
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        return
    target = Path(to or PurePosixPath(path).name)
    if to is None and target.exists():
        raise typer.BadParameter(f"{target} exists already. Give another name, or the same: --to {target}")
    _write(target, blocks)
    warn(f"{sanitized(str(target))}: {target.stat().st_size:,} bytes")


def _write(target: Path, blocks: Iterable[bytes]) -> None:
    """Write the file under another name first, so that a download that ends early leaves nothing that looks whole."""
    unfinished = target.with_name(f"{target.name}.part")
    try:
        with unfinished.open("wb") as file:
            file.writelines(blocks)
        unfinished.replace(target)
    except OSError as error:
        raise typer.BadParameter(f"{target} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)
