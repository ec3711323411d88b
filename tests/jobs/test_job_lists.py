"""Lists of jobs: narrowed in every way, in pages, with the fields that were asked for."""

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from cluster_app.models import GpuType
from jobs_app import filters
from jobs_app.models import Attempt, Job
from jobs_app.models.job import IdTail
from tests.service_lab import Lab


def names(client: APIClient, **query: Any) -> list[str]:
    answer = client.get("/api/v1/jobs", query)
    assert answer.status_code == 200, answer.content
    return sorted(job["name"] for job in answer.json()["results"])


@pytest.fixture
def jobs(cluster: Lab) -> dict[str, Job]:
    """Five, told apart by name, tags, owner and what became of them."""
    cluster.node("t1", "t4", gpus=1)
    found = {
        "resnet one": cluster.submit(name="resnet one", tags={"project": "imagenet", "lr": "0.1"}),
        "resnet-2": cluster.submit(name="resnet-2", tags={"project": "imagenet", "lr": "0.01"}),
        "Resnet": cluster.submit(name="Resnet", tags={"project": ""}),
        "100%_done": cluster.submit(name="100%_done", owner=cluster.user("bob", "vision", "language"), team="vision"),
    }
    done = Job.objects.filter(pk__in=[job.pk for job in found.values()])
    done.update(state=Job.State.SUCCEEDED, finished_at=timezone.now())
    running = cluster.submit(name="running", gpu_types=["t4"])
    cluster.attempt(running, gpu_type=GpuType.objects.get(name="t4"), state=Attempt.State.RUNNING, nodes=["t1"])
    Job.objects.filter(pk=running.pk).update(state=Job.State.RUNNING)
    return found | {"running": running}


def test_a_job_that_has_ended_is_listed_with_the_gpus_of_its_last_run(
    cluster: Lab, jobs: dict[str, Job], ada: APIClient
) -> None:
    job = jobs["Resnet"]
    for name, gpus, node in (("a100", 1, "n1"), ("t4", 2, "t1")):
        ran = {"gpu_type": GpuType.objects.get(name=name), "gpu_count": gpus, "nodes": [node]}
        cluster.attempt(job, state=Attempt.State.ENDED, outcome="succeeded", ended_at=timezone.now(), **ran)
    Job.objects.filter(pk=job.pk).update(attempt_count=2)
    ran_on = {one["name"]: one["ran_on"] for one in ada.get("/api/v1/jobs").json()["results"]}
    assert ran_on["Resnet"] == {"gpu_type": "t4", "gpu_count": 2, "nodes": ["t1"]}
    assert (ran_on["running"], ran_on["resnet-2"]) == (None, None)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "resnet"}, ["resnet one", "resnet-2"]),
        ({"q": "resnet o"}, ["resnet one"]),
        ({"name": "resnet one"}, ["resnet one"]),
        ({"name": "resnet"}, []),
        ({"q": " resnet  one "}, ["resnet one"]),
        ({"q": "project=imagenet"}, ["resnet one", "resnet-2"]),
        ({"q": "project=imagenet lr=0.1"}, ["resnet one"]),
        ({"q": "lr=0.01 resnet"}, ["resnet-2"]),
        ({"q": "project=image"}, []),
        ({"q": "100%_"}, ["100%_done"]),
        ({"q": "_00"}, []),
        ({"tag": "project"}, ["Resnet", "resnet one", "resnet-2"]),
        ({"tag": "project="}, ["Resnet"]),
        ({"tag": ["project=imagenet", "lr=0.01"]}, ["resnet-2"]),
        ({"tag": "lr=1"}, []),
        ({"gpu_type": "t4"}, ["running"]),
        ({"gpu_type": "T4"}, ["running"]),
        ({"gpu_type": "a100"}, []),
        ({"owner": "bob"}, ["100%_done"]),
        ({"owner": "nobody"}, []),
        ({"team": "vision", "state": "running"}, ["running"]),
        ({"team": "nobody"}, []),
    ],
    ids=str,
)
def test_a_list_holds_what_was_asked_for(
    jobs: dict[str, Job], ada: APIClient, query: dict[str, Any], found: list[str]
) -> None:
    assert names(ada, **query) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("train.py --lr", ["list"]),
        ("TRAIN.PY", ["list", "shell"]),
        ('say "größe', ["shell"]),
        ("100%_", ["shell"]),
        ("0%_.1", []),
        ("' OR 1=1", []),
    ],
)
def test_jobs_are_found_by_text_in_their_command(cluster: Lab, ada: APIClient, text: str, found: list[str]) -> None:
    cluster.submit(["python", "Train.py", "--lr", "0.1"], name="list")
    cluster.submit('python train.py --say "größe 100%_"', name="shell")
    assert names(ada, command=text) == found
    assert names(ada, command=text, q="nothing") == []


def test_commands_are_searched_in_the_newest_jobs_that_match_the_other_filters(
    cluster: Lab, ada: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "NEWEST_COMMANDS", 1)
    for name, of in (("old", "run"), ("older", "walk"), ("new", "run")):
        cluster.submit(of, name=name)
    assert names(ada, command="run") == ["new"]
    assert names(ada, command="run", q="old") == []
    assert names(ada, command="walk", q="older") == ["older"]


def test_a_command_is_not_found_by_members_of_other_teams(cluster: Lab, ada: APIClient) -> None:
    cluster.submit("python secret.py", name="theirs", owner=cluster.user("cy", "speech"), team="speech")
    assert names(ada, command="secret") == []


@pytest.mark.parametrize("length", [8, 13, 18, 36])
def test_a_job_is_found_by_the_beginning_of_its_id(jobs: dict[str, Job], ada: APIClient, length: int) -> None:
    assert "resnet-2" in names(ada, q=str(jobs["resnet-2"].pk)[:length])


