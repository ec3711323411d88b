"""`make run SLURM=1`: sample jobs run on a private Slurm cluster, which outlives the service until it is stopped."""

import json
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
from playwright.sync_api import Browser, Page, expect

from engines.slurm.commands import SEARCH_PATH
from operations.private_slurm import missing_programs
from tests.deployment import ROOT, wait_for
from tests.private_servers import free_ports
from tests.service.browsing import signed_in
from tests.service.running_service import Service
from tests.service.test_command_with_jobs import motley

pytestmark = [
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(
        bool(missing_programs()) and os.environ.get("CI") != "true", reason="Slurm is not installed: see bootstrap.sh"
    ),
]


@contextmanager
def on_slurm(prepared: Path, **environment: str) -> Iterator[Service]:
    folder = Path(tempfile.mkdtemp(prefix="motley-slurm-"))
    folder.chmod(0o755)
    service = Service(folder, SLURM="1", MOTLEY_SLURM_PORT=str(free_ports(6)), **environment)
    shutil.copytree(prepared, service.var)
    service.start()
    try:
        yield service
    finally:
        service.stop()
        stopped = [sys.executable, str(ROOT / "manage.py"), "stopslurm"]
        subprocess.run(stopped, env=service.environment, cwd=ROOT, check=True)
        wait_for("no process of the cluster is left", lambda: not daemons_of(service))
        service.clear_away()
        shutil.rmtree(folder)


