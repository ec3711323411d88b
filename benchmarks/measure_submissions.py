"""Submissions to a gunicorn as it is deployed: one by one by 16 clients, and ten thousand in one request."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx
from django.contrib.auth.models import User
from django.core.management import call_command

from benchmarks.figures import Figure
from benchmarks.servers import free_port
from cluster_app.models import GpuType
from cluster_app.services import add_node
from connections_app.register_machine import gpu_type_columns
from jobs_app.models import ApiToken, Team
from jobs_app.tokens import issue_token

CLIENTS, SECONDS = 16, 20
PATIENCE_S = 60.0
BATCH, BATCHES = 10_000, 3
GUNICORN = ("-m", "gunicorn", "config.wsgi", "--workers", "2", "--threads", "16", "--log-level", "warning")
"""As in docker-compose.yml."""


def measure() -> list[Figure]:
    call_command("migrate", verbosity=0)
    token = _token()
    with web_service() as address:
        url = f"{address}/api/v1/jobs"
        _load(url, token, seconds=3)  # connections and caches are there
        one_by_one, batches = _load(url, token, seconds=SECONDS), [_batch(url, token) for _ in range(BATCHES)]
    assert one_by_one["failed"] == 0, one_by_one
    rate = one_by_one["requests"] / one_by_one["seconds"]
    return [
        Figure(f"single submissions, {CLIENTS} clients", rate, "jobs/s", 300, more_is_better=True),
        Figure("single submissions: p99", one_by_one["p99_ms"], "ms", 200),
        Figure("batches of 10,000", BATCH / median(batches), "jobs/s", 5000, more_is_better=True),
    ]


def _token() -> str:
    kind = GpuType.objects.create(name="a100", **gpu_type_columns("a100"))
    for position in range(10):
        add_node(f"node-{position}", kind, gpus=8, cpus=64, memory_mib=2**19)
    user = User.objects.create_user("bench")
    Team.objects.create(name="bench").members.add(user)
    return issue_token(user, name="bench", scope=ApiToken.Scope.SUBMIT)


@contextmanager
def web_service() -> Iterator[str]:
    """Run the web server and yield its address; it is stopped at the end of the block."""
    url = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"MOTLEY_REST_RATE": "1000000/m"}
    web = subprocess.Popen([sys.executable, *GUNICORN, "--bind", url], env=environment)
    try:
        httpx.Client(transport=httpx.HTTPTransport(retries=8), timeout=PATIENCE_S).get(f"http://{url}/livez")
        yield f"http://{url}"
    finally:
        web.send_signal(signal.SIGTERM)
        web.wait()


def _load(url: str, token: str, *, seconds: int) -> dict[str, float]:
    script = str(Path(__file__).with_name("submit.lua"))
    command = ["wrk", "--threads", "1", "--connections", str(CLIENTS), "--duration", f"{seconds}s", "--script", script]
    headers = ["--header", f"Authorization: Bearer {token}", "--header", "Content-Type: application/json"]
    found = subprocess.run([*command, *headers, url], check=True, capture_output=True, text=True)
    summary: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return summary


def _batch(url: str, token: str) -> float:
    """Seconds for ten thousand jobs, all of them different, in one request."""
    jobs = [
        {"name": f"batch-{n}", "command": f"python train.py --seed {n}", "gpus": 1 + n % 4, "tags": {"run": str(n)}}
        for n in range(BATCH)
    ]
    body = json.dumps({"jobs": jobs})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    began = perf_counter()
    answer = httpx.post(f"{url}/batch", content=body, headers=headers, timeout=120)
    seconds = perf_counter() - began
    assert answer.status_code == 201, answer.text[:500]
    return seconds