def test_a_whole_id_finds_one_job(jobs: dict[str, Job], ada: APIClient) -> None:
    assert names(ada, q=jobs["resnet-2"].pk.hex.upper()) == ["resnet-2"]


def test_seven_digits_are_no_id(jobs: dict[str, Job], ada: APIClient) -> None:
    assert names(ada, q=str(jobs["resnet-2"].pk)[:7]) == []


def test_what_changed_since_a_moment_is_found(jobs: dict[str, Job], ada: APIClient) -> None:
    moment = timezone.now()
    ada.post(f"/api/v1/jobs/{jobs['running'].pk}/cancel")
    assert names(ada, updated_since=moment.isoformat()) == ["running"]


def test_what_came_after_a_moment_is_found(jobs: dict[str, Job], ada: APIClient) -> None:
    assert names(ada, created_after=jobs["resnet-2"].created_at.isoformat()) == ["100%_done", "Resnet", "running"]
    assert names(ada, created_after=(timezone.now() + timedelta(hours=1)).isoformat()) == []


# -- pages and fields --------------------------------------------------------------------------------------------


def cursor(position: str) -> str:
    return b64encode(f"p={position}".encode()).decode()


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"limit": "-1"}, "/limit"),
        ({"limit": "0"}, "/limit"),
        ({"limit": "201"}, "/limit"),
        ({"limit": "5000"}, "/limit"),
        ({"limit": "abc"}, "/limit"),
        ({"limit": ""}, "/limit"),
        ({"limit": "1.5"}, "/limit"),
        ({"limit": "9" * 5000}, "/limit"),
        ({"cursor": "x"}, "/cursor"),
        ({"cursor": cursor("yesterday")}, "/cursor"),
        ({"cursor": cursor("%00")}, "/cursor"),
        ({"state": "thinking"}, "/state"),
        ({"array": "x"}, "/array"),
        ({"created_after": "noon"}, "/created_after"),
        ({"tag": "a\0b"}, "/tag"),
        ({"q": "a\0b"}, "/q"),
        ({"fields": "id,colour"}, "/fields"),
        ({"fields": ""}, "/fields"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_query_without_sense_is_refused_by_name(ada: APIClient, query: dict[str, str], pointer: str) -> None:
    answer = ada.get("/api/v1/jobs", query)
    assert (answer.status_code, [fault["pointer"] for fault in answer.json()["errors"]]) == (400, [pointer])


def test_a_list_of_names_holds_nothing_else(cluster: Lab, ada: APIClient) -> None:
    cluster.submit(name="one")
    assert ada.get("/api/v1/jobs", {"fields": "name,state"}).json()["results"] == [{"name": "one", "state": "queued"}]


def test_one_job_may_be_thinned_too_and_keeps_its_etag(cluster: Lab, ada: APIClient) -> None:
    route = f"/api/v1/jobs/{cluster.submit().pk}"
    thin = ada.get(route, {"fields": "state"})
    assert (thin.json(), thin["ETag"]) == ({"state": "queued"}, ada.get(route)["ETag"])


def test_a_misspelt_field_of_one_job_is_refused(cluster: Lab, ada: APIClient) -> None:
    answer = ada.get(f"/api/v1/jobs/{cluster.submit().pk}", {"fields": "sate"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/fields")


def test_a_submission_is_answered_with_the_state_that_is_read_later(cluster: Lab, ada: APIClient) -> None:
    spec = {
        "name": "net",
        "command": ["python", "train.py"],
        "gpus": {"min": 1, "max": 4},
        "env": {"B": "1", "A": "2"},
        "rates": {"a100": {4: 9, 1: 3}},
        "deadline": "2030-01-01T01:00:00+01:00",
        "checkpoint": {"grace_seconds": 5},
        "tags": {"b": "1", "a": "2"},
        "weight": 1,
        "after": [{"job": str(cluster.submit().pk)}],
    }
    answer = ada.post("/api/v1/jobs", spec, format="json")
    later = ada.get(f"/api/v1/jobs/{answer.json()['id']}")
    assert (later.json(), later["ETag"]) == (answer.json(), answer["ETag"])


@pytest.mark.parametrize(
    "query", [{"tag": [f"t{n}" for n in range(11)]}, {"q": " ".join(f"t{n}=1" for n in range(11))}]
)
def test_a_query_names_ten_tags_at_most(ada: APIClient, query: dict[str, Any]) -> None:
    answer = ada.get("/api/v1/jobs", query)
    assert answer.status_code == 400
    assert "at most 10 tags" in answer.content.decode()


@pytest.mark.parametrize("name", ["created_after", "updated_since"])
@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_moment_that_is_none_in_utc_is_refused(ada: APIClient, name: str, moment: str) -> None:
    answer = ada.get("/api/v1/jobs", {name: moment})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, f"/{name}")


def test_an_index_finds_a_job_by_the_end_of_its_id(cluster: Lab) -> None:
    job = cluster.submit()
    found = Job.objects.alias(id_tail=IdTail("pk")).filter(id_tail=str(job.pk)[-8:])
    assert list(found) == [job]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")  # of one row no index is used
        unordered = found.order_by()  # of one row the index of the order is as good
        assert "job_by_end_of_id" in unordered.explain()


def test_a_task_of_an_array_is_found_as_it_is_shown(ada: APIClient, cluster: Lab) -> None:
    cluster.submit(name="grid", array={"start": 0, "end": 4})
    cluster.submit(name="grid[3] again")
    assert names(ada, q="grid[3]") == ["grid", "grid[3] again"]
