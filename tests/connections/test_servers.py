"""Servers of the site: who makes a machine one, and what it then may; the agents are played over REST."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings
from rest_framework.test import APIClient

from cluster_app.models import Engine, Gpu, Node
from connections_app.agents.engine import AgentEngine
from connections_app.agents.join_agent import issue_join_token
from connections_app.errors import AgentRefused
from connections_app.models import RIGHTS, Agent, AgentAttempt, Rights, Standing
from engines.agent.codec import encode
from engines.agent.connection import OTHER_RELEASE
from engines.agent.messages import VERSION, Condition, Sync
from engines.protocol import GpuReport, Launch, NodeFault, NodeLaunch
from jobs_app.models import Attempt
from tests.played_agent import DESK, JOINING, Played, over
from tests.service_lab import Lab

SERVER = replace(JOINING, gangs=True)
DOCUMENT = Path(__file__).parents[2] / "docs" / "servers.md"
IN_WORDS = {
    "gangs": "gangs over several machines",
    "storage": "jobs with a `workdir`",
    "accounts": "the account of the job's team",
    "sessions": "sessions",
    "secrets": "secrets of jobs",
}


@pytest.fixture
def lab(lab: Lab, settings: Settings, tmp_path: Path) -> Lab:
    settings.MOTLEY_AGENT_ROOT = tmp_path / "agents"
    return lab


def server(lab: Lab, name: str) -> Played:
    joining = replace(SERVER, token=f"agent_{name}")
    one = Played(lab, name, joining=joining, site=True)
    assert one.joined == 200
    return one


def test_servers_are_nodes_of_one_engine_of_the_site(lab: Lab) -> None:
    for name in ("gpu1", "gpu2"):
        server(lab, name)
    engine = Engine.objects.get(name="servers")
    assert (engine.kind, engine.trusted, engine.agents.count()) == (Engine.Kind.SERVERS, True, 2)
    nodes = Node.objects.filter(engine=engine)
    assert [(node.name, node.capacity_type) for node in nodes] == [("gpu1", "stable"), ("gpu2", "stable")]


def test_a_volunteer_cannot_make_its_machine_one_of_the_site(lab: Lab) -> None:
    """Neither by what it says when it joins, nor with a new token for a name that has joined."""
    desk = Played(lab, trusted=False, joining=SERVER)
    said = encode(SERVER) | {"site": True, "trusted": True, "join_site": True}
    assert desk.post("join", said, desk.join_token) == 200
    agent = Agent.objects.get(name="desk")
    assert (agent.site, agent.trusted, str(agent.engine)) == (False, False, "desk")
    with pytest.raises(AgentRefused, match="desk is a volunteer's machine: take another name"):
        issue_join_token("desk", trusted=True, site=True, actor=None, now=lab.now)
    server(lab, "gpu1")
    with pytest.raises(CommandError, match="gpu1 is a server of the site: take another name"):
        call_command("jointoken", "gpu1", "--trusted")


def test_a_server_asks_whether_it_may_join_and_nothing_is_stored(lab: Lab) -> None:
    """A GPU that another node has, and a number of the account of jobs that differs, are named then."""
    gpus = [GpuReport(0, "GPU-1")]
    one = replace(SERVER, token="agent_gpu1", emulated=False, node=replace(DESK, gpus=gpus), job_uid=990)
    assert Played(lab, "gpu1", joining=one, site=True).joined == 200
    _, token = issue_join_token("gpu2", trusted=True, site=True, actor=None, now=lab.now)

    def asks(**facts: Any) -> Any:
        asking = replace(SERVER, token="agent_gpu2", trial=True, **facts)
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        return client.post("/api/v1/agent/join", encode(asking), format="json").json()

    said = asks(node=replace(DESK, gpus=gpus))["detail"]
    assert said == "The GPU GPU-1 belongs to the node gpu1: a machine is one node only. Leave one out."
    said = asks(job_uid=1001)["detail"]
    assert said.startswith("The account of jobs has the number 1001 here and 990 on gpu1: give it one (usermod -u 990)")
    assert [asks(job_uid=uid)["job_uid"] for uid in (None, 990)] == [990, 990]
    assert (Agent.objects.get(name="gpu2").joined_at, Node.objects.filter(name="gpu2").exists()) == (None, False)
    joining = replace(SERVER, token="agent_gpu2", job_uid=990)
    assert APIClient().post("/api/v1/agent/join", encode(joining), format="json").status_code == 401
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    assert client.post("/api/v1/agent/join", encode(joining), format="json").status_code == 200


def test_an_older_server_tells_the_number_of_its_account_with_its_condition(lab: Lab) -> None:
    """It joined before servers told it; a number that Linux has not is not stored."""
    one = Played(lab, "gpu1", joining=SERVER, site=True)
    Agent.objects.update(job_uid=None)
    condition = Condition("0.3.1", "", "3.11.2")
    for told, known in ((990, 990), (None, 990), (2**40, 990), (-1, 990), (991, 991)):
        one.sync(condition=replace(condition, job_uid=told))
        assert Agent.objects.get().job_uid == known


def test_a_rank_counts_as_fetched_when_its_own_server_has_fetched_it(lab: Lab) -> None:
    """Until then it can be withdrawn, and a gang that is not ready in time names the server that is to blame."""
    servers = [server(lab, name) for name in ("gpu1", "gpu2")]
    for one in servers:
        one.address = "127.0.0.1"
        one.sync()
    lab.submit("sleep 60", gpu_types=["k80"], gpus=4)
    first, second = servers
    lab.until(lambda: AgentAttempt.objects.exists() or (first.sync(), second.sync()) is None)
    assert first.sync().launches
    fetched = dict(AgentAttempt.objects.values_list("agent__name", "delivered_at"))
    assert (fetched["gpu1"] is not None, fetched["gpu2"]) == (True, None)


def test_no_machine_takes_the_name_of_the_engine_of_servers(lab: Lab) -> None:
    with pytest.raises(AgentRefused, match="An engine or a node has the name servers: choose another"):
        issue_join_token("servers", trusted=True, actor=None, now=lab.now)


def test_only_an_administrator_makes_a_token_for_a_server(lab: Lab) -> None:
    client = APIClient()
    body = {"name": "gpu1", "site": True}
    client.force_authenticate(lab.user("eve"))
    assert client.post("/api/v1/agents", body, format="json").status_code == 403
    client.force_authenticate(lab.user("root", staff=True))
    made = client.post("/api/v1/agents", body, format="json")
    assert (made.status_code, made.json()["site"], made.json()["trusted"]) == (201, True, True)


def test_the_agent_is_served_and_checks_first(client: Client, tmp_path: Path) -> None:
    """As the script does: where Python is too old it says so, else it runs the program of this release."""
    script = client.get(reverse("agent-install"), secure=True).content.decode()
    assert "curl --proto '=https' -fsS https://testserver/agent/motley-agent.pyz" in script
    program = tmp_path / "agent.pyz"
    program.write_bytes(client.get(reverse("agent-program")).content)
    words = ["--url", "http://127.0.0.1:1", "--check", "--json", "--gpus", "k80:4", "--state", str(tmp_path / "state")]
    words += ["--address", "127.0.0.1"]
    done = subprocess.run([sys.executable, "-S", program, *words], capture_output=True, text=True, check=False)
    of_root = {"account"}  # to make one takes root
    failed = [
        one["name"] for one in json.loads(done.stdout)["checks"] if not one["passed"] and one["name"] not in of_root
    ]
    assert (done.returncode, failed, done.stderr) == (1, ["service"], "Nothing was written.\n")
    (tmp_path / "python3").write_text("#!/bin/sh\ncase $1 in --version) echo Python 3.9.2;; *) exit 1;; esac\n")
    (tmp_path / "python3").chmod(0o755)
    old = subprocess.run(
        ["/bin/sh", "-s"], input=script, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (old.returncode, "Python 3.11 or newer is needed, and Python 3.9.2 is here" in old.stderr) == (1, True)


def test_no_program_is_fetched_over_http_from_another_machine(client: Client) -> None:
    """As behind a proxy that does not say that it was asked over https: root would run what came in clear."""
    script = client.get(reverse("agent-install")).content.decode()
    done = subprocess.run(["/bin/sh", "-s"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, "curl" in script) == (1, False)
    assert "FAIL service: it was asked at http://testserver, and what comes over http" in done.stderr
    local = client.get(reverse("agent-install"), headers={"host": "127.0.0.1:8000"}).content.decode()
    assert "curl -fsS http://127.0.0.1:8000/agent/motley-agent.pyz" in local


def test_an_agent_that_knows_no_gangs_is_no_server(lab: Lab) -> None:
    assert Played(lab, "gpu1", joining=JOINING, site=True).joined == 409


def test_an_agent_of_another_release_is_told_so(lab: Lab) -> None:
    """By a code: an agent of the site waits to be updated then, and stops no job."""
    one = server(lab, "gpu1")
    answer = one.client().post(
        "/api/v1/agent/sync", encode(Sync(VERSION + 1, "machine", replace(DESK, name="gpu1"))), format="json"
    )
    assert (answer.status_code, answer.json()["code"]) == (409, OTHER_RELEASE)


def test_a_machine_that_is_no_server_is_refused_a_gang(lab: Lab) -> None:
    one = server(lab, "gpu1")
    job = lab.submit("true", gpu_types=["k80"], workdir="/data")
    launch = lab.until(lambda: one.sync().launches)[0]
    assert launch.workdir == Path("/data")
    Agent.objects.update(site=False)
    with pytest.raises(NodeFault, match="no file system of the site"):
        AgentEngine("servers").launch(replace(launch, attempt=launch.attempt + 1, job=str(job.pk)))


def test_a_failed_gpu_hook_of_a_server_takes_its_own_gpu_out_of_service(lab: Lab) -> None:
    """And none of another server, of which it may not report."""
    one, _ = server(lab, "gpu1"), server(lab, "gpu2")
    for name in ("gpu1", "gpu2"):
        Gpu.objects.filter(node__name=name, index=0).update(uuid=f"GPU-{name}")
    job = lab.submit("true", gpu_types=["k80"])
    attempt = lab.until(lambda: one.sync().launches)[0].attempt
    one.sync(over(attempt, lab, faulty_gpus={"GPU-gpu1": "exit code 3", "GPU-gpu2": "exit code 3"}))
    lab.until(lambda: not Attempt.objects.live().filter(job=job, pk=attempt).exists())
    faulty = Gpu.objects.exclude(fault="").values_list("uuid", flat=True)
    assert [*faulty] == ["GPU-gpu1"]


def test_a_gang_has_addresses_at_which_its_servers_reach_each_other(lab: Lab) -> None:
    for name in ("gpu1", "gpu2"):
        server(lab, name)
    tasks = [NodeLaunch("gpu1", {}), NodeLaunch("gpu2", {})]
    launch = Launch(7, job=str(uuid4()), command="true", tasks=tasks)

    def launched(*addresses: str) -> AgentAttempt | None:
        for name, address in zip(("gpu1", "gpu2"), addresses, strict=True):
            Agent.objects.filter(name=name).update(node_report=encode(replace(DESK, name=name, address=address)))
        AgentEngine("servers").launch(launch)
        return AgentAttempt.objects.filter(attempt=7).first()

    with pytest.raises(NodeFault, match="find no address of gpu1: start its agent with --address"):
        launched("", "10.0.0.2")
    with pytest.raises(NodeFault, match=r"gpu1 has the address 127\.0\.1\.1, which no other server reaches"):
        launched("127.0.1.1", "10.0.0.2")
    with pytest.raises(NodeFault, match=r"gpu2 has the address 127\.0\.1\.1, which no other server reaches"):
        launched("10.0.0.1", "127.0.1.1")
    assert launched("127.0.1.1", "127.0.1.2") is not None


def test_the_document_shows_the_table_in_the_code() -> None:
    rows = [line.strip("| ").split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    shown = {cells[0].strip(): [cell.strip() == "yes" for cell in cells[1:4]] for cells in rows if len(cells) >= 4}
    for name in Rights._fields:
        assert shown[IN_WORDS[name]] == [getattr(RIGHTS[standing], name) for standing in Standing]
