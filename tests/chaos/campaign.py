"""Campaign of random faults on a whole service: jobs run while faults are injected, watched from outside.

Whatever was done to the service, each job does each of its steps and ends once, no two attempts of a job and no two
jobs on a GPU are ever alive at once, and nothing is left at the end.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from motley_client.errors import Conflict, MotleyError, NotFound
from tests.chaos.in_processes.chaos_statements import ACTS
from tests.chaos.invariants import FROM_ROWS, violations
from tests.chaos.ledger import COMMAND, MARK
from tests.chaos.pauses import Pauses
from tests.chaos.strikes import Strikes
from tests.chaos.trace import Trace
from tests.chaos.watch import Watch, ancestors, job_processes, say
from tests.deployment import Deployment, others, told, wait_for

UNFINISHED = 7
"""Jobs that are kept unfinished while faults are injected."""
PAUSE_S = (0.1, 2.0)
"""Between two faults."""
STRIKES_WITHIN_S = 8.0
CLOCK_AHEAD_S = (-3600.0, 0.0, 3600.0)
TIME_LIMIT_S = 1800
"""Of each job: longer than any of them runs, and shorter than a step of the clock."""
KILLS_OF_A_JOB = 2
"""How often one job's own processes are killed: where the rank is, that counts as its failure, and takes a retry."""
STANDS_STILL_S = (12.0, 20.0)
"""Longer than a lease, so that another takes over meanwhile."""
LOCAL_SHAPES: Sequence[Mapping[str, Any]] = (
    {"gpus": 1, "gpu_types": ["a100", "v100"]},
    {"gpus": 2, "gpu_types": ["a100", "v100"]},
    {"gpus": 4, "gpu_types": ["a100"]},
)
"""Of jobs on two emulated nodes of four GPUs, as `declare(a100=4, v100=4)` makes them."""


