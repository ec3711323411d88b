"""Campaign of random faults on a whole service: jobs run while faults are injected, watched from outside.

Whatever was done to the service, each job does each of its steps and ends once, no two attempts of a job and no two
jobs on a GPU are ever alive at once, and nothing is left at the end.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from motley_client.errors import Conflict, MotleyError, NotFound
from tests.chaos.between_statements.sitecustomize import ACTS
from tests.chaos.ledger import COMMAND, MARK, ledger_fault, read_ledger
from tests.chaos.strikes import Strikes
from tests.chaos.watch import Watch, ancestors, job_processes, say
from tests.deployment import OVERLAPS, Deployment, others, told, wait_for

UNFINISHED = 7
"""Jobs that are kept unfinished while faults are injected."""
PAUSE_S = (0.2, 3.0)
"""Between two faults."""
SETTLED_WITHIN_S = 400.0
GIVEN_BACK_WITHIN_S = 90.0
STRIKES_WITHIN_S = 8.0
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
FINAL = ("succeeded", "failed", "cancelled", "timed_out")
OPEN_CLAIMS = "from scheduler_app.models import GpuClaim\nanswer = GpuClaim.objects.open().count()"
ENDS = """
from collections import Counter
from jobs_app.models import JobEvent
ends = JobEvent.objects.filter(kind=JobEvent.Kind.FINISHED).values_list("job", flat=True)
answer = Counter(map(str, ends))
"""
"""How often each job has finished."""


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
        self.random = random.Random(seed)
        self._cancelled: set[str] = set()
        self._killed: dict[str, int] = defaultdict(int)
        self._paused: dict[int, float] = {}

    def run(self, faults: int) -> list[str]:
        """Violations of what must hold, after so many faults and the end of all jobs."""
        self.prepare()
        watch = Watch(self.root)
        watch.start()
        try:
            while sum(self.injected.values()) < faults:
                self.administer()
                self._keep_busy()
                time.sleep(self.random.uniform(*PAUSE_S))
                self.resume(time.monotonic())
                self._inject()
        finally:
            self.resume(float("inf"))
            self.restore()
        found = self._settle()
        return [
            *watch.end(),
            *self.violations,
            *found,
            *self._wrong_ledgers(),
            *self._wrong_histories(),
            *self._left_over(),
        ]

    def prepare(self) -> None:
        """Declare the cluster."""

    def administer(self) -> None:
        """Do what an administrator would have to do meanwhile."""

    def restore(self) -> None:
        """Take back what outlasts a fault: from now on all is well."""

    def leftovers(self) -> dict[str, Callable[[], Any]]:
        """What must be gone soon after the end of the last job, by what it is."""
        return {
            "processes": lambda: [(pid, told(pid, "cmdline")[:300]) for pid in self.service.job_processes()],
            "open claims": lambda: self.service.python(OPEN_CLAIMS),
        }

    def evidence(self) -> list[Path]:
        """Files and folders that tell what happened."""
        return [self.root]

    def kill_one(self, pids: list[int]) -> bool:
        return self._signal_one(pids, signal.SIGKILL) is not None

    def pause_one(self, pids: list[int], *, seconds: tuple[float, float]) -> bool:
        """SIGSTOP; it goes on by itself after a time within these bounds."""
        pid = self._signal_one([pid for pid in pids if pid not in self._paused], signal.SIGSTOP)
        if pid is not None:
            self._paused[pid] = time.monotonic() + self.random.uniform(*seconds)
        return pid is not None

    def faults_between_statements(self) -> dict[str, Callable[[], bool | str]]:
        """On whichever process of the scheduler comes to a certain statement."""
        return {f"{kind} between statements": partial(self._strike, kind) for kind in ACTS}

    def _strike(self, kind: str) -> bool | str:
        assert self.strikes is not None
        self.strikes.arm(kind, self.random)

        def struck() -> str:
            self._let_go(time.monotonic())
            return self._heard_of_strike()

        with suppress(AssertionError):
            return wait_for("a process comes to the statement", struck, patience_s=STRIKES_WITHIN_S, pause_s=0.02)
        self.strikes.disarm()
        return False

    def _heard_of_strike(self) -> str:
        """Where a fault has struck since; what stands still goes on later."""
        struck = self.strikes.look() if self.strikes else None
        if struck is None:
            return ""
        if struck.kind == "stopped":
            self._paused[struck.pid] = time.monotonic() + self.random.uniform(*STANDS_STILL_S)
        return f"{struck.kind} at {struck.where}"

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
        self.resume(float("inf"))  # what stands still ends on no signal but SIGKILL
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
                self._insist(lambda job=job: self.service.client.job(job))
            except NotFound:
                self.violated(f"{job} is lost")
                self.jobs.remove(job)

    def cancel_one(self) -> bool:
        """A job that has not ended, by the client."""
        able = [job["id"] for job in self._unfinished() if job["id"] not in self._cancelled]
        if not able:
            return False
        job = self.random.choice(sorted(able))
        self._cancelled.add(job)
        with suppress(Conflict):  # it has just ended
            self._insist(lambda: self.service.client.cancel(job))
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

    def resume(self, now: float) -> None:
        """Let go on what was paused until then."""
        if late := self._heard_of_strike():
            say(f"a late fault: {late}")
        self._let_go(now)

    def _let_go(self, now: float) -> None:
        for pid in [pid for pid, until in self._paused.items() if until <= now]:
            del self._paused[pid]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _inject(self) -> None:
        name = self.random.choice(list(self.faults))
        if where := self.faults[name]():
            self.injected[name] += 1
            say(f"fault {sum(self.injected.values())}: {name}{f', {where}' if isinstance(where, str) else ''}")

    def _keep_busy(self) -> None:
        for _ in range(UNFINISHED - len(self._unfinished())):
            shape = self.random.choice(self.shapes)
            name = f"job-{len(self.jobs)}"
            submit = lambda name=name, shape=shape: self.service.submit(  # noqa: E731
                COMMAND, name=name, idempotency_key=name, retries=self.retries, **shape
            )
            self.jobs.append(self._insist(submit))

    def _unfinished(self) -> list[Any]:
        states = ["queued", "starting", "running", "stopping"]
        return self._insist(lambda: list(self.service.client.jobs(state=states)))

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """Until the service answers, as a script would that is patient."""

        def answer() -> tuple[Any] | None:
            self.resume(time.monotonic())
            try:
                return (ask(),)
            except (Conflict, NotFound):
                raise
            except MotleyError:
                return None

        return wait_for("the service answers", answer)[0]

    def _settle(self) -> list[str]:
        """Wait until all jobs have ended; those that did not succeed are violations."""
        states: dict[str, Any] = {}
        self.look_for_lost_jobs()

        def over() -> bool:
            self.administer()
            for job in self.jobs:
                if states.get(job, {}).get("state") not in FINAL:
                    states[job] = self._insist(lambda job=job: self.service.client.job(job))
            return all(job["state"] in FINAL for job in states.values())

        with suppress(AssertionError):
            wait_for("all jobs have ended", over, patience_s=SETTLED_WITHIN_S)
        bad = [job for job in states.values() if job["state"] not in self._allowed(job["id"])]
        return [f"{job['name']} {job['id']} is {job['state']}: {job['message']}" for job in bad]

    def _allowed(self, job: str) -> tuple[str, ...]:
        return ("succeeded", "cancelled") if job in self._cancelled else ("succeeded",)

    def _wrong_ledgers(self) -> Iterator[str]:
        for job in self.jobs:
            ledgers = sorted((self.root / "jobs" / job / "checkpoints").glob("ledger.*"))
            shown = self.service.client.job(job)
            done = shown["state"] == "succeeded"
            for path in ledgers:
                to_the_end = done and int(path.suffix[1:]) < len(shown["attempts"][-1]["nodes"])
                if fault := ledger_fault(read_ledger(path), to_the_end=to_the_end):
                    yield f"{path}: {fault}"
            if done and not ledgers:
                yield f"{job} has done nothing"

    def _wrong_histories(self) -> Iterator[str]:
        ends = self.service.python(ENDS)
        for job in self.jobs:
            if ends.get(job) != 1:
                yield f"{job} ended {ends.get(job, 0)} times"
            ran = [attempt for attempt in self.service.client.job(job)["attempts"] if attempt["started_at"]]
            for before, after in pairwise(ran):
                if not before["ended_at"] or after["started_at"] < before["ended_at"]:
                    yield f"{job}: attempt {after['number']} began before attempt {before['number']} had ended"

    def _left_over(self) -> Iterator[str]:
        for what, look in self.leftovers().items():
            try:
                wait_for(f"no {what}", lambda look=look: not look(), patience_s=GIVEN_BACK_WITHIN_S)
            except AssertionError:
                yield f"{what} are left: {look()}"
        if overlaps := self.service.python(OVERLAPS):
            yield f"{overlaps} times a GPU was claimed by two at once"
