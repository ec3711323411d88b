"""Campaign of random faults on a service over a private Slurm: `python -m tests.service.slurm_faults SEED [FAULTS]`.

Jobs of one and of several nodes run while the scheduler, Slurm's daemons, supervisors and ranks are killed and jobs
are cancelled in Slurm. Whatever was done to it, each job does each of its steps, no two attempts of a job and no two
jobs on a GPU are ever alive at once, and nothing is left at the end.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from engines.protocol import EngineError
from engines.slurm.private_cluster import PrivateCluster
from tests.deployment import OVERLAPS, others, told, wait_for
from tests.engines.slurm_cluster import NODES, free_ports
from tests.service.running_service import Service, a_service

FAULTS, STEPS, STEP_S = 120, 160, 0.05
UNFINISHED = 7
"""Jobs that are kept unfinished while faults are injected."""
SHAPES = ({"gpus": 1}, {"gpus": 2}, {"gpus": 6, "gpu_types": ["a100"]}, {"gpus": 3, "gpu_types": ["v100"]})
"""6 A100 are three on each of two nodes."""
SETTLED_WITHIN_S = 400.0
LOOK_S = 0.2
STILL_THERE_S = 0.5
"""A process that was sent SIGKILL is seen for a moment: only what is alive after this time is taken for a violation."""
LEDGER = """\
import os, signal, sys, time
# ledger-of-steps
steps, step_s = int(sys.argv[1]), float(sys.argv[2])
place = os.environ["MOTLEY_CHECKPOINT_DIR"] + "/{}." + os.environ["MOTLEY_NODE_RANK"]
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
path = place.format("step")
done = int(open(path).read()) if os.path.exists(path) else 0
with open(place.format("ledger"), "a", buffering=1) as ledger:
    while done < steps and not stops:
        time.sleep(step_s)
        done += 1
        ledger.write(os.environ["MOTLEY_ATTEMPT"] + " " + str(done) + "\\n")
        with open(path + ".new", "w") as checkpoint:
            checkpoint.write(str(done))
        os.replace(path + ".new", path)
sys.exit(0 if done >= steps else 75)
"""
DECLARE = """
from cluster_app.models import Engine, GpuType
from cluster_app.services import add_node
from scheduler_app.operations.register_machine import gpu_type_columns
Engine.objects.create(name="hpc", kind="slurm", options={options!r})
for name, kind, gpus, cpus, memory_mib in {nodes!r}:
    gpu_type, _ = GpuType.objects.get_or_create(name=kind, defaults=gpu_type_columns(kind))
    add_node(name, gpu_type, gpus=gpus, cpus=cpus, memory_mib=memory_mib, engine="hpc")
"""
OPEN_CLAIMS = "from scheduler_app.models import GpuClaim\nanswer = GpuClaim.objects.open().count()"
SUCCEEDED = """
from jobs_app.models import Attempt
ended = Attempt.objects.filter(outcome="succeeded").values_list("job", flat=True)
answer = [str(job) for job in ended]
"""


class Running(NamedTuple):
    """A process of a job, as it is found on the machine."""

    pid: int
    job: str
    attempt: str
    rank: str
    gpus: frozenset[str]
    """As node/device."""


class Watch(threading.Thread):
    """Looks at the processes of jobs again and again: two attempts of a rank, or two jobs on a GPU, are a violation."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.violations: list[str] = []
        self._root = str(root)
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(LOOK_S):
            if together := self._together():
                time.sleep(STILL_THERE_S)
                self.violations += sorted(together & self._together())

    def end(self) -> list[str]:
        self._done.set()
        self.join()
        return list(dict.fromkeys(self.violations))

    def _together(self) -> set[str]:
        places: dict[str, set[Running]] = defaultdict(set)
        for one in job_processes(self._root):
            for place in {f"rank {one.rank} of {one.job}", *(f"GPU {gpu}" for gpu in one.gpus)}:
                places[place].add(one)
        return {f"{place}: {sorted(its)}" for place, its in places.items() if len(its) > 1}


def job_processes(root: str) -> Iterator[Running]:
    """Processes of jobs whose files lie below `root`."""
    for pid in others():
        if b"ledger-of-steps" not in told(pid, "cmdline"):
            continue
        env = environment(pid)
        if env.get("MOTLEY_CHECKPOINT_DIR", "").startswith(root) and "CUDA_VISIBLE_DEVICES" in env:
            gpus = frozenset(f"{env['SLURMD_NODENAME']}/{n}" for n in env["CUDA_VISIBLE_DEVICES"].split(","))
            yield Running(pid, env["MOTLEY_JOB_ID"], env["MOTLEY_ATTEMPT"], env["MOTLEY_NODE_RANK"], gpus)


