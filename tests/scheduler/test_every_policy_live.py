"""Every policy decides live rounds: jobs of every kind are decided on, started by the real engine, and end."""

from datetime import timedelta

import pytest

from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.models import PolicySetting, Round
from scheduler_app.policy.settings import live_parameters
from scheduler_app.round.replay import replay_round
from tests.policy_cases import policy_cases
from tests.service_lab import UNTIL_LET_GO, Lab

KINDS = {
    "rigid": {"gpus": 2, "total_steps": 500},
    "elastic": {"gpus": {"min": 1, "max": 4}, "total_steps": 2000, "rates": {"a100": {1: 4, 2: 7, 4: 12}}},
    "over-two-nodes": {"gpus": 8, "gpu_types": ["a100"], "total_steps": 4000},
    "of-one-type": {"gpus": 1, "gpu_types": ["t4"], "total_steps": 100},
    "of-unknown-length": {"gpus": 1},
    "of-a-tuned-batch": {"gpus": {"min": 1, "max": 2}, "batch_size": {"initial": 128, "max": 1024, "max_per_gpu": 256}},
    "hybrid-parallel": {
        "replicas": {"min": 1, "max": 2},
        "gpus_per_replica": {"a100": 2, "v100": 4},
        "total_steps": 900,
    },
    "heavy": {"gpus": 1, "weight": 2, "total_steps": 300},
}


@pytest.fixture(params=policy_cases())
def policy(request: pytest.FixtureRequest, lab: Lab) -> str:
    """It decides from now on, with every parameter given; there is room for all, if it is shared well."""
    name: str = request.param
    lab.team("vision", max_job_weight=4)
    for node, gpu_type in (("n1", "a100"), ("n2", "a100"), ("n3", "a100"), ("n4", "t4"), ("n5", "v100")):
        lab.node(node, gpu_type, gpus=4)
    lab.policy(name, **{parameter.name: parameter.default for parameter in live_parameters(name).values()})
    return name


def submit_all(lab: Lab, command: str) -> list[Job]:
    deadline = (lab.now + timedelta(days=1)).isoformat()
    jobs = [lab.submit(command, name=name, **spec) for name, spec in KINDS.items()]
    return [*jobs, lab.submit(command, name="with-a-deadline", total_steps=200, deadline=deadline)]


def test_jobs_of_every_kind_are_decided_on_and_started(lab: Lab, policy: str) -> None:
    """In one round, which gives no GPU twice and only whole gangs, and is decided again as it was."""
    jobs = submit_all(lab, UNTIL_LET_GO)
    lab.tick()
    record = Round.objects.get()
    assert (record.result, record.message, record.policy) == (Round.Result.COMMITTED, "", policy)
    assert (record.status != "fallback", record.jobs) == (True, len(jobs))
    placed = Attempt.objects.filter(round_number=record.number).select_related("job")
    assert record.starts == placed.count() > 0
    for job in Job.objects.exclude(pk__in=placed.values("job")):
        assert job.reasons, f"{job} waits without reasons"
    gangs_are_whole()
    is_decided_again(record, policy)
    lab.running(*(attempt.job for attempt in placed))


def gangs_are_whole() -> None:
    claimed = list(GpuClaim.objects.open().values_list("gpu", flat=True))
    assert len(claimed) == len(set(claimed))
    for attempt in Attempt.objects.select_related("job"):
        assert attempt.job.gpus_min <= attempt.gpu_count <= attempt.job.gpus_max
        least, most = attempt.job.replicas
        assert least <= attempt.replicas <= most
        assert attempt.gpu_count == attempt.replicas * attempt.job.replica.on(attempt.gpu_type.name)
        assert attempt.claims.count() == attempt.gpu_count


def is_decided_again(record: Round, policy: str) -> None:
    archived, again, equal = replay_round(record.number)
    assert equal
    assert (archived.policy, archived.parameters) == (policy, PolicySetting.objects.current().parameters)
    assert again.decision.objective == pytest.approx(archived.plan.decision.objective)


def test_no_job_waits_for_ever(lab: Lab, policy: str) -> None:
    for job in submit_all(lab, "true"):
        lab.until_state(job, Job.State.SUCCEEDED)
