"""The campaign on servers of the site: agents in networks of their own, whose links, disks and processes fail.

The service is upgraded meanwhile, to programs of the agent that run and to others, to which its servers change.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from engines.accounts import account_name, ensure_account
from operations.prepare_host import JOB_USER
from tests.agent_process import AgentProcess, an_agent
from tests.chaos.campaign import STANDS_STILL_S, Campaign
from tests.chaos.in_processes.chaos_statements import OF_SERVERS
from tests.chaos.lossy_disk import DiskFiller, LossyDisk, lossy_disk
from tests.chaos.server_clocks import ServerClocks, server_clocks
from tests.chaos.server_mounts import ServerMounts, server_mounts
from tests.chaos.strikes import Strikes
from tests.chaos.upgrades import KINDS, Upgrades
from tests.deployment import others, told
from tests.private_servers import private_folder
from tests.server_cluster import Cluster
from tests.server_network import a_network
from tests.service.running_service import a_service

SERVERS, GPUS = 4, 2
LEASE_S, READY_S = 20, 15
CUT_S = (1.0, 45.0)
"""Shorter than a lease, and longer than all that follows it."""
AGENT_STILL_S = (5.0, 40.0)
AWAY_S = (0.0, 30.0)
"""Of a server without power."""
FULL_S = (3.0, 15.0)
UNMOUNTED_S = (2.0, 30.0)
SERVER_AHEAD_S = (-3600, -90, 0, 90, 3600)
"""As from a battery that is empty, and from a step of NTP."""
DISK_MIB = 6 * 1024
"""Sparse: a server needs 5 GiB free to be added."""
REFUSED = 3
NAME_STORAGE = """
from cluster_app.models import Engine, MissingStorage, Storage
servers = Engine.objects.get(name="servers")
storage, _ = Storage.objects.get_or_create(name="shared", engine=servers, defaults={{"path": "{}"}})
MissingStorage.objects.all().delete()
"""
FORGET_FAULTS = "from connections_app.models import Agent\nAgent.objects.update(fault='', fault_at=None)"
HELD = """
from connections_app.models import AgentAttempt
answer = [str(row) for row in AgentAttempt.objects.filter(forgotten=False)]
"""
BEHIND = """
from connections_app.agents.program import program_digest
from connections_app.models import Agent
behind = Agent.objects.exclude(program=program_digest())
answer = [f"{one} runs {one.program}, is told {one.update_to}: {one.update_fault}" for one in behind]
"""


class OnServers(Campaign):
    """The embedded service, and servers of which each has its network, its agent and its disk."""

    shapes = ({"gpus": 1}, {"gpus": 2}, {"gpus": 4}, {"gpus": 6})
    # the last two are gangs over two and three servers

    def __init__(
        self,
        cluster: Cluster,
        agents: Sequence[AgentProcess],
        strikes: Strikes,
        disks: Sequence[LossyDisk],
        upgrades: Upgrades,
        *,
        mounts: ServerMounts | None,
        clocks: ServerClocks | None,
        root: Path,
        seed: int,
    ) -> None:
        super().__init__(cluster.service, root, seed=seed, strikes=strikes)
        self.running, self.cluster, self.agents, self.disks = cluster.service, cluster, agents, disks
        self._upgrades, self._mounts, self._clocks = upgrades, mounts, clocks
        service = cluster.service
        self.shared = mounts.kept if mounts else root / "shared"
        self._unmounted_until_s: dict[int, float] = {}
        self._cut_until_s: dict[int, float] = {}
        self._away_until_s: dict[int, float] = {}
        self._filler = DiskFiller()
        self.faults = {
            "scheduler": lambda: self.kill_one(service.schedulers()),
            "scheduler stands still": lambda: self.pause_one(service.schedulers(), seconds=STANDS_STILL_S),
            "web": lambda: self.kill_one(service.processes("motley-web")),
            "service": self._restart_service,
            "Ctrl-C": self._stop_service,
            "agent": lambda: self._signal_agent(signal.SIGKILL),
            "agent ends": lambda: self._signal_agent(signal.SIGTERM),
            "agent stands still": lambda: self.pause_one(self._agents(), seconds=AGENT_STILL_S),
            "partition": self._cut,
            "connections cut": self._reset,
            "power cut of a server": self._cut_power,
            **{kind: partial(self._upgrade, kind) for kind in KINDS},
            **{name: fault for name, fault in self.faults_inside().items() if not name.startswith("fails")},
            **self.faults_of_jobs(),
        }
        if mounts:
            self.faults["vanished mount of a server"] = self._vanish
        if clocks:
            self.faults["step of a server's clock"] = self._step_clock_of_one
        if disks:
            self.faults["full disk of a server"] = self._fill
            self.faults["power loss of a server"] = self._lose_power

    def prepare(self) -> None:
        self.shared.mkdir(exist_ok=True)
        self.shared.chmod(0o777)  # of the account of jobs
        for number, agent in enumerate(self.agents, 1):
            agent.driver = self._clocks.add(number) if self._clocks else {}
            self.cluster.add(agent, gpus=GPUS, enter=self._mounts.add(number) if self._mounts else ())
        self.service.python(NAME_STORAGE.format(self._storage))
        self.service.decide_every(1, min_run_s=5)

    def administer(self) -> None:
        """Start agents that have ended, as systemd does; links and machines come back when it is time."""
        for number in _due(self._cut_until_s):
            self.cluster.network.mend(number)
        for number in _due(self._unmounted_until_s):
            assert self._mounts is not None
            self._mounts.restore(number)
            self.service.python(NAME_STORAGE.format(self._storage))  # an administrator says that it is there again
        _due(self._away_until_s)
        for number, agent in enumerate(self.cluster.servers, 1):
            if number not in self._away_until_s and agent.process is not None and agent.process.poll() is not None:
                if agent.process.returncode == REFUSED:
                    self.violated(f"the agent of gpu{number} was refused: {agent.last_words()}")
                agent.start()

    def restore(self) -> None:
        super().restore()
        self._filler.end()
        for number in range(1, len(self.cluster.servers) + 1 if self._clocks else 0):
            assert self._clocks is not None
            self._clocks.set(number, 0)
        for times in (self._cut_until_s, self._away_until_s, self._unmounted_until_s):
            times.update(dict.fromkeys(times, 0.0))
        self.administer()
        if self._upgrades.count:
            self._upgrade("upgrade")  # servers that went back from the program of before change, too
        self.service.python(FORGET_FAULTS)  # an administrator who knows that all is well again

    def place_of_ledgers(self, name: str) -> dict[str, Any]:
        folder = self.shared / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        return {"env": {"LEDGER": str(self._storage / name)}, "mounts": ["shared"], "gpu_types": ["k80"]}

    @property
    def _storage(self) -> Path:
        """As the servers see it."""
        return self._mounts.path if self._mounts else self.shared

    def ledgers(self, job: Any) -> list[Path]:
        return sorted((self.shared / job["name"]).glob("ledger.*"))

    def leftovers(self) -> dict[str, Callable[[], Any]]:
        """Agents have nothing left either, and the service has told them to forget all."""
        left = super().leftovers()
        left["processes"] = lambda: [(pid, told(pid, "cmdline")[:300]) for pid in self._left()]
        left["attempts at agents"] = lambda: self.service.python(HELD)
        left["files of attempts"] = lambda: [str(path) for path in self.root.glob("gpu*/*/engine/attempts/*")]
        left["servers with another program"] = lambda: self.service.python(BEHIND)
        return left

    def evidence(self) -> list[Path]:
        return [self.running.var, self.running.log, *self.root.glob("gpu*.log"), self.shared]

    def end(self) -> None:
        self._filler.end()

    def _agents(self) -> list[int]:
        return [one.process.pid for one in self.cluster.servers if one.process and one.process.poll() is None]

    def _left(self) -> list[int]:
        root, agents = str(self.root).encode(), {*self._agents()}
        return [pid for pid in others() if pid not in agents and root in told(pid, "cmdline") + told(pid, "environ")]

    def _any(self) -> int:
        return self.random.randint(1, len(self.cluster.servers))

    def _agent(self, number: int) -> AgentProcess:
        return self.cluster.servers[number - 1]

    def _signal_agent(self, number: signal.Signals) -> bool:
        at = self._agent(self._any())
        is_there = at.process is not None and at.process.poll() is None
        if is_there:
            at.send(number)
        return is_there

    def _cut(self) -> bool | str:
        number, seconds = self._any(), self.random.uniform(*CUT_S)
        if number in self._cut_until_s:
            return False
        self.cluster.network.cut(number)
        self._cut_until_s[number] = time.monotonic() + seconds
        return f"gpu{number} for {seconds:.0f} s"

    def _reset(self) -> bool | str:
        """All connections of a server end, in the middle of a file or an answer."""
        number = self._any()
        if number in self._cut_until_s:
            return False
        self.cluster.network.reset(number)
        return f"of gpu{number}"

    def _cut_power(self) -> bool | str:
        return self._lose()

    def _lose_power(self) -> bool | str:
        """What was not synced is lost, too."""
        return self._lose(self.disks)

    def _lose(self, disks: Sequence[LossyDisk] = ()) -> bool | str:
        number, seconds = self._any(), self.random.uniform(*AWAY_S)
        if number in self._away_until_s or self._filler.is_at_work:
            return False
        self.pauses.go_on()  # what stands still ends on no signal but SIGKILL
        self._agent(number).die()
        if disks:
            disks[number - 1].lose_unsynced()
        self._away_until_s[number] = time.monotonic() + seconds
        return f"gpu{number} for {seconds:.0f} s"

    def _fill(self) -> bool | str:
        number, seconds = self._any(), self.random.uniform(*FULL_S)
        has_begun = number not in self._away_until_s and self._filler.begin(self.disks[number - 1].path, seconds)
        return has_begun and f"gpu{number} for {seconds:.0f} s"

    def _vanish(self) -> bool | str:
        """The shared storage is no longer mounted on a server."""
        number, seconds = self._any(), self.random.uniform(*UNMOUNTED_S)
        if self._mounts is None or number in self._unmounted_until_s:
            return False
        self._mounts.vanish(number)
        self._unmounted_until_s[number] = time.monotonic() + seconds
        return f"gpu{number} for {seconds:.0f} s"

    def _step_clock_of_one(self) -> bool | str:
        number, ahead_s = self._any(), self.random.choice(SERVER_AHEAD_S)
        if self._clocks is None:
            return False
        self._clocks.set(number, ahead_s)
        return f"gpu{number} is {ahead_s:+.0f} s ahead"

    def _restart_service(self) -> bool:
        self.pauses.go_on()
        self.running.kill()
        self.running.start()
        return True

    def _upgrade(self, kind: str) -> str:
        self.pauses.go_on()
        self.running.stop()
        self._upgrades.install(kind)
        self.running.start()
        return f"number {self._upgrades.count}"

    def _stop_service(self) -> bool:
        self.pauses.go_on()
        self.running.stop()
        self.running.start()
        return True


def _due(until_s: dict[int, float]) -> list[int]:
    """Take out the servers whose time has come."""
    due = [number for number, until in until_s.items() if until <= time.monotonic()]
    for number in due:
        del until_s[number]
    return due


@contextmanager
def on_servers(seed: int, *, prepared: Path | None = None) -> Iterator[OnServers]:
    """Four servers with two GPUs; their folders are on disks of their own where we may mount some."""
    job_user = account_name(JOB_USER)
    ensure_account(job_user)
    terms = {"MOTLEY_AGENT_LEASE_S": str(LEASE_S), "MOTLEY_GANG_READY_S": str(READY_S)}
    with ExitStack() as stack:
        beside, root = (stack.enter_context(private_folder("motley-chaos-")) for _ in range(2))
        root.chmod(0o711)  # jobs of another user pass through
        strikes = Strikes(beside, OF_SERVERS)
        upgrades = Upgrades(beside)
        settings = {**strikes.environment, **terms}
        service = stack.enter_context(a_service(prepared=prepared, sources=upgrades.sources, **settings))
        mounts = stack.enter_context(server_mounts(root))
        clocks = server_clocks(stack.enter_context(private_folder("motley-chaos-")))
        cluster = Cluster(service, stack.enter_context(a_network(service.port)), Path("/usr/bin"))
        disks, agents = [], []
        for number in range(1, SERVERS + 1):
            folder = root / f"gpu{number}"
            folder.mkdir()
            disks.append(stack.enter_context(lossy_disk(folder, mib=DISK_MIB)))
            agents.append(
                stack.enter_context(an_agent(service, job_user, folder / "agent", folder.with_suffix(".log")))
            )
        on_disks = [one for one in disks if one]
        campaign = OnServers(
            cluster, agents, strikes, on_disks, upgrades, mounts=mounts, clocks=clocks, root=root, seed=seed
        )
        stack.callback(campaign.end)
        yield campaign