def environment(pid: int) -> dict[str, str]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    return {}


class Campaign:
    """Faults of one seed on a service; the jobs are submitted as they are needed."""

    def __init__(self, service: Service, cluster: PrivateCluster, *, seed: int) -> None:
        self.service, self.cluster = service, cluster
        self.jobs: list[str] = []
        self.injected: dict[str, int] = defaultdict(int)
        self.resumed = 0
        self._random = random.Random(seed)
        self._root = service.engine_root / "hpc"
        self._faults: dict[str, Callable[[], bool]] = {
            "scheduler": self._kill_scheduler,
            "slurmctld": self._restart_controller,
            "slurmd": self._restart_node,
            "slurmstepd": lambda: self._kill_one(self._step_daemons()),
            "scancel": self._cancel,
            "supervisor": lambda: self._kill_one(self._with_words(b"engines.slurm.batch")),
            "init process": lambda: self._kill_one(self._with_words(b"engines.supervision.init_process")),
            "rank": lambda: self._kill_one([one.pid for one in job_processes(str(self._root))]),
        }

    def run(self, faults: int) -> list[str]:
        """Violations of what must hold, after so many faults and the end of all jobs."""
        self._declare()
        watch = Watch(self._root)
        watch.start()
        while sum(self.injected.values()) < faults:
            self._administer()
            self._keep_busy()
            time.sleep(self._random.uniform(0.2, 3.0))
            self._inject()
        found = self._settle()
        return [*watch.end(), *found, *self._wrong_ledgers(), *self._left_over()]

    def _declare(self) -> None:
        conf = str(self.cluster.conf)
        options = {"root": str(self._root), "slurm_conf": conf, "late_disk_s": 5, "search_path": ""}
        nodes = [(node.name, node.gpu_type, node.gpus, node.cpus, node.memory_mib) for node in self.cluster.nodes]
        self.service.python(DECLARE.format(options=options, nodes=nodes))
        self.service.decide_every(1, min_run_s=10)

    def _administer(self) -> None:
        """Resume nodes that Slurm drained by itself: it does where it has forgotten a start ("Duplicate jobid")."""
        with suppress(EngineError):
            lines = self.cluster.run("sinfo", "-h", "-N", "-p", "gpu", "-t", "drain", "-o", "%N").split()
            if lines:
                self.cluster.run("scontrol", "update", f"nodename={','.join(lines)}", "state=resume")
                self.resumed += len(lines)

    def _keep_busy(self) -> None:
        unfinished = sum(1 for _ in self.service.client.jobs(state=["queued", "starting", "running", "stopping"]))
        for _ in range(UNFINISHED - unfinished):
            shape = self._random.choice(SHAPES)
            command = ["/usr/bin/python3", "-ESc", LEDGER, str(STEPS), str(STEP_S)]
            self.jobs.append(self.service.submit(command, retries=100, name=f"job-{len(self.jobs)}", **shape))

    def _inject(self) -> None:
        name = self._random.choice(list(self._faults))
        if self._faults[name]():
            self.injected[name] += 1
            say(f"fault {sum(self.injected.values())}: {name}")

    def _kill_scheduler(self) -> bool:
        return self._kill_one(self.service.processes("manage.py schedule"))

    def _restart_controller(self) -> bool:
        self.cluster.stop_daemon("slurmctld", signal_number=signal.SIGKILL)
        time.sleep(self._random.uniform(0, 4))
        self.cluster.start_controller()
        return True

    def _restart_node(self) -> bool:
        name = self._random.choice(self.cluster.nodes).name
        self.cluster.stop_daemon(f"slurmd-{name}", signal_number=signal.SIGKILL)
        time.sleep(self._random.uniform(0, 4))
        self.cluster.start_node(name)
        return True

    def _cancel(self) -> bool:
        with suppress(EngineError):
            if numbers := self.cluster.run("squeue", "-h", "-t", "RUNNING,PENDING", "-o", "%A").split():
                self.cluster.run("scancel", self._random.choice(sorted(numbers)))
                return True
        return False

    def _kill_one(self, pids: list[int]) -> bool:
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._random.choice(sorted(pids)), signal.SIGKILL)
            return True
        return False

    def _step_daemons(self) -> list[int]:
        spool = str(self.cluster.base)
        return [pid for pid in others() if b"slurmstepd" in told(pid, "cmdline") and spool in opened_by(pid)]

    def _with_words(self, words: bytes) -> list[int]:
        root = str(self._root).encode()
        found = [pid for pid in others() if words in told(pid, "cmdline")]
        return [pid for pid in found if root in told(pid, "cmdline") + told(pid, "environ")]

    def _settle(self) -> list[str]:
        """Wait until all jobs have ended; those that did not succeed are violations."""
        states: dict[str, Any] = {}

        def over() -> bool:
            self._administer()
            states.update((job, self.service.client.job(job)) for job in self.jobs if not is_over(states.get(job)))
            return all(is_over(states[job]) for job in self.jobs)

        with suppress(AssertionError):
            wait_for("all jobs have ended", over, patience_s=SETTLED_WITHIN_S)
        bad = [job for job in states.values() if job["state"] != "succeeded"]
        return [f"{job['name']} {job['id']} is {job['state']}: {job['message']}" for job in bad]

    def _wrong_ledgers(self) -> Iterator[str]:
        for job in self.jobs:
            ledgers = sorted((self._root / "jobs" / job / "checkpoints").glob("ledger.*"))
            ranks = len(self.service.client.job(job)["attempts"][-1]["nodes"])
            for path in ledgers:
                rows = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
                if fault := ledger_fault(rows, to_the_end=int(path.suffix[1:]) < ranks):
                    yield f"{path}: {fault}"
            if not ledgers:
                yield f"{job} has done nothing"

    def _left_over(self) -> Iterator[str]:
        """What is not given back soon after the end of the last job."""
        looks: dict[str, Callable[[], Any]] = {
            "processes": lambda: [(pid, told(pid, "cmdline")[:300]) for pid in self.service.job_processes()],
            "Slurm jobs": lambda: self.cluster.run("squeue", "-h").strip(),
            "open claims": lambda: self.service.python(OPEN_CLAIMS),
        }
        for what, look in looks.items():
            try:
                wait_for(f"no {what}", lambda look=look: not look(), patience_s=90)
            except (AssertionError, EngineError):
                yield f"{what} are left: {look()}"
        if overlaps := self.service.python(OVERLAPS):
            yield f"{overlaps} times a GPU was claimed by two at once"
        succeeded = self.service.python(SUCCEEDED)
        yield from (f"{job} succeeded {succeeded.count(job)} times" for job in self.jobs if succeeded.count(job) != 1)


