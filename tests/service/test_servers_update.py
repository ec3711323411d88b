"""Rolling update: the agents of three servers change to the program of the service while a gang trains on them."""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.agent.program import use
from tests.agent_process import AgentProcess
from tests.deployment import wait_for
from tests.server_cluster import Cluster, a_cluster
from tests.service.running_service import a_service
from tests.service.test_servers import GANG_PROGRAM

pytestmark = pytest.mark.xdist_group("servers")
OLD = "0" * 12
CHANGES = "the program changes from"
UP_TO_DATE = """
from connections_app.agents.program import program_digest
from connections_app.models import Agent
answer = Agent.objects.filter(program=program_digest()).count()
"""


@pytest.fixture
def cluster(runtime: Path, data_folder: Path, job_user: str) -> Iterator[Cluster]:
    with a_service(prepared=data_folder, MOTLEY_AGENT_LEASE_S="60") as service:
        service.declare(v100=1)
        with a_cluster(service, runtime, job_user, servers=3) as cluster:
            yield cluster


def make_old(agent: AgentProcess) -> None:
    """Have its program be another than that of the service: the folder's name is what it is known by.

    Supervisors go on with the folder that they were started from.
    """
    agent.kill()
    folder = agent.program.resolve()
    use(shutil.copytree(folder, folder.with_name(OLD)))
    agent.start()


@pytest.fixture
def ledger() -> Iterator[Path]:
    folder = Path(f"/tmp/motley-ledger-{secrets.token_hex(4)}")
    folder.mkdir()
    folder.chmod(0o777)  # of the account of jobs
    yield folder
    shutil.rmtree(folder)


def test_agents_change_to_the_program_of_the_service_while_a_gang_trains(cluster: Cluster, ledger: Path) -> None:
    service, client = cluster.service, cluster.service.client
    given = {"env": {"LEDGER": str(ledger)}, "gpu_types": ["k80"], "gpus": 6}
    job = service.submit(["python", "-c", GANG_PROGRAM.read_text()], **given)

    def steps() -> int:
        return client.logs(job, attempt=1, offset=0, limit=1_000_000).data.count(b"step")

    service.wait_for_state(job, "running")
    wait_for("it trains", lambda: steps() > 5)
    for agent in cluster.servers:
        make_old(agent)
    wait_for("all change", lambda: all(CHANGES in agent.log() for agent in cluster.servers))
    wait_for("all have changed", lambda: service.python(UP_TO_DATE) == 3)
    before = steps()
    wait_for("it goes on", lambda: steps() > before + 20)
    assert len(list(client.attempts(job))) == 1
    assert {agent.program.resolve().name for agent in cluster.servers} != {OLD}
    assert [agent.log().count(CHANGES) for agent in cluster.servers] == [1, 1, 1]
    client.cancel(job)
    service.wait_for_state(job, "cancelled")
