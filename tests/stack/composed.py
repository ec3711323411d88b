"""docker-compose.yml without containers: the same commands as processes, in folders and on ports of their own.

Done as compose does it: ${VARIABLES}, the image's own PATH and command, the order of `depends_on` with its conditions,
health checks, volumes and tmpfs; and the web server sees no process of the others. Not done: users, capabilities,
read-only roots, networks.
"""

import json
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import yaml

from engines.supervision.isolation import PREFIXES, best_isolation
from tests.deployment import PATIENCE_S, ROOT, Deployment, wait_for
from tests.migrated_database import fill_migrated
from tests.private_servers import POSTGRESQL, Server, free_port, postgresql_server, private_folder

HOSTS = ("postgres", "redis")
"""Names by which one service finds another; here all are this machine."""
PORTS = ("5432", "6379", "8000")
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::([?-])([^}]*))?\})")
SYSTEM_PATH = f"{POSTGRESQL}:/usr/local/bin:/usr/bin:/bin"


def compose_file(given: Mapping[str, str]) -> dict[str, Any]:
    """The services, with the variables filled in as compose does."""

    def value(found: re.Match[str]) -> str:
        dollar, name, kind, rest = found.groups()
        if dollar:
            return "$"
        if kind == "?":
            assert given.get(name), f"{name} is missing: {rest}"
        return given.get(name) or (rest if kind == "-" else "")

    def filled(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: filled(branch) for key, branch in tree.items()}
        if isinstance(tree, list):
            return [filled(branch) for branch in tree]
        return VARIABLE.sub(value, tree) if isinstance(tree, str) else tree

    services: dict[str, Any] = filled(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))["services"]
    return services


def environment_of(spec: Mapping[str, Any], env_file: Mapping[str, str]) -> dict[str, Any]:
    """What compose passes to a service: its `env_file`, here those variables, and over that its `environment`."""
    return {**(env_file if "env_file" in spec else {}), **spec.get("environment", {})}


def image_command() -> list[str]:
    words: list[str] = json.loads(re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0])
    return words


Kind = TypeVar("Kind", bound="Stack")


class Member:
    """One service of the compose file, as a process of this machine."""

    def __init__(
        self,
        name: str,
        spec: dict[str, Any],
        folder: Path,
        ports: Mapping[str, str],
        mark: str,
        *,
        env_file: Mapping[str, str],
        apart: bool = False,
    ) -> None:
        self.name, self.spec, self.folder, self.apart = name, spec, folder, apart
        self._ports = ports
        self._places = {"/motley": str(ROOT), **self._volumes(), **self._tmpfs()}
        path = f"{ROOT}/.venv/bin:{SYSTEM_PATH}" if "build" in spec else SYSTEM_PATH
        image = {"MOTLEY_VAR": self._made("image"), "MOTLEY_FORECASTS": "0"} if "build" in spec else {}
        given = {key: self._here(str(text)) for key, text in environment_of(spec, env_file).items()}
        self.environment = {"PATH": path, "HOME": "/nonexistent", **image, **given, "MOTLEY_TEST_MARK": mark}
        self.log = folder / f"{name}.log"
        self.server = self._postgresql() if name == "postgres" else self._process()

    def start(self) -> None:
        self.server.start()

    def kill(self) -> None:
        """The process and its children, but not the jobs: on a host they would go on, too."""
        self.server.kill()

    def tell(self, what: signal.Signals) -> None:
        """To the process and its children."""
        assert self.server.process is not None
        os.killpg(self.server.process.pid, what)

    def end(self) -> None:
        """The main process is told alone, as by `docker stop` and by `systemctl stop` with `KillMode=process`."""
        if self.running:
            os.kill(self.main_pid, signal.SIGINT if self.name == "postgres" else signal.SIGTERM)
            wait_for(f"{self.name} has stopped", lambda: not self.running)

    @property
    def main_pid(self) -> int:
        """Of the service itself: unshare, which starts it in a PID namespace, passes no signal on."""
        assert self.server.process is not None
        started = self.server.process.pid
        children = Path(f"/proc/{started}/task/{started}/children").read_text().split()
        return int(children[0]) if self.apart else started

    @property
    def running(self) -> bool:
        return self.server.is_running()

    def finished_well(self) -> bool:
        assert self.server.process is not None
        code = self.server.process.poll()
        assert code in (None, 0), self.said()
        return code == 0

    def said(self) -> str:
        return self.server.log.read_text()[-3000:] if self.server.log.exists() else ""

    def is_healthy(self) -> bool:
        """What the health check says; a service without one is healthy as long as it runs."""
        assert self.running, f"{self.name} ended: {self.said()}"
        if "healthcheck" not in self.spec:
            return True
        kind, *words = self.spec["healthcheck"]["test"]
        command = [self._here(word) for word in (["sh", "-c", *words] if kind == "CMD-SHELL" else words)]
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, check=False, capture_output=True, timeout=PATIENCE_S
        ).returncode == 0  # fmt: skip

    def _process(self) -> Server:
        words = [self._here(word) for word in self.spec.get("command") or image_command()]
        apart = PREFIXES[best_isolation()] if self.apart else ()
        return Server([*apart, *words], self.log, self.environment, cwd=ROOT if "build" in self.spec else Path("/"))

    def _postgresql(self) -> Server:
        """The image's entry point makes the database and its owner when it finds none."""
        folder, port = self.folder / "volumes" / "postgres", int(self._ports["5432"])
        password = self.environment["POSTGRES_PASSWORD"]
        return postgresql_server(folder, port, password=password, environment=self.environment)

    def _volumes(self) -> dict[str, str]:
        pairs = (volume.split(":") for volume in self.spec.get("volumes", []))
        return {inside: self._made("volumes", name) for name, inside in pairs}

    def _tmpfs(self) -> dict[str, str]:
        paths = (entry.split(":")[0] for entry in self.spec.get("tmpfs", []))
        return {path: self._made("tmpfs", f"{self.name}{path.replace('/', '-')}") for path in paths}

    def _made(self, *names: str) -> str:
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o711)  # who runs as another user passes through
        return str(path)

    def _here(self, text: str) -> str:
        """Paths, hosts and ports of the containers as they are on this machine."""
        inside = "|".join(sorted(map(re.escape, self._places), key=len, reverse=True))
        text = re.sub(rf"(?<![\w/])({inside})(?![\w-])", lambda found: self._places[found[1]], text)
        text = re.sub(rf"@({'|'.join(HOSTS)}):", "@127.0.0.1:", text)
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: self._ports[found[1]], text)


