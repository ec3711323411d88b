"""A CSV file of 10,000 nodes through the admin: `python -m benchmarks.nodes_file [--rows 10000]`.

Previewed, imported, and imported once more with other figures. On SQLite, in a folder of its own, while another
connection asks for the write lock again and again; with MOTLEY_DATABASE, on that database, which must be empty.
"""

import argparse
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from benchmarks.figures import Figure, table

if TYPE_CHECKING:  # the settings read the environment when they are imported
    from django.test import Client

T = TypeVar("T")
ROWS = 10_000
PREVIEW_S = 5
HEAD = "name,gpu_type,gpus,cpus,memory_mib,emulated"
PAUSE_S = 0.005


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="motley-nodes-") as folder:
        os.environ |= {"MOTLEY_VAR": folder, "MOTLEY_LOG_LEVEL": "ERROR", "DJANGO_SETTINGS_MODULE": "config.settings"}
        print(table(measure(_administrator(), options.rows)))


def _administrator() -> "Client":
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    settings.STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def measure(client: "Client", rows: int) -> list[Figure]:
    """Times of the preview and of the import, for new nodes and for nodes that are there."""
    figures = []
    for what, cpus in (("new", 64), ("changed", 128)):
        shown, preview = _timed(lambda n=cpus: _preview(client, rows, n))  # type: ignore[misc]
        _, confirmed = _timed(lambda page=shown: _confirm(client, page))  # type: ignore[misc]
        figures += [
            Figure(f"preview of {rows:,} {what} nodes: CPU", preview.cpu_s, "s", PREVIEW_S),
            Figure("preview: longest wait of another for the write lock", preview.lock_wait_s, "s"),
            Figure(f"import of {rows:,} {what} nodes: elapsed", confirmed.elapsed_s, "s"),
            Figure("import: longest wait of another for the write lock", confirmed.lock_wait_s, "s"),
        ]
    return figures


class Times(NamedTuple):
    cpu_s: float
    elapsed_s: float
    lock_wait_s: float


def _timed(request: Callable[[], T]) -> tuple[T, Times]:
    cpu, began = process_time(), perf_counter()
    with _waits_for_lock() as waits:
        answer = request()
    return answer, Times(process_time() - cpu, perf_counter() - began, max(waits, default=0.0))


@contextmanager
def _waits_for_lock() -> Iterator[list[float]]:
    """Seconds that another connection waited for SQLite's write lock, each time that it asked; none on PostgreSQL."""
    from django.db import connection

    waits: list[float] = []
    done = Event()
    path = connection.settings_dict["NAME"]
    thread = Thread(target=_ask_for_lock, args=(path, waits, done))
    if connection.vendor == "sqlite":
        thread.start()
    yield waits
    done.set()
    if connection.vendor == "sqlite":
        thread.join()


def _ask_for_lock(path: str, waits: list[float], done: Event) -> None:
    with closing(sqlite3.connect(path, timeout=600, isolation_level=None)) as other:
        while not done.wait(PAUSE_S):
            began = perf_counter()
            other.execute("BEGIN IMMEDIATE")
            waits.append(perf_counter() - began)
            other.execute("ROLLBACK")


def _preview(client: "Client", rows: int, cpus: int) -> str:
    from django.core.files.uploadedfile import SimpleUploadedFile

    text = "\n".join([HEAD, *(f"rack{n // 40}-{n % 40:02},a100,8,{cpus},1048576,yes" for n in range(rows))])
    file = SimpleUploadedFile("nodes.csv", text.encode(), "text/csv")
    answer = client.post("/admin/cluster_app/node/import/", {"import_file": file, "format": "0", "resource": ""})
    shown = answer.content.decode()
    assert "Confirm import" in shown, shown
    return shown


def _confirm(client: "Client", shown: str) -> None:
    names = ("import_file_name", "original_file_name", "format", "resource")
    found = {name: re.search(rf'name="{name}"[^>]*value="([^"]*)"', shown) for name in names}
    values = {name: match[1] for name, match in found.items() if match}
    answer = client.post("/admin/cluster_app/node/process_import/", values)
    assert answer.status_code == 302, answer.content.decode()


if __name__ == "__main__":
    main()