def is_over(job: Any) -> bool:
    return job is not None and job["state"] in ("succeeded", "failed", "cancelled", "timed_out")


def ledger_fault(rows: list[tuple[int, ...]], *, to_the_end: bool = True) -> str:
    """What is wrong with lines (attempt, step); a step may be repeated where a kill came before its checkpoint.

    Not `to_the_end`: the last attempt was on fewer nodes, and had no such rank.
    """
    if not rows or rows[0][1] != 1 or (to_the_end and rows[-1][1] != STEPS):
        return f"it goes from {rows[:1]} to {rows[-1:]}"
    for before, after in pairwise(rows):
        goes_on = after == (before[0], before[1] + 1)
        resumes = after[0] > before[0] and after[1] in (before[1], before[1] + 1)
        if not (goes_on or resumes):
            return f"{before} is followed by {after}"
    return ""


def opened_by(pid: int) -> str:
    """The files that a process has open: a slurmstepd is told by them from those of another cluster."""
    with suppress(OSError):
        return " ".join(os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir())  # noqa: PTH115
    return ""


@contextmanager
def private_cluster() -> Iterator[PrivateCluster]:
    """A cluster whose Slurm soon forgets what has ended."""
    base = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = PrivateCluster(base, NODES, port=free_ports(len(NODES) + 1), min_job_age_s=30)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(base)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> None:
    seed, faults = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else FAULTS
    began_s = time.monotonic()
    with private_cluster() as cluster, a_service() as service:
        campaign = Campaign(service, cluster, seed=seed)
        violations = campaign.run(faults)
        if violations:
            kept = shutil.copytree(service.var, tempfile.mkdtemp(prefix="faults-"), dirs_exist_ok=True, symlinks=True)
            shutil.copy(cluster.base / "slurmctld.log", kept)
            shutil.copy(service.log, kept)
            say(f"the files are kept in {kept}")
    injected = ", ".join(f"{count} x {name}" for name, count in sorted(campaign.injected.items()))
    took = f"{len(campaign.jobs)} jobs, {campaign.resumed} nodes resumed, {time.monotonic() - began_s:.0f} s"
    say(f"seed {seed}: {faults} faults ({injected}), {took}")
    for violation in violations:
        say(f"VIOLATION {violation}")
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
