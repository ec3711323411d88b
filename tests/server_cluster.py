"""Servers of the site: real agents in networks of their own, beside a live service."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.agent_process import AgentProcess, an_agent
from tests.deployment import others, told, wait_for
from tests.server_network import ServerNetwork, a_network
from tests.service.running_service import Service

JOIN_TOKENS = """
from django.utils import timezone
from connections_app.agents.join_agent import issue_join_token
given = dict(actor=None, now=timezone.now(), trusted=False, site=True)
answer = [issue_join_token(f"gpu{{number}}", **given)[1] for number in range(1, {servers} + 1)]
"""
"""As `manage.py jointoken NAME --site` for each; in one process, for to start one takes as long as a test."""


class Cluster:
    """Servers with emulated GPUs, made by the line that an administrator types on each."""

    def __init__(self, service: Service, network: ServerNetwork, runtime: Path) -> None:
        self.service, self.network, self._runtime = service, network, runtime
        self.servers: list[AgentProcess] = []

    def add(self, agent: AgentProcess, *, gpus: int = 2, enter: tuple[str, ...] = (), token: str = "") -> None:
        """`enter`: command that enters the server's own mounts; `token`: for it to join with, by default a new one."""
        number = len(self.servers) + 1
        self.network.add(number)
        agent.url, agent.prefix = self.network.url(number), (*self.network.prefix(number), *enter)
        more = ["--gpus", f"k80:{gpus}", "--address", self.network.address(number), "--job-path", str(self._runtime)]
        done = agent.install(f"gpu{number}", *more, token=token)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.index("ok   account:") < done.stdout.index(f"gpu{number} has joined")
        if enter:
            agent.prefix = (*agent.prefix, "env", "-C", str(agent.program))  # one who enters is in the root folder
        agent.start()
        self.servers.append(agent)

    def agent_of(self, node: str) -> AgentProcess:
        return self.servers[number_of(node) - 1]

    def supervisors(self, node: str) -> list[int]:
        folder = str(self.agent_of(node).folder).encode()
        lines = {pid: told(pid, "cmdline") for pid in others()}
        return [pid for pid, line in lines.items() if b"supervision.supervisor" in line and folder in line]

    def test(self, **storage: Path) -> Any:
        """Test the engine of the servers with this storage, as an administrator does."""
        self.service.python(
            "from cluster_app.models import Engine, Storage\n"
            "from connections_app.probe import ask_for_probe\n"
            "servers = Engine.objects.get(name='servers')\n"
            f"for name, path in { ({name: str(path) for name, path in storage.items()})!r}.items():\n"
            "    Storage.objects.update_or_create(name=name, engine=servers, defaults={'path': path})\n"
            "ask_for_probe(servers, actor=None)"
        )
        latest = "select passed, log, message, ended_at from connections_app_engineprobe order by id desc limit 1"
        passed, log, message, _ = wait_for(
            "the test has ended", lambda: (one := self.service.sql(latest)[0])[3] and one
        )
        return {"passed": bool(passed), "log": log, "message": message}


def number_of(node: str) -> int:
    return int(node.removeprefix("gpu"))


@contextmanager
def a_cluster(service: Service, runtime: Path, job_user: str, *, servers: int, gpus: int = 2) -> Iterator[Cluster]:
    """Servers with so many GPUs each: one line typed on each makes it a node."""
    with ExitStack() as stack:
        network = stack.enter_context(a_network(service.port))
        cluster = Cluster(service, network, runtime)
        for token in service.python(JOIN_TOKENS.format(servers=servers)):
            cluster.add(stack.enter_context(an_agent(service, job_user)), gpus=gpus, token=token)
        yield cluster
