"""A job that ran out of time or memory is run again with more of it."""

import re
from collections.abc import Callable

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs_app.models import Attempt, Job
from jobs_app.submission.larger_requests import larger_requests
from tests.pages.conftest import decide

ASKED = {"gpus": 2, "memory_per_gpu": "16GiB", "time_limit": "90m", "gpu_types": ["t4", "a100"]}
SIZES_MIB = {"t4": 16_384, "v100": 32_768, "a100": 40_960}


@pytest.fixture
def failed(submit: Callable[..., Job]) -> Job:
    """It ran on T4s."""
    job = submit(name="net", command="python train.py", **{**ASKED, "gpu_types": ["t4"]})
    decide()
    ended = {"gpu_types": ASKED["gpu_types"], "state": Job.State.FAILED, "finished_at": timezone.now()}
    Job.objects.filter(pk=job.pk).update(**ended)
    Attempt.objects.filter(job=job).update(exit_code=1)
    return job


def offered(client: Client, job: Job) -> dict[str, str]:
    """Words of each link that runs the job again, with its address."""
    shown = client.get(reverse("job", args=[job.pk])).content.decode()
    return {
        words: address.replace("&amp;", "&")
        for address, words in re.findall(r'href="([^"]*larger=[^"]*)">([^<]*)<', shown)
    }


@pytest.mark.parametrize(
    ("state", "exit_code", "expected"),
    [
        (Job.State.TIMED_OUT, None, {"4 GPUs": {"gpus": 4}, "a time limit of 3 h": {"time_limit": "3h"}}),
        (Job.State.FAILED, 137, {"32 GiB of memory per GPU": {"memory_per_gpu": "32GiB"}}),
    ],
)
def test_each_larger_request_is_a_clone_with_that_field_changed(  # noqa: PLR0917 - three are what is tried
    state: Job.State, exit_code: int | None, expected: dict[str, dict[str, object]], failed: Job, member: User, web
) -> None:
    Job.objects.filter(pk=failed.pk).update(state=state)
    Attempt.objects.filter(job=failed).update(exit_code=exit_code)
    client, before = web(member), {**ASKED, "memory_per_gpu": "16GiB"}
    links = offered(client, failed)
    assert links.keys() == expected.keys()
    for words, address in links.items():
        spec = yaml.safe_load(client.get(address).context["yaml"])
        assert {name: spec.get(name) for name in (*before, *expected[words])} == before | expected[words]


def test_a_job_that_failed_for_another_reason_is_not_offered_more(failed: Job, member: User, web) -> None:
    assert offered(web(member), failed) == {}


@pytest.mark.parametrize("state", [Job.State.SUCCEEDED, Job.State.CANCELLED])
def test_a_job_that_ended_otherwise_is_not_offered_more(state: Job.State, failed: Job, member: User, web) -> None:
    Job.objects.filter(pk=failed.pk).update(state=state)
    assert offered(web(member), failed) == {}


def test_other_fields_and_jobs_of_other_teams_are_not_found(failed: Job, member: User, stranger: User, web) -> None:
    address = f"{reverse('new-job')}?clone={failed.pk}&larger="
    assert web(member).get(address + "command").status_code == 404
    assert web(stranger).get(address + "gpus").status_code == 404


@pytest.mark.parametrize(
    ("spec", "ran_on_mib", "expected"),
    [
        ({"gpus": {"min": 1, "max": 4}}, 0, {"gpus": {"min": 2, "max": 8}}),
        ({"replicas": 1, "gpus_per_replica": {"a100": 4}}, 0, {"replicas": 2}),
        ({"gpus": 1}, 16_384, {"gpus": 2, "gpu_memory": "32GiB"}),
        ({"gpus": 1, "gpu_types": ["t4"]}, 16_384, {"gpus": 2}),
    ],
    ids=["elastic", "replicas", "next larger memory", "no larger type allowed"],
)
def test_what_is_larger_follows_from_what_was_asked_for(spec, ran_on_mib, expected) -> None:
    found = larger_requests(spec, ran_on_mib=ran_on_mib, sizes_mib=SIZES_MIB)
    assert {one.field: one.value for one in found} == expected


def test_the_python_of_the_spec_runs_and_submits_the_same_job(failed: Job, member: User, web, monkeypatch) -> None:
    context = web(member).get(reverse("job", args=[failed.pk]), {"tab": "spec"}).context
    sent = []

    class Sending:
        def __init__(self, *_: str) -> None: ...
        def __enter__(self) -> "Sending":
            return self

        def __exit__(self, *_: object) -> None: ...
        def submit(self, spec: dict[str, object]) -> dict[str, str]:
            sent.append(spec)
            return {"id": "1"}

        def wait(self, job_id: str) -> dict[str, str]:
            return {"id": job_id, "state": "succeeded"}

    monkeypatch.setattr("motley_client.Client", Sending)
    monkeypatch.setenv("MOTLEY_URL", "http://localhost")
    monkeypatch.setenv("MOTLEY_TOKEN", "mot_1")
    exec(compile(context["python"], "spec.py", "exec"), {})
    assert sent == [yaml.safe_load(context["yaml"])]
