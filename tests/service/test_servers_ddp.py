"""PyTorch DDP by gloo over three of four servers: moved, cut off, and ended as if it had never stopped."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import PATIENCE_S, wait_for
from tests.motley_command import Motley
from tests.server_cluster import Cluster, a_cluster, number_of
from tests.service.running_service import Service, a_service
from tests.training.conftest import torch_python  # noqa: F401 - a fixture
from tests.training.training_lab import EXAMPLES, ONE_THREAD, assert_same, losses_in, one_process

pytestmark = pytest.mark.xdist_group("servers")
STEPS = 3000
EACH_STEP = ("--steps", str(STEPS), "--report-every", "1")


@pytest.fixture
def service(runtime: Path, data_folder: Path) -> Iterator[Service]:
    with a_service(prepared=data_folder, MOTLEY_AGENT_LEASE_S="20") as running:
        running.declare(v100=1)
        yield running


@pytest.fixture
def cluster(service: Service, runtime: Path, job_user: str) -> Iterator[Cluster]:
    """Four servers with three GPUs each."""
    with a_cluster(service, runtime, job_user, servers=4, gpus=3) as cluster:
        yield cluster


def test_a_training_that_loses_a_server_ends_right_from_its_checkpoint(
    cluster: Cluster,
    torch_python: Path,  # noqa: F811 - pytest's way
    tmp_path: Path,
) -> None:
    """Eight ranks on three of four servers: it is queued again and goes on, then one of its servers is cut off."""
    client = cluster.service.client
    command = [str(torch_python), "-m", "torch.distributed.run", str(EXAMPLES / "ddp.py"), *EACH_STEP]
    job = cluster.service.submit(command, gpu_types=["k80"], gpus=8, uneven_gang=True, env=dict(ONE_THREAD))

    def losses(attempt: int) -> list[tuple[int, float]]:
        assert client.job(job)["state"] != "failed", client.explain(job)["message"]
        try:
            chunk = client.logs(job, attempt=attempt, offset=0, limit=1_000_000)
        except Exception:  # there is no such attempt yet
            return []
        return losses_in(chunk.data.decode())

    def nodes(attempt: int) -> list[str]:
        return next(one["nodes"] for one in client.attempts(job) if one["number"] == attempt)

    wait_for("it trains", lambda: len(losses(1)) > 20)
    client.requeue(job)
    wait_for("it goes on", lambda: len(losses(2)) > 20)
    a_shell_opens_in_the_last_rank(cluster, job)
    gone = nodes(2)[-1]
    cluster.network.cut(number_of(gone))
    cluster.service.wait_for_state(job, "succeeded")
    assert (len(nodes(1)), gone in nodes(3)) == (3, False)
    saved = losses(1)[-1][0]
    assert [losses(attempt)[0][0] for attempt in (2, 3)] == [saved + 1, saved + 1]
    reference = one_process(torch_python, "ddp.py", *EACH_STEP, folder=tmp_path)
    assert_same([*losses(1), *losses(3)], reference)


def a_shell_opens_in_the_last_rank(cluster: Cluster, job: str) -> None:
    """`motley exec`, on the third server."""
    there = {"MOTLEY_URL": cluster.service.url, "MOTLEY_TOKEN": cluster.service.token, "HOME": "/nonexistent"}
    shell = Motley(there).start("exec", "--rank", "2", job, stdin=subprocess.PIPE)
    out, errors = shell.communicate(b"echo rank $MOTLEY_NODE_RANK of $MOTLEY_NUM_NODES; exit 7\n", timeout=PATIENCE_S)
    assert (shell.returncode, out) == (7, b"rank 2 of 3\n"), errors
