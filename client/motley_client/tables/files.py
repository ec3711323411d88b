"""Table of the files of a job."""

from collections.abc import Iterable
from datetime import datetime

from rich.console import RenderableType

from motley_client.responses import JobFile
from motley_client.tables.format import age, table

NOT_FOLLOWED = "link or device, not followed"


def files_table(files: Iterable[JobFile], *, now: datetime) -> RenderableType:
    rows = [(_name(file), _size(file), age(file["modified_at"], now)) for file in files]
    return table(("NAME", "SIZE", "AGE"), rows, empty="No files.")


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
