"""What was recorded of applications, read and interpolated as the original does."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from simulation.workloads.applications import ApplicationProfiles
from simulation.workloads.rate_sources import InvalidTable, UnknownWorkload
from tests.simulation.sia_reference import profiles, recorded


def values(name: str) -> list[dict[str, Any]]:
    return list(recorded("golden")[name])


def test_step_times_between_those_recorded_are_the_originals():
    for value in values("get_throughput"):
        times = profiles().application(value["app"]).times(value["gpu"])
        found = times.at(tuple(value["placement"]), value["local_bsz"])
        assert found == pytest.approx((value["step_time"], value["sync_time"]), rel=1e-12)


def test_the_largest_batch_of_a_gpu_is_the_originals():
    for value in values("max_local_bsz"):
        times = profiles().application(value["app"]).times(value["gpu"])
        assert times.most_per_gpu(tuple(value["placement"])) == value["max_local_bsz"]


def test_progress_after_an_epoch_is_the_originals():
    for value in values("progress"):
        progress = profiles().application(value["app"]).epochs.progress(value["epoch"])
        assert progress == pytest.approx(value["progress"], rel=1e-12)


def test_completion_and_noise_are_the_originals():
    for value in values("completion"):
        application = profiles().application(value["app"])
        assert application.course.epochs - 1 == value["completion_epoch"]
        assert application.steps_of(value["batch_size"]) == pytest.approx(value["iterations_at_completion"], rel=1e-12)
        noise = application.epochs.noise(value["batch_size"], 0)
        assert noise == pytest.approx(tuple(value["grad_epoch0"]), rel=1e-12)


def test_of_batches_many_are_told_as_one_is():
    times, batches = profiles().application("cifar10").times("rtx"), [31, 32, 100, 1024, 1025]
    step_s, averaging_s = times.of_batches((2,), np.array(batches))
    assert_array_equal([step_s, averaging_s], np.transpose([times.at((2,), batch) for batch in batches]))


def test_what_was_not_recorded_is_named(tmp_path):
    with pytest.raises(UnknownWorkload, match="'resnet'"):
        profiles().application("resnet")
    with pytest.raises(InvalidTable, match=r"nothing of cifar10 was recorded on h100; there is .*aws"):
        profiles().application("cifar10").times("h100")
    (tmp_path / "bert").mkdir()
    with pytest.raises(InvalidTable, match="does not hold the profiles"):
        ApplicationProfiles(tmp_path).application("bert")
