"""Servers of the site: real agents in networks of their own, and gangs over them, beside a live service."""

import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from engines.supervision.processes import kill
from motley_client.errors import MotleyError, NotFound
from tests.agent_process import an_agent
from tests.deployment import PATIENCE_S, wait_for
from tests.motley_command import Motley
from tests.server_cluster import Cluster, a_cluster, number_of
from tests.service.running_service import Service, a_service

pytestmark = pytest.mark.xdist_group("servers")
GANG_PROGRAM = Path(__file__).parents[1] / "gang_program.py"


class Training:
    """Training of a gang: its first attempt goes on until it is disturbed, a later one does ten steps more."""

    def __init__(self, cluster: Cluster, ledger: Path, *, servers: int, **spec: Any) -> None:
        self._client, self._ledger, self._service = cluster.service.client, ledger, cluster.service
        env = {"LEDGER": str(ledger)}
        given = {"gpu_types": ["k80"], "gpus": 2 * servers, "env": env, "checkpoint": {"grace_seconds": 2}, **spec}
        self.servers = servers
        self.job = cluster.service.submit(["python", "-c", GANG_PROGRAM.read_text()], **given)

    def attempts(self) -> list[Any]:
        return sorted(self._client.attempts(self.job), key=lambda one: one["number"])

    def nodes(self, attempt: int = 1) -> list[str]:
        nodes: list[str] = self.attempts()[attempt - 1]["nodes"]
        return nodes

    def log(self, rank: int, attempt: int = 1) -> str:
        with suppress(MotleyError):  # there is no such attempt yet
            return self._client.logs(self.job, attempt=attempt, rank=rank, offset=0, limit=1_000_000).data.decode()
        return ""

    def wait_until_it_trains(self) -> None:
        """All ranks of its first attempt have met five times."""
        for rank in range(self.servers):
            wait_for(f"rank {rank} trains", lambda rank=rank: self.log(rank).count("step") >= 5)  # type: ignore[misc]

    def steps(self, attempt: int, rank: int = 0) -> list[int]:
        return [int(line.split()[1]) for line in self.log(rank, attempt).splitlines()]

    def ends_right(self) -> None:
        """It succeeds, goes on where it had saved, and no rank has seen one of another attempt.

        On a busy machine a gang may be withdrawn because its ranks were not ready together: it never ran.
        """
        self._service.wait_for_state(self.job, "succeeded")
        ran = [one["number"] for one in self.attempts() if one["started_at"]]
        assert len(ran) == 2, self.attempts()
        assert {one["state"] for one in self.attempts()} == {"ended"}
        assert self.steps(ran[1])[0] > 1
        assert not [line for line in self.notes() if line.startswith("OVERLAP")]
        assert len([line for line in self.notes() if line.startswith(f"ends attempt {ran[1]}")]) == self.servers

    def notes(self) -> list[str]:
        path = self._ledger / "notes"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def service(runtime: Path, data_folder: Path) -> Iterator[Service]:
    """A service whose agents have leases of 15 s: long enough to see a job that starts before a lease has expired."""
    with a_service(prepared=data_folder, MOTLEY_AGENT_LEASE_S="15", MOTLEY_GANG_READY_S="5") as running:
        running.declare(v100=1)
        yield running


@pytest.fixture(scope="module")
def cluster(service: Service, runtime: Path, job_user: str) -> Iterator[Cluster]:
    """Three servers with two GPUs each."""
    with a_cluster(service, runtime, job_user, servers=3) as cluster:
        yield cluster


def in_service(node: Any) -> bool:
    return node["engine"] != "servers" or (node["health"], node["engine_message"]) == ("healthy", "")


@pytest.fixture
def ledger(service: Service, cluster: Cluster) -> Iterator[Path]:
    """Folder of a test, which begins with all servers in service, whatever the one before has done to them."""
    service.sql("update connections_app_agent set fault = '', fault_at = null")
    wait_for("all servers are in service", lambda: all(map(in_service, service.client.nodes())))
    folder = Path(f"/tmp/motley-ledger-{secrets.token_hex(4)}")
    folder.mkdir()
    folder.chmod(0o777)  # of the account of jobs
    yield folder
    for job in list(service.client.jobs(state=["queued", "starting", "running"])):
        service.client.cancel(job["id"])
        service.wait_for_state(job["id"], "cancelled")
    shutil.rmtree(folder)


def test_a_gang_trains_over_three_servers_and_a_killed_supervisor_ends_it_once(cluster: Cluster, ledger: Path) -> None:
    training = Training(cluster, ledger, servers=3)
    training.wait_until_it_trains()
    assert sorted(training.nodes()) == ["gpu1", "gpu2", "gpu3"]
    first = cluster.network.address(number_of(training.nodes()[0]))
    assert sorted(training.notes()) == [f"begins at {first} attempt 1 rank {rank}" for rank in range(3)]
    kill(cluster.supervisors(training.nodes()[2]))
    training.ends_right()
    end = training.attempts()[0]
    assert end["message"].startswith(f"Rank 2 on {training.nodes()[2]} ended the gang: The supervisor of this attempt")


def test_a_session_opens_in_a_rank_on_another_server(cluster: Cluster, ledger: Path) -> None:
    training = Training(cluster, ledger, servers=2)
    training.wait_until_it_trains()
    asks = "echo rank $MOTLEY_NODE_RANK of $MOTLEY_NUM_NODES; wc -c; exit 3"
    command = Motley({"MOTLEY_URL": cluster.service.url, "MOTLEY_TOKEN": cluster.service.token, "HOME": "/nonexistent"})
    session = command.start("exec", "--rank", "1", training.job, "--", "sh", "-c", asks, stdin=subprocess.PIPE)
    out, errors = session.communicate(bytes(300_000), timeout=PATIENCE_S)
    assert (session.returncode, out) == (3, b"rank 1 of 2\n300000\n"), errors
    a_slow_reader_gets_all(command, training.job, ended=ledger / "said_all")
    files_are_read_while_it_runs(cluster, training)


