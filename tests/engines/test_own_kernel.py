"""Limits of jobs by cgroup v2, on a kernel of the tests' own: this machine's cgroups are not touched."""

import sys
from pathlib import Path

import pytest

from tests.engines.own_kernel import kernel

HERE = Path(__file__).parent


UNITS = HERE.parents[1] / "deploy" / "systemd"
WORKER = """
[Unit]
Wants=motley-jobs.service
After=motley-jobs.service
[Service]
KillMode=process
ExecStart=/bin/sleep 3600
"""

pytestmark = pytest.mark.skipif(
    not kernel.is_here(), reason="no User-mode Linux: apt-get install user-mode-linux gcc libc6-dev"
)


def test_the_kernel_limits_what_jobs_take(place: Path) -> None:
    cases = str(HERE / "own_kernel" / "cases.py")
    ran = kernel.run(kernel.pytest_in_it("-p", "tests.engines.conftest", cases), folder=HERE.parents[1], shared=place)
    assert ran.code == 0, ran.output[-8000:]


@pytest.mark.skipif(not kernel.SYSTEMD.exists(), reason="no systemd: apt-get install systemd")
def test_the_unit_of_jobs_lets_the_worker_limit_them_and_be_restarted(place: Path, tmp_path: Path) -> None:
    worker = tmp_path / "worker.service"
    worker.write_text(WORKER)
    script = [sys.executable, "-B", "-m", "tests.engines.own_kernel.under_systemd"]
    units = [UNITS / "motley-jobs.service", worker]
    ran = kernel.run_under_systemd(script, units, folder=HERE.parents[1], shared=place)
    assert ran.code == 0, ran.output[-8000:]
