"""A training over the whole service: uploaded, placed, moved to another GPU type, and followed over REST."""

from pathlib import Path

import pytest
from rest_framework.test import APIClient

from cluster_app.models import Node
from cluster_app.services import drain
from connections_app import engine_registry
from jobs_app.models import Job
from motley_client.code import packed
from operations.private_slurm import PrivateCluster
from tests.rest_callers import caller
from tests.service_lab import Lab
from tests.training.conftest import torch_python  # noqa: F401 - a fixture
from tests.training.training_lab import EXAMPLES, NEVER, ONE_THREAD, PATIENCE_S, assert_same, losses_in, one_process
from tests.training.training_lab import torchrun as torchrun_of

pytestmark = pytest.mark.xdist_group("slurm")
SHAPES = {"a100": ["n1", "n2"], "v100": ["n3"]}
STEPS = 20
EACH_STEP = ("--report-every", "1")


@pytest.fixture
def ada(lab: Lab, plain_static: None, settings) -> APIClient:
    """Her jobs run as this process does: PyTorch may lie where no other account may go."""
    settings.MOTLEY_JOB_USER = ""
    engine_registry.engine_over.cache_clear()
    return caller(lab.user())


def upload(api: APIClient, folder: Path) -> str:
    with packed(folder) as code:
        address = f"/api/v1/teams/vision/code/{code.digest}"
        answer = api.put(address, data=b"".join(code.chunks()), content_type="application/gzip")
    assert answer.status_code == 201, answer.content
    return code.digest


class Training:
    """A job, as a script sees it over REST."""

    def __init__(self, api: APIClient, lab: Lab, spec: dict[str, object]) -> None:
        answer = api.post("/api/v1/jobs", spec, format="json")
        assert answer.status_code == 201, answer.content
        self.api, self.lab, self.address = api, lab, f"/api/v1/jobs/{answer.json()['id']}"

    def until_step(self, attempt: int, step: int) -> None:
        def reached() -> bool:
            found = self.attempt(attempt)
            assert found is None or found["state"] != "ended", (found, self.output(attempt, "stderr")[-3000:])
            return found is not None and (found["step"] or 0) >= step

        self.lab.until(reached, seconds=PATIENCE_S)

    def attempt(self, number: int):
        found = self.api.get(f"{self.address}/attempts").json()["results"]
        return next((one for one in found if one["number"] == number), None)

    def output(self, attempt: int, stream: str = "stdout") -> str:
        query = {"attempt": str(attempt), "stream": stream}
        return self.api.get(f"{self.address}/logs", query).content.decode()

    def until_state(self, state: str) -> None:
        self.lab.until(lambda: self.api.get(self.address).json()["state"] == state, seconds=PATIENCE_S)


def occupy(site: PrivateCluster, node: str, gpu_type: str, gpus: int) -> str:
    """The number of a job of somebody else."""
    options = ("-w", node, f"--gres=gpu:{gpu_type}:{gpus}", "--wrap", "sleep 3600")
    return site.run("sbatch", "--parsable", "-o", "/dev/null", *options).strip()


def test_a_training_moves_to_another_gpu_type_and_loses_no_step(
    lab: Lab,
    ada: APIClient,
    site: PrivateCluster,
    torch_python: Path,  # noqa: F811 - pytest's way
    tmp_path: Path,
) -> None:
    launcher = torchrun_of(torch_python)
    for node in SHAPES["a100"]:
        occupy(site, node, "a100", 2)
    elsewhere = occupy(site, "n3", "v100", 4)
    lab.until(lambda: site.run("squeue", "-h", "-t", "PENDING") == "")
    training = Training(
        ada,
        lab,
        {
            "name": "ddp",
            "command": [*launcher, "ddp.py", "--steps", str(NEVER), *EACH_STEP],
            "code": upload(ada, EXAMPLES),
            "env": ONE_THREAD,
            "gpus": 4,
            "gpu_types": ["a100", "v100"],
            "checkpoint": {"grace_seconds": 60, "restore_seconds": 0},
        },
    )
    training.until_step(1, STEPS)
    site.run("scancel", elsewhere)
    for name in SHAPES["a100"]:
        drain(Node.objects.get(name=name), reason="a bad fan", actor=None)
    lab.until(lambda: training.attempt(2), seconds=PATIENCE_S)
    first = losses_in(training.output(1))
    training.until_step(2, first[-1][0] + STEPS)
    assert ada.post(f"{training.address}/cancel").status_code == 202
    training.until_state(Job.State.CANCELLED)

    ends = [(found["step"], found["loss"]) for found in (training.attempt(1), training.attempt(2))]
    last = [losses_in(training.output(number))[-1] for number in (1, 2)]
    assert ends == [(step, pytest.approx(loss)) for step, loss in last]
    assert ada.get(training.address).json()["progress"]["step"] == last[1][0]
    shapes = [(one["gpu_type"], one["nodes"], one["gpu_count"]) for one in (training.attempt(1), training.attempt(2))]
    assert shapes == [("a100", SHAPES["a100"], 4), ("v100", SHAPES["v100"], 4)]
    losses = first + losses_in(training.output(2))
    steps = str(losses[-1][0])
    assert_same(losses, one_process(torch_python, "ddp.py", "--steps", steps, *EACH_STEP, folder=tmp_path))