class Stack(Deployment):
    """`docker compose up` on a machine without docker."""

    apart = frozenset({"web"})
    """Services in a PID namespace of their own, as in a container: jobs live in that of the worker."""
    migrated = True
    """As after an update, there is nothing left to migrate, which takes as long as all of the rest."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        self.mark = secrets.token_hex(8)
        self.given = {
            "MOTLEY_SECRET_KEY": secrets.token_hex(32),
            "POSTGRES_PASSWORD": secrets.token_hex(8),
            "REDIS_PASSWORD": secrets.token_hex(8),
            "MOTLEY_HOSTS": "127.0.0.1",
            "MOTLEY_URL": self.url,
            "MOTLEY_TLS": "0",
        }
        self.specs = compose_file(self.given)
        self._added = environment
        self.members = {name: self._member(name, spec, folder) for name, spec in self.specs.items()}
        self.environment = self.members["web"].environment

    def up(self) -> None:
        """Start each as soon as what it depends on is ready, until all run and are healthy."""
        collected = self.manage("collectstatic", "--no-input")  # as the image does when it is built
        assert collected.returncode == 0, collected.stderr
        for name in _in_order(self.specs):
            for other, wanted in self.specs[name].get("depends_on", {}).items():
                self.await_condition(other, wanted["condition"])
            if name == "migrate" and self.migrated:
                fill_migrated(self._database)
            self.members[name].start()
        for name in self.specs:
            if name != "migrate":
                self.await_condition(name, "service_healthy")

    def await_condition(self, name: str, condition: str) -> None:
        member = self.members[name]
        ask = {
            "service_healthy": member.is_healthy,
            "service_started": lambda: member.running,
            "service_completed_successfully": member.finished_well,
        }[condition]
        wait_for(f"{name}: {condition}", ask)

    def healthy(self, name: str) -> None:
        self.await_condition(name, "service_healthy")

    def another(self, name: str) -> Member:
        """As `docker compose up --scale name=2`: of its own is only what lies in memory."""
        copy = f"{name}-{len(self.members)}"
        spec = self.specs[name]
        self.members[copy] = self._member(copy, spec, self.folder)
        self.members[copy].start()
        wait_for(f"{copy} is healthy", self.members[copy].is_healthy)
        return self.members[copy]

    def down(self) -> None:
        """Stop each before those that it depends on: a worker of Celery whose broker is gone does not end."""
        copies = [name for name in self.members if name not in self.specs]
        for name in [*copies, *reversed(_in_order(self.specs))]:
            if self.members[name].running:
                self.members[name].end()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['8000']}"

    @property
    def engine_root(self) -> Path:
        return self.folder / "volumes" / "engine"

    @cached_property
    def token(self) -> str:
        """Of the person who submits, who is in the demo's teams."""
        return str(self.python(
            "from operations import demo\n"
            "demo.create_login('ada', staff=True); demo.create_teams('ada')\n"
            "answer = demo.create_token('ada')"
        ))  # fmt: skip

    def password(self) -> str:
        """Of the same person."""
        assert self.token
        return str(self.python("from operations import demo\nanswer = demo.renew_password('ada').password"))

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with self.database() as database:
            return database.execute(statement.encode()).fetchall()

    @contextmanager
    def database(self) -> Iterator[psycopg.Connection[Any]]:
        """For queries that are too frequent for the service's own interfaces."""
        with psycopg.connect(self._database, autocommit=True) as connection:
            yield connection

    @property
    def _database(self) -> str:
        return f"postgresql://motley:{self.given['POSTGRES_PASSWORD']}@127.0.0.1:{self.ports['5432']}/motley"

    def _member(self, name: str, spec: dict[str, Any], folder: Path) -> Member:
        apart = name.split("-", maxsplit=1)[0] in self.apart
        member = Member(name, spec, folder, self.ports, self.mark, env_file=self.given, apart=apart)
        member.environment.update(self._added if "build" in spec else {})
        return member


def _in_order(specs: Mapping[str, Any]) -> list[str]:
    """Each after those that it depends on."""
    placed: list[str] = []
    while len(placed) < len(specs):
        ready = [n for n in specs if n not in placed and {*specs[n].get("depends_on", {})} <= {*placed}]
        assert ready, "services depend on each other in a circle"
        placed += ready
    return placed


@contextmanager
def a_stack(kind: type[Kind] = Stack, **environment: str) -> Iterator[Kind]:  # type: ignore[assignment]
    """All services, healthy, ours with these variables, too; afterwards nothing of them is left."""
    with private_folder("motley-stack-") as folder:
        folder.chmod(0o711)
        stack = kind(folder, **environment)
        try:
            stack.up()
            yield stack
        finally:
            stack.down()
            stack.clear_away()
