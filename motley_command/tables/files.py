"""Tables of the files and the checkpoints of a job."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import Group, RenderableType

from motley_client.responses import ContinuedBy, JobFile, SavedCheckpoint, SavedCheckpoints
from motley_command.tables.format import age, number, table

NOT_FOLLOWED = "link or device, not followed"


def files_table(files: Iterable[JobFile], *, now: datetime) -> RenderableType:
    rows = [(_name(file), _size(file), age(file["modified_at"], now)) for file in files]
    return table(("NAME", "SIZE", "AGE"), rows, empty="No files.")


def checkpoints_table(found: SavedCheckpoints, *, now: datetime) -> RenderableType:
    heads = ("NAME", "STEP", "LOSS", "SIZE", "AGE", "TOOK", "ATTEMPT")
    rows = [_checkpoint_row(one, now) for one in found["checkpoints"]]
    begun = [f"{one['name']} ({one['id']}) began with {_what(one)}." for one in found["continued_by"]]
    return Group(table(heads, rows, empty="No checkpoints."), *begun)


def _checkpoint_row(one: SavedCheckpoint, now: datetime) -> tuple[str, ...]:
    name = one["name"] or ("archive of all" if one["kept"] else "not kept")
    step = "" if one["step"] is None else f"{one['step']:,}"
    loss = "" if one["loss"] is None else number(one["loss"])
    kept_size = "" if one["size"] is None else size(one["size"])
    took = "" if one["took_s"] is None else f"{one['took_s']:.3g} s"
    return (name, step, loss, kept_size, age(one["made_at"], now), took, str(one["attempt"] or ""))


def _what(one: ContinuedBy) -> str:
    step = "" if one["continues_step"] is None else f", step {one['continues_step']:,}"
    return (one["continues_from"] or "all of them") + step


def _name(file: JobFile) -> str:
    return f"{file['name']}/" if file["kind"] == "folder" else file["name"]


def _size(file: JobFile) -> str:
    return {"folder": "", "file": size(file["size"])}.get(file["kind"], NOT_FOLLOWED)


def size(count: float) -> str:
    """A number of bytes with three digits: `512 B`, `1.5 KiB`, `20 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
