"""Two hundred servers of the site: `python -m benchmarks.many_servers [--servers 200] [--gang 64]`.

A service as `manage.py serve` starts it, on SQLite. Its servers are played (`benchmarks.played_servers`), by a process
of its own; one more is a real agent with emulated GPUs, which idles, and speaks https as servers must. Told are what
the service uses, how long a gang takes to start, how old a line of a log is when a reader has it, and what the idle
agent uses.
"""

import argparse
import multiprocessing
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from benchmarks.figures import Figure, percentile, table
from benchmarks.live_service import ROOT, LiveService, service_process
from benchmarks.played_servers import GPUS, PlayedServer, started_last
from benchmarks.served_by_tls import Served, served_by_tls
from engines.accounts import account_name, ensure_account
from operations.prepare_host import JOB_USER

ROUND_S = 10
SETTLE_S = 15.0
ALONE_S = 60.0
"""An agent does some things once a minute."""
PATIENCE_S = 120.0
TOKENS = """
from django.utils import timezone
from connections_app.agents.join_agent import issue_join_token
answer = [issue_join_token(f"gpu{{n}}", trusted=True, site=True, actor=None, now=timezone.now())[1] for n in range({0})]
"""
TICKS = os.sysconf("SC_CLK_TCK")
PROCESS_CPU = 2
"""CPUCLOCK_SCHED, as clock_getcpuclockid(3) has it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--gang", type=int, default=64, help="servers of the gang")
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement")
    parser.add_argument("--gangs", type=int, default=3, help="how many gangs are started, one after the other")
    options = parser.parse_args()
    with service_process({}, policy="motley", round_s=ROUND_S, min_run_s=0) as service:
        tokens = service.python(TOKENS.format(options.servers + 1))
        with an_idle_agent(service, tokens[-1]) as agent:
            alone = used_by(agent, ALONE_S)
            with played(service, tokens[:-1]) as servers:
                print(table(_figures(options, service, servers, agent, alone)), flush=True)


def _figures(
    options: argparse.Namespace, service: LiveService, servers: "Played", agent: int, alone: "Use"
) -> Iterator[Figure]:
    number, seconds = options.servers, options.seconds
    time.sleep(SETTLE_S)
    idle = used_by(service.process, seconds)
    beside = used_by(agent, seconds)
    starts = [_start_of_a_gang(service, servers, options.gang) for _ in range(options.gangs)]
    jobs = [_submitted(service, f"job-{n}", GPUS) for n in range(number - 1)]
    _wait_for(lambda: len(list(service.client.jobs(state=["running"]))) == len(jobs))
    time.sleep(SETTLE_S)
    ages = _ages(service, servers, jobs[0], seconds)
    busy = used_by(service.process, seconds)
    yield Figure(f"service beside {number} idle servers", idle.cores, "cores", 0.5)
    yield Figure(f"service beside {number} servers with a job each", busy.cores, "cores", 0.5)
    yield Figure(f"gang over {options.gang} servers, from its claim to its last rank: longest", max(starts), "s", 10)
    yield Figure("age of a line of a log when a reader has it: median", percentile(ages, 50), "s")
    yield Figure("age of a line of a log when a reader has it: p99", percentile(ages, 99), "s", 2)
    yield Figure("idle agent, alone: memory", alone.mib, "MiB", 40)
    yield Figure("idle agent, alone: per cent of a core", 100 * alone.cores, "", 0.2)
    yield Figure(f"idle agent, one of {number + 1}: per cent of a core", 100 * beside.cores, "", 0.2)


# -- what processes use ------------------------------------------------------------------------------------------


class Use(NamedTuple):
    """Of a process and all that came from it, over a time: mean cores, and memory at its end."""

    cores: float
    mib: float


def used_by(root: int, seconds: float) -> Use:
    before, began_s = _cpu_s_of_tree(root), time.monotonic()
    time.sleep(seconds)
    cores = (_cpu_s_of_tree(root) - before) / (time.monotonic() - began_s)
    return Use(cores, _resident_mib(root))


def _cpu_s_of_tree(root: int) -> float:
    """One that ends meanwhile is counted with its parent's."""
    total = 0.0
    for pid in tree_of(root):
        with suppress(OSError):
            total += _cpu_s(pid)
    return total


