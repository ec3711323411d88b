"""`make run SLURM=1`: sample jobs run on a private Slurm cluster, which outlives the service until it is stopped."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from engines.slurm.commands import SEARCH_PATH
from engines.slurm.private_cluster import missing_programs
from tests.deployment import ROOT, wait_for
from tests.engines.slurm_cluster import free_ports
from tests.service.browsing import signed_in
from tests.service.running_service import Service

pytestmark = [
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(
        bool(missing_programs()) and os.environ.get("CI") != "true", reason="Slurm is not installed: see bootstrap.sh"
    ),
]


@contextmanager
def on_slurm(**environment: str) -> Iterator[Service]:
    folder = Path(tempfile.mkdtemp(prefix="motley-slurm-"))
    folder.chmod(0o755)
    service = Service(folder, SLURM="1", MOTLEY_SLURM_PORT=str(free_ports(6)), **environment)
    service.start()
    try:
        yield service
    finally:
        service.stop()
        stopped = [sys.executable, str(ROOT / "manage.py"), "stopslurm"]
        subprocess.run(stopped, env=service.environment, cwd=ROOT, check=True)
        wait_for("no process of the cluster is left", lambda: not daemons_of(service))
        shutil.rmtree(folder)


def daemons_of(service: Service) -> list[str]:
    pids = [path.read_text().strip() for path in (service.var / "slurm").glob("*.pid")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_sample_jobs_run_on_slurm() -> None:
    with on_slurm(DEMO="1") as service, closing(service.browser()) as visitor:
        jobs = "/api/v1/jobs?state=running&state=succeeded"
        job = wait_for(
            "a sample job reports",
            lambda: next((j for j in visitor.get(jobs).json()["results"] if j["progress"]["step"]), None),
        )
        attempt = visitor.get(f"/api/v1/jobs/{job['id']}/attempts").json()["results"][0]
    assert attempt["engine"] == "slurm"
    assert attempt["devices"]


def slurm(service: Service, *words: str) -> str:
    env = {"PATH": SEARCH_PATH, "SLURM_CONF": str(service.var / "slurm" / "slurm.conf")}
    return subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout


def test_the_first_hour_of_an_administrator_and_of_a_person(browser: Browser) -> None:
    """Test the engine, submit by the form, read the log, drain a node in Slurm, cancel in Slurm, cancel."""
    with on_slurm(DEMO="0") as service:
        with signed_in(browser, service, as_admin=True) as page:
            page.goto(f"{service.url}/admin/cluster_app/engine/")
            page.click("tbody th a:has-text('slurm')")
            expect(page.locator("table", has_text="Used by others")).to_contain_text("4 x v100")
            page.click("input[value='Test this engine']")
            expect(page.locator("body")).to_contain_text("The scheduler tests the engine now")
            wait_for("the result of the test", lambda: page.reload() and page.locator("text=Last test: passed").count())

        with signed_in(browser, service) as page:
            page.goto(f"{service.url}/jobs/new")
            page.fill("[name=name]", "first")
            page.select_option("[name=team]", "vision")
            page.fill("[name=command]", "id -un; while true; do date; sleep 1; done")
            page.fill("[name=gpus]", "2")
            page.click("main form button[type=submit]")
            job = page.url
            expect(page.locator("main")).to_contain_text("processes run")
            page.goto(f"{job}?tab=logs")
            account = "motley-vision" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
            expect(page.locator("main")).to_contain_text(account)
            page.goto(f"{job}?tab=attempts")
            expect(page.locator(".nodes-of").first).to_contain_text("GPU 0,1")

            node = slurm(service, "squeue", "-h", "-o", "%N").strip()
            slurm(service, "scontrol", "update", f"nodename={node}", "state=drain", "reason=bad fan")
            page.goto(f"{service.url}/cluster")
            expect(page.locator("main")).to_contain_text("Slurm says drain: bad fan")
            slurm(service, "scancel", slurm(service, "squeue", "-h", "-o", "%A").strip())
            page.goto(f"{job}?tab=attempts")
            expect(page.locator("main")).to_contain_text("It was cancelled in Slurm, not by Motley")
            page.goto(job)
            expect(page.locator("main")).to_contain_text("processes run")

            page.click("text=Cancel …")
            page.click("main form button[type=submit]")
            page.goto(job)
            expect(page.locator("main")).to_contain_text("cancelled")
            wait_for("nothing is left in Slurm", lambda: slurm(service, "squeue", "-h") == "")
