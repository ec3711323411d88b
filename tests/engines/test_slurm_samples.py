"""GPUs of Slurm's nodes, sampled beside a rank by the real programs; the driver library answers as NVIDIA's does."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engines.attempt_files import write_json
from engines.gpu_readings import places_of
from engines.local.host_setup import SYSTEM_PYTHON
from engines.protocol import GpuReading, Throttle, WatchedGpu
from engines.slurm.engine import SlurmEngine
from engines.slurm.files import SlurmFiles, SlurmLaunchFile
from engines.slurm.options import SlurmOptions
from engines.slurm.runtime import install_runtime
from engines.slurm.samples import RankSample, Samples, write_sample
from engines.supervision.engine_root import EngineRoot
from engines.supervision.processes import MARK, marked
from tests.engines.engine_lab import running, until
from tests.nvml_driver import compiled_driver

ATTEMPT = 7
LOAD = GpuReading(0, 90.0, 1000.0, 300.0, 60.0, 0, Throttle.SW_THERMAL)


@pytest.fixture
def root(tmp_path: Path) -> EngineRoot:
    """With the attempt 7, whose ranks are on n1 and n2."""
    root = EngineRoot(tmp_path / "root", job_user=None, create_accounts=False, search_path="")
    root.make()
    folder = root.attempt(ATTEMPT)
    folder.path.mkdir()
    site = SlurmLaunchFile(
        nodes=["N1", "N2"],
        gpus=[2, 2],
        cpus=[1, 1],
        components=[0, 0],
        kill_wait_s=5,
        silent_after_s=60,
        python=str(SYSTEM_PYTHON),
    )
    write_json(SlurmFiles(folder).launch, site)
    return root


@pytest.fixture
def files(root: EngineRoot) -> SlurmFiles:
    return SlurmFiles(root.attempt(ATTEMPT))


def gpus_of(node: str, *, emulated: bool = False) -> list[WatchedGpu]:
    """Eight, numbered from 10 on n1 and from 20 on n2; the attempt has claims on the first two."""
    first = {"n1": 10, "n2": 20}[node]
    return [
        WatchedGpu(first + n, node, n, emulated=emulated, attempt=ATTEMPT if n < 2 else None, memory_mib=1, power_w=100)
        for n in range(8)
    ]


def told(readings: Sequence[GpuReading]) -> dict[int, tuple[int | None, float | None]]:
    return {one.gpu: (one.attempt, one.utilization) for one in readings}


def test_a_sample_is_of_the_gpus_that_slurm_gave_whatever_seats_were_claimed(
    root: EngineRoot, files: SlurmFiles
) -> None:
    write_sample(files.samples(0), RankSample(1, {4: LOAD, 6: LOAD}))
    write_sample(files.samples(1), RankSample(1, {0: LOAD}))
    samples = Samples(root)
    found = samples.read([*gpus_of("n1"), *gpus_of("n2")])
    assert told(found) == dict.fromkeys((14, 16, 20), (ATTEMPT, 90.0))
    assert found[0].throttle is Throttle.SW_THERMAL


def test_a_sample_is_read_once(root: EngineRoot, files: SlurmFiles) -> None:
    samples = Samples(root)
    for number in (1, 2):
        write_sample(files.samples(0), RankSample(number, {0: LOAD}))
        assert told(samples.read(gpus_of("n1"))) == {10: (ATTEMPT, 90.0)}
        assert samples.read(gpus_of("n1")) == []


def test_only_ranks_on_the_nodes_that_are_asked_for_are_read(root: EngineRoot, files: SlurmFiles) -> None:
    for rank in (0, 1):
        write_sample(files.samples(rank), RankSample(1, {0: LOAD}))
    samples = Samples(root)
    assert told(samples.read(gpus_of("n2"))) == {20: (ATTEMPT, 90.0)}
    assert told(samples.read(gpus_of("n1"))) == {10: (ATTEMPT, 90.0)}


@pytest.mark.parametrize("text", ["", "{", "null", '{"number": 1}', '{"number": "1", "gpus": {}}'])
def test_a_sample_that_cannot_be_understood_stops_no_other(root: EngineRoot, files: SlurmFiles, text: str) -> None:
    files.samples(0).write_text(text)
    write_sample(files.samples(1), RankSample(1, {0: LOAD}))
    assert told(Samples(root).read([*gpus_of("n1"), *gpus_of("n2")])) == {20: (ATTEMPT, 90.0)}


def test_without_a_sample_there_is_no_reading(root: EngineRoot) -> None:
    assert Samples(root).read([*gpus_of("n1"), *gpus_of("n2")]) == []


def test_emulated_gpus_of_slurm_have_made_up_figures_and_no_sample(root: EngineRoot, files: SlurmFiles) -> None:
    write_sample(files.samples(0), RankSample(1, {0: replace(LOAD, utilization=12.0)}))
    emulated = [replace(gpu, busy=gpu.attempt is not None) for gpu in gpus_of("n1", emulated=True)]
    found = {one.gpu: one for one in SlurmEngine(SlurmOptions(root.path)).read_gpus(emulated)}
    assert [one.attempt for one in found.values()] == [None] * 8  # claims say whose they are
    assert all(found[number].utilization > 80 for number in (10, 11))
    assert all(found[number].utilization == 0 for number in range(12, 18))


@pytest.mark.parametrize(
    ("given", "minors", "places"),
    [
        ([1, 2], [0, 1, 2, 3], {1: 1, 2: 2}),  # all are visible
        ([1, 2], [1, 2], {1: 0, 2: 1}),  # only ours, under the numbers of their files
        ([2, 3], [5, 6], {2: 0, 3: 1}),  # Slurm has other numbers
        ([2, 3], [5, 6, 7], {}),  # nobody can say which
        ([0, 1], [None, 1], {0: 0, 1: 1}),
        ([0, 1], [1], {}),  # one is lost
        ([], [], {}),
    ],
)
def test_the_numbers_of_slurm_are_those_of_the_device_files_or_tell_the_order(
    given: list[int], minors: list[int | None], places: dict[int, int]
) -> None:
    assert places_of(given, minors) == places


@pytest.fixture
def task(root: EngineRoot, files: SlurmFiles, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The task of a step on a node with three GPUs, of which Slurm gave two: it waits for its command."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("pynvml")
    driver = tmp_path / "driver"
    driver.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(compiled_driver(driver)),
        "GPU_COUNT": "3",
        "SLURM_STEP_GPUS": "4,6",  # as their device files
        "SLURMD_NODENAME": "N1",
        MARK: "mark-7",
    }
    argv = [SYSTEM_PYTHON, "-ES", "-m", "engines.slurm.node_start", str(root.attempt(ATTEMPT).path), "0"]
    with subprocess.Popen(argv, cwd=install_runtime(tmp_path), env=env, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_the_gpus_of_a_rank_are_sampled_on_its_node_until_it_ends(
    root: EngineRoot, files: SlurmFiles, task: "subprocess.Popen[bytes]"
) -> None:
    until(files.samples(0).exists)
    found = Samples(root).read(gpus_of("n1"))
    assert told(found) == {14: (ATTEMPT, 37.0), 16: (ATTEMPT, 37.0)}
    assert (found[0].power_w, found[0].temperature_c, found[0].processes) == (250.5, 61, None)
    (sampler,) = running("engines.slurm.sampler", str(root.attempt(ATTEMPT).path))
    assert sampler not in marked("mark-7")
    first = json.loads(files.samples(0).read_text())["number"]
    until(lambda: json.loads(files.samples(0).read_text())["number"] > first)
    assert task.stdin is not None
    task.stdin.close()  # its supervisor died
    task.wait()
    until(lambda: not running("engines.slurm.sampler", str(root.attempt(ATTEMPT).path)))