def tree_of(pid: int) -> list[int]:
    """The process and all that came from it."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").glob("*") for child in _children(task)]
    return [pid, *(one for child in children for one in tree_of(child))]


def _children(task: Path) -> list[str]:
    with suppress(OSError):
        return (task / "children").read_text().split()
    return []


def _cpu_s(pid: int) -> float:
    """CPU seconds of the process so far, by its clock in nanoseconds, and of its children that have ended."""
    own_s = time.clock_gettime((~pid << 3) | PROCESS_CPU)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own_s + sum(map(int, fields[13:15])) / TICKS


def _resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


# -- the servers -------------------------------------------------------------------------------------------------


@contextmanager
def an_idle_agent(service: LiveService, token: str) -> Iterator[int]:
    """A real agent, as a server of the site, which reaches the service by https; its process."""
    folder = Path(tempfile.mkdtemp(prefix="motley-bench-agent-", dir="/tmp"))
    folder.chmod(0o711)  # jobs of another user pass through
    with served_by_tls(urlsplit(service.url).port or 80, folder) as by_tls, _agent_of(by_tls, folder, token) as agent:
        yield agent
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _agent_of(service: Served, folder: Path, token: str) -> Iterator[int]:
    jobs_as = []
    if os.geteuid() == 0:
        ensure_account(account_name(JOB_USER))
        jobs_as = ["--job-user", account_name(JOB_USER)]
    agent, state = [sys.executable, "-m", "engines.agent"], ["--state", str(folder / "state")]
    authorities = _all_authorities(service, folder)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "SSL_CERT_FILE": str(authorities)}
    joining = ["join", "--url", service.url, "--gpus", f"k80:{GPUS}", "--address", "127.0.0.1", *jobs_as, *state]
    subprocess.run([*agent, *joining], env=environment | {"MOTLEY_JOIN_TOKEN": token}, cwd=ROOT, check=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*agent, "run", *state], env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        time.sleep(SETTLE_S)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _all_authorities(service: Served, folder: Path) -> Path:
    """The certificate of this service, with those of the machine: an agent reads them all, as elsewhere."""
    own, path = ssl.get_default_verify_paths().cafile, folder / "authorities.pem"
    path.write_bytes(service.authorities.read_bytes() + (Path(own).read_bytes() if own else b""))
    return path


class Played:
    """The process that plays the servers, as told and asked through a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def started(self, attempt: int) -> datetime | None:
        """When the last rank of this attempt started."""
        self._pipe.send(("started", attempt))
        answer: datetime | None = self._pipe.recv()
        return answer

    def write(self, attempt: int) -> None:
        """Have the server of this attempt write a log."""
        self._pipe.send(("write", attempt))
        self._pipe.recv()


@contextmanager
def played(service: LiveService, tokens: Sequence[str]) -> Iterator[Played]:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=play, args=(service.url, list(tokens), theirs), daemon=True)
    process.start()
    try:
        print(f"{ours.recv()} servers have joined", flush=True)
        yield Played(ours)
    finally:
        process.kill()
        process.join()


def play(url: str, tokens: Sequence[str], pipe: Connection) -> None:
    """Play the servers, and answer what is asked about them."""
    stopped = threading.Event()
    servers = [PlayedServer(url, number) for number in range(len(tokens))]
    for server, token in zip(servers, tokens, strict=True):
        server.join(token)
        threading.Thread(target=server.work, args=(stopped,), daemon=True).start()
    pipe.send(len(servers))
    while True:
        what, attempt = pipe.recv()
        if what == "write":
            server = next(one for one in servers if attempt in one.ranks)
            threading.Thread(target=server.write, args=(attempt, stopped), daemon=True).start()
        pipe.send(started_last(servers, attempt) if what == "started" else True)


# -- what happens on them ----------------------------------------------------------------------------------------


def _submitted(service: LiveService, name: str, gpus: int) -> str:
    spec = {"name": name, "command": "train", "gpus": gpus, "team": "vision", "gpu_types": ["h100"]}
    return str(service.client.submit(spec)["id"])


def _start_of_a_gang(service: LiveService, servers: Played, nodes: int) -> float:
    """Seconds from the claim of a gang over so many servers to the start of its last rank."""
    job = _submitted(service, "gang", GPUS * nodes)
    _wait_for(lambda: service.client.job(job)["state"] == "running")
    (attempt,) = service.client.attempts(job)
    last = servers.started(attempt["id"])
    assert last is not None
    service.client.cancel(job)
    _wait_for(lambda: service.client.job(job)["state"] == "cancelled")
    return (last - datetime.fromisoformat(attempt["claimed_at"])).total_seconds()


def _ages(service: LiveService, servers: Played, job: str, seconds: float) -> list[float]:
    """Ages of the lines of this job's log when a reader has them, by its event stream."""
    (attempt,) = service.client.attempts(job)
    servers.write(attempt["id"])
    ages: list[float] = []
    until_s = time.monotonic() + seconds
    headers = {"Authorization": f"Bearer {service.token}", "Accept": "text/event-stream"}
    with httpx.stream("GET", f"{service.url}/api/v1/jobs/{job}/logs", headers=headers, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: ") and line[6:7].isdigit():
                ages.append(time.time() - float(line[6:]))
            if time.monotonic() > until_s:
                break
    return ages


def _wait_for(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until_s:
            raise RuntimeError("what was waited for did not come")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
