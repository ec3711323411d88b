"""A whole Motley for a test: its own folder, port and processes, started as a user starts it."""

import os
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from motley_client.errors import Conflict
from tests.deployment import PATIENCE_S, ROOT, Deployment, kill_all, wait_for
from tests.migrated_database import copy_migrated_file
from tests.private_servers import free_port

STREAMS, SESSIONS = 64, 33
"""Limits of a user of the shared service: more than the threads of the web, of which each could take a half."""


class Service(Deployment):
    """`make run` without make: the same command in an environment of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.var = Path(environment.get("MOTLEY_VAR", folder / "var"))
        self.port = free_port()
        self.mark = secrets.token_hex(8)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MOTLEY_VAR": str(self.var),
            "MOTLEY_PORT": str(self.port),
            "MOTLEY_TEST_MARK": self.mark,
            "DEMO": "0",
            "MOTLEY_FORECASTS": "0",
            **environment,
        }
        self.log = folder / "service.log"
        self.after_stop: list[Callable[[], None]] = []
        """Checks of what it leaves, made once it has stopped for good, so that no test stops and starts it for them."""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-u", str(self.sources / "manage.py"), "serve"]
            self.process = subprocess.Popen(command, env=self.environment, cwd=self.sources, stdout=log, stderr=log)
        wait_for("the service answers", self.answers)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.HTTPError):
            answer = httpx.get(f"{self.url}/api/v1/jobs", verify=False)  # to read certificates takes 27 ms
            return answer.status_code == 401
        return False

    def stop(self) -> None:
        """As Ctrl-C."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """As a power cut for everything but the jobs and their supervisors."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        wait_for("the service's other processes end with it", lambda: not self.service_processes())

    def settle(self) -> None:
        """As after its first start: it answers, no job waits or runs, and nothing of one is left."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.start()
        wait_for("it answers", self.answers)
        for job in list(self.client.jobs(state=["queued", "starting", "running"])):
            with suppress(Conflict):  # it has just ended
                self.client.cancel(job["id"])
        wait_for("nothing of the jobs is left", lambda: not self.job_processes())

    def lose_power(self) -> None:
        """All at once, the jobs and their supervisors, too: nobody closes a database or empties a buffer."""
        assert self.process is not None
        while left := [*self.service_processes(), *self.job_processes()]:
            kill_all(left)
            time.sleep(0.01)
        self.process.wait()

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.var / "motley.sqlite3", timeout=PATIENCE_S, isolation_level=None)) as file:
            return file.execute(statement).fetchall()

    def browser(self) -> httpx.Client:
        """Logged in as the demo's user."""
        browser = httpx.Client(base_url=self.url)
        hidden = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get("/login/").text)[0]
        fields = {"username": self.login["MOTLEY_USER"], "password": self.login["MOTLEY_PASSWORD"]}
        assert browser.post("/login/", data=fields | {"csrfmiddlewaretoken": hidden}).status_code == 302
        return browser

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def login(self) -> dict[str, str]:
        lines = (self.var / "demo.env").read_text().splitlines()
        return dict(line.removeprefix("export ").split("=", 1) for line in lines)

    @property
    def token(self) -> str:
        return self.login["MOTLEY_TOKEN"]

    @property
    def engine_root(self) -> Path:
        return Path(self.environment.get("MOTLEY_ENGINE_ROOT", self.var / "engine"))


@contextmanager
def a_service(*, prepared: Path | None = None, sources: Path = ROOT, **environment: str) -> Iterator[Service]:
    """A started service; afterwards nothing of it is left.

    With a copy of a prepared data folder it starts as a service does after an update: nothing is left to migrate.
    """
    folder = Path(f"/tmp/motley-test-{secrets.token_hex(4)}")
    folder.mkdir()
    folder.chmod(0o711)  # jobs of another user pass through
    service = Service(folder, **environment)
    service.sources = sources
    try:
        if prepared is not None:
            shutil.copytree(prepared, service.var, dirs_exist_ok=True)
        service.start()
        yield service
    finally:
        service.stop()
        try:
            for check in service.after_stop:
                check()
        finally:
            service.clear_away()
            shutil.rmtree(folder, ignore_errors=True)


def prepare_data_folder(folder: Path) -> Path:
    """A data folder as `make run` leaves it before the first account: a migrated database and the static files."""
    service = Service(folder)
    service.var.mkdir(mode=0o700)
    copy_migrated_file(service.var / "motley.sqlite3")
    service.python("from operations.prepare_host import collect_static_files\ncollect_static_files()")
    return service.var
