"""`make run SLURM=1`: sample jobs run on a private Slurm cluster, which outlives the service until it is stopped."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engines.slurm.private_cluster import missing_programs
from tests.deployment import ROOT, wait_for
from tests.engines.slurm_cluster import free_ports
from tests.service.running_service import Service

pytestmark = [
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(
        bool(missing_programs()) and os.environ.get("CI") != "true", reason="Slurm is not installed: see bootstrap.sh"
    ),
]


@pytest.fixture
def on_slurm() -> Iterator[Service]:
    folder = Path(tempfile.mkdtemp(prefix="motley-slurm-"))
    folder.chmod(0o755)
    service = Service(folder, SLURM="1", DEMO="1", MOTLEY_SLURM_PORT=str(free_ports(6)))
    service.start()
    yield service
    service.stop()
    stopped = [sys.executable, str(ROOT / "manage.py"), "stopslurm"]
    subprocess.run(stopped, env=service.environment, cwd=ROOT, check=True)
    wait_for("no process of the cluster is left", lambda: not daemons_of(service))
    shutil.rmtree(folder)


def daemons_of(service: Service) -> list[str]:
    pids = [path.read_text().strip() for path in (service.var / "slurm").glob("*.pid")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_sample_jobs_run_on_slurm(on_slurm: Service) -> None:
    with closing(on_slurm.browser()) as browser:
        succeeded = "/api/v1/jobs?state=succeeded"
        job = wait_for("a sample job succeeds", lambda: browser.get(succeeded).json()["results"])[0]
        attempt = browser.get(f"/api/v1/jobs/{job['id']}/attempts").json()["results"][0]
    assert attempt["engine"] == "slurm"
    assert attempt["devices"]