class Campaign:
    """Faults of one seed on a service; the jobs are submitted as they are needed. A setting says which faults."""

    shapes: ClassVar[Sequence[Mapping[str, Any]]]
    retries: ClassVar[int] = KILLS_OF_A_JOB
    """No other fault may cost a job one."""
    faults: Mapping[str, Callable[[], bool | str]]
    """By name; each is injected at random, and answers whether there was anything to inject it to, or where it was."""

    def __init__(self, service: Deployment, root: Path, *, seed: int, strikes: Strikes | None = None) -> None:
        self.service, self.root, self.strikes = service, root, strikes
        self.jobs: list[str] = []
        self.injected: dict[str, int] = defaultdict(int)
        self.violations: list[str] = []
        """Seen before the end."""
        self.trace = Trace()
        self.random = random.Random(seed)
        self.clock_steps = seed % 2 == 0
        self.cancelled: set[str] = set()
        self._next: list[str] = []
        self._killed: dict[str, int] = defaultdict(int)
        self.pauses = Pauses()

    def run(self, faults: int) -> list[str]:
        """Violations of what must hold, after so many faults and the end of all jobs."""
        self.prepare()
        watch = Watch(self.root)
        watch.start()
        self.pauses.start()
        try:
            while sum(self.injected.values()) < faults:
                self.administer()
                self._keep_busy()
                time.sleep(self.random.uniform(*PAUSE_S))
                self.note_late_strike()
                self._inject()
        finally:
            self.pauses.go_on()
            self.restore()
        self.look_for_lost_jobs()
        found = list(violations(self))
        self.pauses.end()
        return [self.trace.of(one, self.service) for one in [*watch.end(), *self.violations, *found]]

    def prepare(self) -> None:
        """Declare the cluster."""

    def administer(self) -> None:
        """Do what an administrator would have to do meanwhile."""

    def restore(self) -> None:
        """Take back what outlasts a fault: from now on all is well."""
        if self.strikes is not None:
            self.strikes.set_clock(0)

    def leftovers(self) -> dict[str, Callable[[], Any]]:
        """What must be gone soon after the end of the last job, by what it is."""
        left: dict[str, Callable[[], Any]] = {
            "processes": lambda: [(pid, told(pid, "cmdline")[:300]) for pid in self.service.job_processes()],
            "open claims": lambda: self.service.python(FROM_ROWS.format("open_claims")),
        }
        if not self.injected.get("clock step"):  # what ended while the clock was ahead is accounted an hour later
            left["unaccounted attempts"] = lambda: self.service.python(FROM_ROWS.format("unaccounted_attempts"))
        return left

    def place_of_ledgers(self, name: str) -> dict[str, Any]:
        """Part of the specification of a job: where it notes its steps, if not among its checkpoints."""
        return {}

    def ledgers(self, job: Any) -> list[Path]:
        """The notes of its ranks."""
        return sorted((self.root / "jobs" / job["id"] / "checkpoints").glob("ledger.*"))

    def evidence(self) -> list[Path]:
        """Files and folders that tell what happened."""
        return [self.root]

    def kill_one(self, pids: list[int]) -> bool:
        return self._signal_one(pids, signal.SIGKILL) is not None

    def pause_one(self, pids: list[int], *, seconds: tuple[float, float]) -> bool:
        """SIGSTOP; it goes on by itself after a time within these bounds."""
        pid = self._signal_one([pid for pid in pids if pid not in self.pauses], signal.SIGSTOP)
        if pid is not None:
            self.pause([pid], seconds=seconds)
        return pid is not None

    def pause(self, stopped: Iterable[int], *, seconds: tuple[float, float]) -> None:
        """What was stopped goes on after a time within these bounds."""
        self.pauses.add(stopped, seconds=self.random.uniform(*seconds))

    def faults_inside(self) -> dict[str, Callable[[], bool | str]]:
        """On whichever process of the scheduler comes to a certain statement; and steps of the clock.

        Only every other seed has the latter: where the clock steps, times of the rows cannot be compared.
        """
        between: dict[str, Callable[[], bool | str]]
        between = {f"{kind} between statements": partial(self._strike, kind) for kind in ACTS}
        return {**between, "clock step": self._step_clock} if self.clock_steps else between

    def _step_clock(self) -> str:
        assert self.strikes is not None
        self.strikes.set_clock(self.random.choice([s for s in CLOCK_AHEAD_S if s != self.strikes.ahead_s]))
        return f"it is {self.strikes.ahead_s:+.0f} s ahead"

    def _strike(self, kind: str) -> bool | str:
        assert self.strikes is not None
        self.strikes.arm(kind, self.random)

        with suppress(AssertionError):
            return wait_for(
                "a process comes to the statement", self._heard_of_strike, patience_s=STRIKES_WITHIN_S, pause_s=0.02
            )
        self.strikes.disarm()
        return False

    def _heard_of_strike(self) -> str:
        """Where a fault has struck since; what stands still goes on later."""
        struck = self.strikes.look() if self.strikes else None
        if struck is None:
            return ""
        if struck.kind == "stopped":
            self.pause([struck.pid], seconds=STANDS_STILL_S)
        return f"{struck.kind} at {struck.where}"

    def note_late_strike(self) -> None:
        """A process that took the fault and only now came to the statement."""
        if late := self._heard_of_strike():
            self.trace.note(f"late, {late}")

    def faults_of_jobs(self) -> dict[str, Callable[[], bool]]:
        """On processes of single jobs of the local engine, and cancels."""
        return {
            "supervisor": lambda: self.kill_of_a_job(b"engines.supervision.supervisor"),
            "init process": lambda: self.kill_of_a_job(b"engines.supervision.init_process"),
            "rank": lambda: self.kill_of_a_job(MARK),
            "cancel": self.cancel_one,
        }

    def kill_of_a_job(self, words: bytes) -> bool:
        """A process of one job with these words in its command line, unless the job has had its share."""
        able = {pid: job for pid, job in self.above_ranks(words).items() if self._killed[job] < KILLS_OF_A_JOB}
        killed = self._signal_one(list(able), signal.SIGKILL)
        if killed is not None:
            self._killed[able[killed]] += 1
        return killed is not None

    def above_ranks(self, words: bytes) -> dict[int, str]:
        """Ranks and their ancestors with these words in their command line, each with its job."""
        jobs = {ancestor: one.job for one in job_processes(str(self.root)) for ancestor in ancestors(one.pid)}
        return {pid: job for pid, job in jobs.items() if words in told(pid, "cmdline")}

    def kill_with_all_jobs(self, kill: Callable[[], object]) -> bool:
        """A machine that goes down takes its jobs along, unless one of them has had its share."""
        running = {one.job for one in job_processes(str(self.root))}
        if any(self._killed[job] >= KILLS_OF_A_JOB for job in running):
            return False
        for job in running:
            self._killed[job] += 1
        self.pauses.go_on()  # what stands still ends on no signal but SIGKILL
        kill()
        self.service.end_jobs()
        return True

    def violated(self, what: str) -> None:
        say(f"VIOLATION {what}")
        self.violations.append(what)

    def look_for_lost_jobs(self) -> None:
        """Each job whose submission was answered is there."""
        for job in list(self.jobs):
            try:
                self.insist(lambda job=job: self.service.client.job(job))
            except NotFound:
                self.violated(f"{job} is lost")
                self.jobs.remove(job)

    def cancel_one(self) -> bool:
        """A job that has not ended, by the client."""
        able = [job["id"] for job in self._unfinished() if job["id"] not in self.cancelled]
        if not able:
            return False
        job = self.random.choice(sorted(able))
        self.cancelled.add(job)
        with suppress(Conflict):  # it has just ended
            self.insist(lambda: self.service.client.cancel(job))
        return True

    def with_words(self, words: bytes) -> list[int]:
        """Processes below the engine's folder with these words in their command line."""
        root = str(self.root).encode()
        found = [pid for pid in others() if words in told(pid, "cmdline")]
        return [pid for pid in found if root in told(pid, "cmdline") + told(pid, "environ")]

    def _signal_one(self, pids: list[int], what: signal.Signals) -> int | None:
        with suppress(ProcessLookupError):
            if pids:
                pid = self.random.choice(sorted(pids))
                os.kill(pid, what)
                return pid
        return None

    def _inject(self) -> None:
        """The next kind: each comes once before any comes again, so that a short campaign has all."""
        self._next = self._next or self.random.sample(list(self.faults), len(self.faults))
        name = self._next.pop()
        if where := self.faults[name]():
            self.injected[name] += 1
            self.trace.note(
                f"fault {sum(self.injected.values())}: {name}{f', {where}' if isinstance(where, str) else ''}"
            )

    def _keep_busy(self) -> None:
        for _ in range(UNFINISHED - len(self._unfinished())):
            shape = self.random.choice(self.shapes)
            name = f"job-{len(self.jobs)}"
            spec = {"retries": self.retries, "time_limit": f"{TIME_LIMIT_S}s", **shape, **self.place_of_ledgers(name)}
            submit = lambda name=name, spec=spec: self.service.submit(  # noqa: E731
                COMMAND, name=name, idempotency_key=name, **spec
            )
            self.jobs.append(self.insist(submit))

    def _unfinished(self) -> list[Any]:
        states = ["queued", "starting", "running", "stopping"]
        return self.insist(lambda: list(self.service.client.jobs(state=states)))

    def insist(self, ask: Callable[[], Any]) -> Any:
        """Until the service answers, as a script would that is patient."""

        def answer() -> tuple[Any] | None:
            self.note_late_strike()
            try:
                return (ask(),)
            except (Conflict, NotFound):
                raise
            except MotleyError:
                self.administer()
                return None

        return wait_for("the service answers", answer)[0]
