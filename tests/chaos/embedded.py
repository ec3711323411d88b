"""The campaign on `make run`: SQLite, the local engine, and a second scheduler beside the service's own."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.campaign import LOCAL_SHAPES, STANDS_STILL_S, Campaign
from tests.chaos.lossy_disk import LossyDisk, lossy_disk
from tests.chaos.strikes import Strikes
from tests.chaos.watch import environment
from tests.deployment import ROOT, wait_for
from tests.private_servers import private_folder
from tests.service.running_service import Service, a_service

LOCKED_S = (2.0, 8.0)
FULL_S = (3.0, 10.0)
VAR_MIB, ENGINE_MIB = 256, 160


class Embedded(Campaign):
    """The embedded service and a second scheduler, which waits for the leases of the first."""

    shapes = LOCAL_SHAPES

    def __init__(self, service: Service, strikes: Strikes, disks: Sequence[LossyDisk], *, seed: int) -> None:
        super().__init__(service, service.engine_root, seed=seed, strikes=strikes)
        self.running, self.disks = service, disks
        self.second: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._filler = self.root.parent / "filler"
        self.faults = {
            "scheduler": lambda: self.kill_one(self._schedulers()),
            "scheduler stands still": lambda: self.pause_one(self._schedulers(), seconds=STANDS_STILL_S),
            "web": lambda: self.kill_one(service.processes("motley-web")),
            "front": lambda: self.kill_one(service.processes("motley-front")),
            "long requests": lambda: self.kill_one(service.processes("motley-long")),
            "service": self._restart_service,
            "Ctrl-C": self._stop_service,
            "power cut": self._cut_power,
            "supervisor stands still": lambda: self.pause_one(self._supervisors(), seconds=STANDS_STILL_S),
            **self.faults_inside(),
            **self.faults_of_jobs(),
            "locked database": lambda: self._beside(self._lock, LOCKED_S),
        }
        if disks:
            self.faults["full disk"] = lambda: self._beside(self._fill, FULL_S)
            self.faults["power loss"] = self._lose_power

    def prepare(self) -> None:
        self.service.declare(a100=4, v100=4, min_run_s=5)

    def administer(self) -> None:
        """Start the second scheduler again when it was killed, as systemd does."""
        if self.second is None or self.second.poll() is not None:
            first = wait_for("the first scheduler runs", self.service.schedulers)[0]
            command = [sys.executable, str(ROOT / "manage.py"), "schedule"]
            with self.running.log.open("ab") as log:
                self.second = subprocess.Popen(command, env=environment(first), cwd=ROOT, stdout=log, stderr=log)

    def evidence(self) -> list[Path]:
        return [self.running.var, self.running.log, self.root]

    def end_second(self) -> None:
        if self.second is not None:
            self.second.kill()
            self.second.wait()

    def restore(self) -> None:
        super().restore()
        for thread in self._threads:
            thread.join()

    def _schedulers(self) -> list[int]:
        """The loops of the service, and the second scheduler while it runs."""
        second = [self.second.pid] if self.second is not None and self.second.poll() is None else []
        return [*self.service.schedulers(), *second]

    def _supervisors(self) -> list[int]:
        return self.with_words(b"engines.supervision.supervisor")

    def _restart_service(self) -> bool:
        self._kill_service()
        self.running.start()
        return True

    def _cut_power(self) -> bool:
        cut = self.kill_with_all_jobs(self._kill_service)
        if cut:
            self.running.start()
        return cut

    def _lose_power(self) -> bool:
        """As a power cut, and what was not synced is lost."""
        login = self.running.login
        lost = self.kill_with_all_jobs(self._kill_at_once)
        if lost:
            for disk in self.disks:
                disk.lose_unsynced()
            self._filler.unlink(missing_ok=True)  # that it was removed may be lost, too
            self.running.start()
            if self.running.login != login:
                self.violated(f"demo.env is {self.running.login}")
            self.look_for_lost_jobs()
        return lost

    def _kill_at_once(self) -> None:
        self._all_go_on()
        self.end_second()
        self.running.lose_power()

    def _kill_service(self) -> None:
        self._all_go_on()
        self.end_second()
        self.running.kill()

    def _stop_service(self) -> bool:
        self._all_go_on()
        self.running.stop()
        self.running.start()
        return True

    def _all_go_on(self) -> None:
        """What stands still ends on no signal but SIGKILL, and the service waits for its processes."""
        self.pauses.go_on()
        for thread in self._threads:
            thread.join()

    def _beside(self, do: Callable[[float], None], seconds: tuple[float, float]) -> bool:
        if any(thread.is_alive() for thread in self._threads):
            return False
        thread = threading.Thread(target=do, args=(self.random.uniform(*seconds),))
        self._threads = [thread]
        thread.start()
        return True

    def _lock(self, seconds: float) -> None:
        """As another process that writes for long."""
        with sqlite3.connect(self.running.var / "motley.sqlite3", timeout=60, isolation_level=None) as database:
            database.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            database.execute("ROLLBACK")
        database.close()

    def _fill(self, seconds: float) -> None:
        """Take all space of the engine's disk."""
        until = time.monotonic() + seconds
        with self._filler.open("wb", buffering=0) as file:
            while time.monotonic() < until:
                try:
                    file.write(bytes(2**16))
                except OSError:
                    time.sleep(0.05)
        self._filler.unlink()


@contextmanager
def embedded(seed: int, *, prepared: Path | None = None) -> Iterator[Embedded]:
    """With the data and the engine on disks of their own, where we may mount some."""
    with ExitStack() as stack:
        beside, var, engine = (stack.enter_context(private_folder("motley-chaos-")) for _ in range(3))
        disks = [
            stack.enter_context(lossy_disk(folder, mib=mib)) for folder, mib in ((var, VAR_MIB), (engine, ENGINE_MIB))
        ]
        beside_it = {"MOTLEY_VAR": str(var), "MOTLEY_ENGINE_ROOT": str(engine / "root")}
        strikes = Strikes(beside)
        environment = strikes.environment | beside_it
        service = stack.enter_context(a_service(prepared=prepared, **environment))
        campaign = Embedded(service, strikes, [disk for disk in disks if disk], seed=seed)
        stack.callback(campaign.end_second)
        yield campaign
