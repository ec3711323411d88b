"""What policies are told of recorded applications is what a service would have heard by then, and no more."""

from math import log

import numpy as np
import pytest

from allocation.policies import POLICIES
from estimation.restart_times import PRIOR_TIMES
from simulation.clock.service_training import ServiceTraining
from simulation.rules.sia import SiaRules
from simulation.workloads.applications import COURSES
from tests.estimation.recorded_applications import needs_reference
from tests.simulation.sia_reference import ROUND_S, one_job, simulation, workload

pytestmark = needs_reference
NAME = "cifar10"
ON = {"aws": 0, "dgx-ext": 1, "rtx": 2}
JOB = {"name": NAME, "time": 0, "application": NAME, "num_replicas": 1, "batch_size": 128}


@pytest.fixture
def training() -> ServiceTraining:
    """One job, of which nothing has been heard."""
    work = simulation(one_job(JOB), SiaRules(POLICIES["motley"], ROUND_S), knowledge="service").state.work
    assert isinstance(work, ServiceTraining)
    return work


def configuration(training: ServiceTraining, gpu_type: str, gpus: int) -> int:
    on = training.jobs.configurations
    return int(np.flatnonzero((on.gpu_type == ON[gpu_type]) & (on.gpus == gpus))[0])


def ran(training: ServiceTraining, k: int, seconds: float = 60.0) -> None:
    """The job on that configuration, from its beginning."""
    row = np.array([0])
    training.start(row, np.array([k]))
    training.run(row, np.array([k]), training.jobs.steps[row], np.array([seconds]), np.array([-1]))


def test_before_the_first_report_types_compare_as_their_data_sheets_say(training: ServiceTraining) -> None:
    rate = training.believed(np.array([0]))[0][0]
    a100, t4 = (rate[configuration(training, kind, 1)] for kind in ("dgx-ext", "aws"))
    assert a100 / t4 == pytest.approx((312 * 1555 / (65 * 320)) ** 0.5)
    assert training.most_replicas(np.array([0])).tolist() == [0]


def test_after_a_round_the_rate_is_known_where_the_job_ran_and_estimated_elsewhere(training: ServiceTraining) -> None:
    k = configuration(training, "dgx-ext", 2)
    ran(training, k)
    believed, true = (
        training.believed(np.array([0]))[0][0],
        training.true_rates(np.array([0]), training.jobs.steps, ahead=False)[0],
    )
    assert training.most_replicas(np.array([0])).tolist() == [2]
    job = training._jobs[0]
    assert 0.5 < believed[k] / true[k] <= 1.3  # the true one is at its best batch, and the noise is not that of later
    able = (believed > 0) & (true > 0)
    assert np.abs(np.log(believed[able] / true[able])).max() < log(12)
    assert job.local * (job.passes + 1) * 2 >= 128


def test_steps_of_several_gpus_alone_promise_no_wonders_on_one(training: ServiceTraining) -> None:
    """They once did, of a million steps a second: all of a step was taken for averaging."""
    for gpus in (2, 4, 8):
        ran(training, configuration(training, "dgx-ext", gpus))
    believed, true = (
        training.believed(np.array([0]))[0][0],
        training.true_rates(np.array([0]), training.jobs.steps, ahead=False)[0],
    )
    alone = configuration(training, "dgx-ext", 1)
    assert believed[alone] < 3 * true[alone]


def test_a_restart_is_what_the_owner_says_until_one_was_measured(training: ServiceTraining) -> None:
    k, row = configuration(training, "dgx-ext", 1), np.array([0])
    ran(training, k)
    told_s, true_s = COURSES[NAME].told_restart_s, COURSES[NAME].restart_s
    assert training.told_restart_s(row).tolist() == [told_s]
    ran(training, k)
    mean_s = (told_s**PRIOR_TIMES * true_s) ** (1 / (PRIOR_TIMES + 1))
    assert training.told_restart_s(row)[0] == pytest.approx(mean_s)


def test_a_running_job_goes_on_to_larger_batches_as_its_noise_grows(training: ServiceTraining) -> None:
    k, row = configuration(training, "dgx-ext", 8), np.array([0])
    ran(training, k)
    ran(training, k)  # now it is told choices: its workload has been timed
    job, left = training._jobs[0], training.jobs.steps[row].copy()
    begins = job.local * (job.passes + 1)
    for _ in range(30):
        left = left - training.run(row, np.array([k]), left, np.array([60.0]), np.array([-1]))[0]
    assert job.local * (job.passes + 1) > begins


def test_a_trace_runs_to_its_end_by_what_is_heard() -> None:
    whole = simulation(workload("derived/philly-1-small20"), SiaRules(POLICIES["motley"], ROUND_S), knowledge="service")
    whole.run()
    assert np.isfinite(whole.state.finish_s).all()
    assert whole.state.restarts.mean() < 8
