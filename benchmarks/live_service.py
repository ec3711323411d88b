"""A live service of a benchmark: `manage.py serve` on emulated nodes, in a folder and on a port of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import httpx

from benchmarks.servers import free_port
from motley_client import Client

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 300.0
UNFINISHED = ("queued", "starting", "running", "stopping")
DECLARE = """
from cluster_app.models import GpuType
from cluster_app.services import add_node
from scheduler_app.models import PolicySetting
from connections_app.register_machine import gpu_type_columns
from scheduler_app.policy.settings import choose_policy
for name, (nodes, gpus) in {cluster!r}.items():
    kind = GpuType.objects.create(name=name, **gpu_type_columns(name))
    for n in range(nodes):
        add_node(f"{{name}}-{{n}}", kind, gpus=gpus, cpus=64, memory_mib=2**19, emulated=True)
choose_policy(PolicySetting(policy={policy!r}, round_length_s={round_s}, min_run_s={min_run_s}), actor=None)
"""


class LiveService(NamedTuple):
    """A service that runs for a benchmark."""

    client: Client
    """Of the demo's user."""
    url: str
    token: str
    environment: Mapping[str, str]
    process: int
    """Of `manage.py serve`: all others of the service come from it."""

    def python(self, code: str) -> Any:
        """Run code beside the service, on its database; what it assigns to `answer` comes back through JSON."""
        words = [
            sys.executable,
            "manage.py",
            "shell",
            "--no-imports",
            "-c",
            f"{code}\nimport json; print(json.dumps(answer))",
        ]
        done = subprocess.run(words, check=True, env=dict(self.environment), cwd=ROOT, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def live_service(
    cluster: Mapping[str, tuple[int, int]], *, policy: str, round_s: float, min_run_s: float, **settings: str
) -> Iterator[Client]:
    """A service with these nodes and this policy, as a client of the demo's user; gone afterwards."""
    with service_process(cluster, policy=policy, round_s=round_s, min_run_s=min_run_s, **settings) as service:
        yield service.client


@contextmanager
def service_process(
    cluster: Mapping[str, tuple[int, int]], *, policy: str, round_s: float, min_run_s: float, **settings: str
) -> Iterator[LiveService]:
    """A service with these nodes and this policy; gone afterwards. Jobs that have not ended are cancelled."""
    folder = Path(tempfile.mkdtemp(prefix="motley-bench-live-", dir="/tmp"))
    folder.chmod(0o711)  # jobs of another user pass through
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "MOTLEY_VAR": str(folder / "var"), "DEMO": "0"}
    environment |= {"MOTLEY_PORT": str(free_port()), **settings}
    with (folder / "service.log").open("wb") as log, _process(["serve"], environment, log) as process:
        url = f"http://localhost:{environment['MOTLEY_PORT']}"
        _wait(url, process)
        told = {"cluster": dict(cluster), "policy": policy, "round_s": round_s, "min_run_s": min_run_s}
        words = [sys.executable, "manage.py", "shell", "--no-imports", "-c", DECLARE.format(**told)]
        subprocess.run(words, check=True, env=environment, cwd=ROOT)
        token = _token(folder / "var" / "demo.env")
        with Client(url, token) as client:
            try:
                yield LiveService(client, url, token, environment, process.pid)
            finally:
                _cancel_all(client)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _process(words: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A management command that is stopped as by Ctrl-C."""
    command = [sys.executable, "-u", "manage.py", *words]
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until the service answers."""
    give_up_at = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < give_up_at:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/livez").is_success:
                return
        time.sleep(0.1)
    raise RuntimeError("the service did not start")


def _token(path: Path) -> str:
    lines = path.read_text().splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)["MOTLEY_TOKEN"]


def _cancel_all(client: Client) -> None:
    """Cancel the jobs that have not ended, and wait for their ends."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (left := list(client.jobs(state=UNFINISHED))) and time.monotonic() < give_up_at:
        for job in left:
            if job["state"] != "stopping":
                client.cancel(job["id"])
        time.sleep(1)