def daemons_of(service: Service) -> list[str]:
    pids = [path.read_text().strip() for path in (service.var / "slurm").glob("*.pid")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_sample_jobs_run_on_slurm(data_folder: Path) -> None:
    with on_slurm(data_folder, DEMO="1") as service, closing(service.browser()) as visitor:
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


@pytest.fixture(scope="module")
def hour(runtime: Path, data_folder: Path) -> Iterator[Service]:
    """The private cluster without sample jobs."""
    with on_slurm(data_folder, DEMO="0") as service:
        yield service


@pytest.fixture
def admin(browser: Browser, hour: Service) -> Iterator[Page]:
    with signed_in(browser, hour, as_admin=True) as page:
        yield page


@pytest.fixture
def person(browser: Browser, hour: Service) -> Iterator[Page]:
    with signed_in(browser, hour) as page:
        yield page
    for job in hour.client.jobs(state=["queued", "starting", "running", "stopping"]):
        hour.client.cancel(job["id"])
    wait_for("nothing is left in Slurm", lambda: slurm(hour, "squeue", "-h") == "")


def submit_by_form(page: Page, service: Service, name: str, command: str, *, gpus: int = 1) -> str:
    """The address of the new job's page."""
    page.goto(f"{service.url}/jobs/new")
    page.fill("[name=name]", name)
    page.select_option("[name=team]", "vision")
    page.fill("[name=command]", command)
    page.fill("[name=gpus]", str(gpus))
    page.click("main form button[type=submit]")
    expect(page.locator("h1")).to_contain_text(name)
    return page.url


def test_an_administrator_tests_an_engine_and_watches_the_result(admin: Page, hour: Service) -> None:
    admin.goto(f"{hour.url}/admin/cluster_app/engine/")
    admin.click("tbody th a:has-text('slurm')")
    expect(admin.locator("table", has_text="Used by others")).to_contain_text("4 x v100")
    admin.click("input[value='Test this engine']")
    expect(admin.locator("body")).to_contain_text("The scheduler tests the engine now")
    expect(admin.locator("#engine-test")).to_contain_text("Last test: passed")


def test_an_administrator_adds_an_engine_and_is_led_on(admin: Page, hour: Service) -> None:
    """The same cluster once more: its nodes belong to the first engine."""
    admin.goto(f"{hour.url}/admin/cluster_app/engine/add/")
    admin.fill("[name=name]", "again")
    admin.select_option("[name=kind]", "slurm")
    admin.fill("[name=options]", '{"partition": "urgent"}')
    admin.click("[name=_save]")
    expect(admin.locator("body")).to_contain_text("The option root is missing")
    options = {"root": str(hour.var / "again"), "slurm_conf": str(hour.var / "slurm" / "slurm.conf")}
    admin.fill("[name=options]", json.dumps(options | {"partition": "urgent"}))
    admin.click("[name=_save]")
    expect(admin.locator("body")).to_contain_text("Test it, then add its nodes")
    address = admin.url
    wait_for("the engine is heard", lambda: admin.goto(address) and admin.locator("text=4 x v100").count())
    admin.click("input[value='Add or update its nodes']")
    expect(admin.locator(".messagelist")).to_contain_text("a node of the engine slurm has this name")


def test_a_job_is_followed_from_the_form_to_its_cancellation(person: Page, hour: Service) -> None:
    job = submit_by_form(person, hour, "first", "id -un; while true; do date; sleep 1; done", gpus=2)
    expect(person.locator(".state").first).to_have_text("running")
    number = slurm(hour, "squeue", "-h", "-o", "%A").strip()
    expect(person.locator("main")).to_contain_text(f"as slurm job {number}")
    person.goto(f"{job}?tab=logs")
    account = "motley-vision" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    expect(person.locator("#log")).to_contain_text(account)
    person.goto(f"{job}?tab=attempts")
    expect(person.locator(".nodes-of").first).to_contain_text("GPU 0,1")
    person.goto(f"{job}?tab=why")
    expect(person.locator("main")).to_contain_text("The job is running; it is not waiting for anything.")

    slurm(hour, "scancel", number)
    person.goto(f"{job}?tab=attempts")
    expect(person.locator("main")).to_contain_text("It was cancelled in Slurm, not by Motley")
    person.goto(job)
    expect(person.locator(".state").first).to_have_text("running")

    person.click("text=Cancel …")
    person.click("main form button[type=submit]")
    expect(person.locator(".headline")).to_contain_text("Cancelled: by demo.")
    person.click("text=Clone")
    expect(person.locator("[name=name]")).to_have_value("first")
    person.click("main form button[type=submit]")
    expect(person.locator(".state").first).to_have_text("running")


def test_code_is_uploaded_by_the_command_and_run_again_by_a_clone(person: Page, hour: Service, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained here')\n")
    options = ("-J", "uploaded", "--team", "vision", "--gpus", "1", "--code", str(tmp_path))
    code, _, errors = motley(hour, "submit", *options, "-o", "name", "--wait", "--", "python3", "train.py")
    assert code == 0, errors
    person.goto(f"{hour.url}/jobs/{next(hour.client.jobs(q='uploaded'))['id']}")
    expect(person.locator("section.card", has_text="Archive")).to_contain_text("1")
    person.click("text=Clone")
    person.fill("[name=name]", "cloned")
    person.click("main form button[type=submit]")
    expect(person.locator("h1")).to_contain_text("cloned")
    expect(person.locator(".state").first).to_contain_text("succeeded")
    person.goto(f"{person.url}?tab=logs")
    expect(person.locator("#log")).to_contain_text("trained here")


def test_a_job_waits_while_the_partition_is_down_and_pages_say_why(person: Page, hour: Service) -> None:
    slurm(hour, "scontrol", "update", "partitionname=gpu", "state=down")
    try:
        submit_by_form(person, hour, "stuck", "sleep 3600")
        expect(person.locator(".headline")).to_contain_text("No node in service")
        job = person.url
        person.goto(f"{hour.url}/cluster")
        expect(person.locator("article.node").first).to_contain_text("Slurm says that the partition gpu is down")
        person.goto(job)
    finally:
        slurm(hour, "scontrol", "update", "partitionname=gpu", "state=up")
    expect(person.locator(".state").first).to_have_text("running")


def test_nodes_are_taken_out_of_service_on_either_side(admin: Page, hour: Service) -> None:
    node = admin.locator("article.node", has_text="emu-t4-2")
    admin.goto(f"{hour.url}/cluster")
    slurm(hour, "scontrol", "update", "nodename=emu-t4-2", "state=drain", "reason=bad fan")
    expect(node).to_contain_text("Slurm says drain: bad fan")
    expect(node.locator(".gpu").first).to_contain_text("out of service")
    slurm(hour, "scontrol", "update", "nodename=emu-t4-2", "state=resume")
    expect(node).to_contain_text("ready")

    node.locator("summary").click()
    node.locator("[name=reason]").fill("new cables")
    node.get_by_role("button", name="Drain").click()
    expect(node).to_contain_text("new cables")
    shown = ("scontrol", "show", "node", "emu-t4-2")
    wait_for("Slurm drains it, too", lambda: "new cables" in slurm(hour, *shown))
    node.get_by_role("button", name="Resume").click()
    wait_for("Slurm has it back", lambda: "DRAIN" not in slurm(hour, *shown))

    reservation = ("user=nobody", "starttime=now", "duration=60", "nodes=emu-t4-2", "flags=ignore_jobs")
    slurm(hour, "scontrol", "create", "reservation", "reservationname=course", *reservation)
    expect(node).to_contain_text("it is reserved in Slurm until")
    slurm(hour, "scontrol", "delete", "reservationname=course")
    expect(node).to_contain_text("ready")
