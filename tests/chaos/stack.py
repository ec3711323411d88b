"""The campaign on the full stack: PostgreSQL, Redis, Celery; two workers for each loop, and each part is killed."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.chaos.campaign import LOCAL_SHAPES, STANDS_STILL_S, Campaign
from tests.chaos.network import NetworkedStack
from tests.chaos.strikes import Strikes
from tests.private_servers import private_folder
from tests.stack.composed import a_stack

AWAY_S = (0.0, 4.0)
HANGS_S = (1.0, 15.0)
CUT = "select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid()"


class FullStack(Campaign):
    """The services of docker-compose.yml."""

    shapes = LOCAL_SHAPES

    def __init__(self, stack: NetworkedStack, strikes: Strikes, *, seed: int) -> None:
        super().__init__(stack, stack.engine_root, seed=seed, strikes=strikes)
        self.stack = stack
        self.faults = {
            **{name: self._restart(name) for name in ("postgres", "redis", "beat", "web", "worker", "rounds")},
            "second worker": self._restart(stack.another("worker").name),
            "second rounds": self._restart(stack.another("rounds").name),
            "connections cut": self._cut,
            "network hangs": self._hang,
            "network reset": self._reset,
            "worker stands still": lambda: self.pause_one(self._processes("worker"), seconds=STANDS_STILL_S),
            "rounds stand still": lambda: self.pause_one(self._processes("rounds"), seconds=STANDS_STILL_S),
            "worker's container": lambda: self.kill_with_all_jobs(self._kill_workers),
            **self.faults_inside(),
            **self.faults_of_jobs(),
        }

    def prepare(self) -> None:
        self.service.declare(a100=4, v100=4, min_run_s=5)

    def administer(self) -> None:
        """Start what has ended, as compose does by `restart: unless-stopped`."""
        for name, member in self.stack.members.items():
            if name != "migrate" and not member.running:
                member.start()

    def evidence(self) -> list[Path]:
        return [self.root, *(member.log for member in self.stack.members.values())]

    def _restart(self, name: str) -> Callable[[], bool]:
        """Kill the service and its processes, and start it again after a while."""

        def restart() -> bool:
            member = self.stack.members[name]
            if name == "postgres":
                member.server.end(signal.SIGQUIT)  # at once and unclean: its processes are in no group to be killed
            else:
                member.kill()
            time.sleep(self.random.uniform(*AWAY_S))
            member.start()
            return True

        return restart

    def _kill_workers(self) -> None:
        """Both share the namespace of the jobs; `administer` starts them again."""
        for name, member in self.stack.members.items():
            if name.startswith("worker"):
                member.kill()

    def _cut(self) -> bool:
        with suppress(psycopg.OperationalError), self.stack.database() as database:
            database.execute(CUT)
            return True
        return False

    def _hang(self) -> bool:
        """Nothing comes or goes between the services and PostgreSQL for a while; no connection ends by that."""
        self.pause(self.stack.network.hang(), seconds=HANGS_S)
        return True

    def _reset(self) -> bool:
        self.stack.network.reset()
        time.sleep(self.random.uniform(*AWAY_S))
        self.stack.network.start()
        return True

    def _processes(self, name: str) -> list[int]:
        """Of both workers of that name, the processes that do the work."""
        return self.service.processes(f"--queues {'engines' if name == 'worker' else 'rounds'}")


@contextmanager
def full_stack(seed: int) -> Iterator[FullStack]:
    with private_folder("motley-strikes-") as beside:
        strikes = Strikes(beside)
        with a_stack(NetworkedStack, **strikes.environment) as stack:
            yield FullStack(stack, strikes, seed=seed)