def a_slow_reader_gets_all(command: Motley, job: str, ended: Path) -> None:
    """The command has ended, and its agent's connection with it, before anything is read: more than pipes hold."""
    words = f"head -c {12 << 20} /dev/zero; touch {ended}"
    session = command.start("exec", "--rank", "1", job, "--", "sh", "-c", words)
    wait_for("it has ended", lambda: ended.exists() or session.poll() is not None)
    out, errors = session.communicate(timeout=PATIENCE_S)
    assert (session.returncode, len(out)) == (0, 12 << 20), errors


def files_are_read_while_it_runs(cluster: Cluster, training: Training) -> None:
    """Those of rank 0, whole and in part, by the connections that its agent opens."""
    client = cluster.service.client
    assert {one["name"] for one in client.files(training.job)["files"]} >= {"work", "checkpoints"}
    saved = next(one for one in client.files(training.job, "checkpoints")["files"] if one["name"] == "step")
    assert (saved["kind"], saved["size"] > 0) == ("file", True)
    whole = b"".join(client.file(training.job, "checkpoints/step"))
    assert whole.decode().isdigit()
    address = f"{cluster.service.url}/api/v1/jobs/{training.job}/files/content"
    asked = {"Authorization": f"Bearer {cluster.service.token}", "Range": "bytes=0-0"}
    part = httpx.get(address, params={"path": "checkpoints/step"}, headers=asked)
    assert (part.status_code, len(part.content)) == (206, 1)
    with pytest.raises(NotFound):
        client.files(training.job, "checkpoints/none")


@pytest.mark.thorough
def test_the_servers_are_tested_together_with_the_storage_that_they_share(cluster: Cluster, ledger: Path) -> None:
    """As jobs: each writes a file and looks for those of the others and of the service."""
    (ledger / "data").mkdir(mode=0o777)
    (ledger / "data").chmod(0o777)
    said = cluster.test(data=ledger / "data")
    assert said["passed"], said
    assert said["log"].count("reaches all other servers\n") == 3
    assert said["log"].count("storage data is shared by all servers\n") == 3
    assert said["log"].count("storage data is seen by the service\n") == 3
    assert list((ledger / "data").iterdir()) == []


def test_nothing_is_written_on_a_machine_that_does_not_do(cluster: Cluster, service: Service, job_user: str) -> None:
    """A clock, an address, a driver, a service that does not answer: each is named with its remedy."""
    with an_agent(service, job_user) as agent:
        agent.url = service.url
        done = agent.install("gpu9", "--address", "192.0.2.7")
        assert done.returncode == 1
        assert "FAIL gpus: No driver answers: install NVIDIA's" in done.stdout
        assert "FAIL address: No interface has the address 192.0.2.7: name one of" in done.stdout
        assert "ok   clock: The clock is " in done.stdout
        assert "Nothing was written." in done.stderr
        assert not agent.folder.exists()
        assert not agent.program.parent.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_a_gang_outlives_the_agent_of_one_server(cluster: Cluster, ledger: Path, number: int) -> None:
    """As when it crashes, or is restarted by systemd."""
    training = Training(cluster, ledger, servers=2)
    training.wait_until_it_trains()
    agent = cluster.agent_of(training.nodes()[1])
    agent.send(number)
    agent.exit_status()
    agent.start()
    before = len(training.steps(1, rank=1))
    wait_for("its log goes on", lambda: len(training.steps(1, rank=1)) > before + 5)
    assert len(training.attempts()) == 1


def test_a_server_that_is_cut_off_costs_one_attempt(cluster: Cluster, ledger: Path) -> None:
    """The others are stopped before its lease ends; the job goes on elsewhere once it has, and not before."""
    training = Training(cluster, ledger, servers=2)
    training.wait_until_it_trains()
    gone = training.nodes()[1]
    cluster.network.cut(number_of(gone))
    try:
        training.ends_right()
        assert gone not in training.nodes(2)
        said = training.attempts()[0]["message"]
        assert said.startswith(f"Rank 1 on {gone} ended the gang: {gone} ")  # "has not been heard", or "was not heard"
    finally:
        cluster.network.mend(number_of(gone))


def test_a_server_that_is_not_ready_withdraws_the_gang_and_says_why(cluster: Cluster, ledger: Path) -> None:
    """No command of it has started, no retry is counted, and the job starts on other servers."""
    slow = 'if [ "$MOTLEY_ATTEMPT" = 1 ] && [ "$MOTLEY_NODE_RANK" = 1 ]; then sleep 1000; fi'
    training = Training(cluster, ledger, servers=2, setup=slow)
    training_job = wait_for("it is queued again", lambda: (found := training.attempts()) and found[0]["ended_at"])
    assert training_job
    late = training.nodes()[1]
    assert training.notes() == [] or all("attempt 2" in line for line in training.notes())
    said = f"{late} was still preparing its rank 5 s after the first was ready"
    assert said in training.attempts()[0]["message"]
    wait_for("it trains on the others", lambda: len(training.attempts()) > 1 and training.log(0, 2).count("step") >= 5)
    assert late not in training.nodes(2)
    node = next(one for one in cluster.service.client.nodes() if one["name"] == late)
    assert said in str(node)
