"""GPU types, teams, measured rates and the caller, over REST."""

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from accounting_app.models import QuotaHour
from cluster_app.models import Gpu, GpuType, Node
from cluster_app.services import cordon
from jobs_app.models import Job, TeamQuota, Throughput
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

# -- GPU types ---------------------------------------------------------------------------------------------------


def test_a_type_has_its_figures_and_how_many_there_are(ada: APIClient) -> None:
    answer = ada.get("/api/v1/gpu-types/a100").json()
    assert set(answer) == {
        "name",
        "memory_mib",
        "tflops",
        "bandwidth_gbs",
        "power_w",
        "price_per_hour",
        "gpus",
        "free_gpus",
        "retired_at",
    }
    assert (answer["name"], answer["gpus"], answer["free_gpus"]) == ("a100", 4, 4)
    assert isinstance(answer["price_per_hour"], float)


def test_what_a_job_has_is_not_free(running: Job, ada: APIClient) -> None:
    assert ada.get("/api/v1/gpu-types/a100").json()["free_gpus"] == 3


def test_what_is_broken_or_out_of_service_is_not_free(cluster: Lab, ada: APIClient) -> None:
    cordon(cluster.node("n2"), reason="fan", actor=None)
    Gpu.objects.filter(node__name="n1", index=0).update(healthy=False)
    answer = ada.get("/api/v1/gpu-types").json()["results"]
    assert [(kind["gpus"], kind["free_gpus"]) for kind in answer] == [(6, 3)]


def test_what_was_taken_out_does_not_count(ada: APIClient) -> None:
    Gpu.objects.filter(index=3).update(present=False)
    assert ada.get("/api/v1/gpu-types/a100").json()["gpus"] == 3


# -- teams -------------------------------------------------------------------------------------------------------


def test_one_sees_ones_own_teams(cluster: Lab, ada: APIClient) -> None:
    cluster.team("language")
    assert [team["name"] for team in ada.get("/api/v1/teams").json()["results"]] == ["vision"]
    assert ada.get("/api/v1/teams/language").status_code == 404


def test_staff_see_all(cluster: Lab, root: APIClient) -> None:
    cluster.team("language")
    assert [team["name"] for team in root.get("/api/v1/teams").json()["results"]] == ["admins", "language"]


def test_a_team_tells_its_limits_members_and_use(cluster: Lab, running: Job, ada: APIClient) -> None:
    cluster.user("bob")
    team = ada.get("/api/v1/teams/vision").json()
    assert (team["max_gpus"], team["weight"], team["max_job_weight"]) == (None, 1.0, 1.0)
    assert sorted(team["members"]) == ["ada", "bob"]
    assert team["gpus_in_use"] == 1


def test_a_team_tells_its_quotas_and_what_they_cost(cluster: Lab, running: Job, ada: APIClient) -> None:
    kind = GpuType.objects.get()
    TeamQuota.objects.create(team=cluster.team(), gpu_type=kind, gpus=1, borrowing_limit=0)
    hour = timezone.now() - timedelta(hours=2)
    QuotaHour.objects.create(
        team=cluster.team(), gpu_type=kind, hour=hour, gpu_s=1800, quota_s=3600, priced_s=3600, saved_job_s=360
    )
    (quota,) = ada.get("/api/v1/teams/vision").json()["quotas"]
    assert quota == {
        "gpu_type": "a100",
        "gpus": 1,
        "borrowing_limit": 0,
        "lending_limit": None,
        "used": 1,
        "borrowed": 0,
        "borrowed_by_others": 0,
        "mean_gpus": 0.5,
        "waiting_hours_per_day": pytest.approx(2.4),
    }


def test_a_team_tells_its_share(cluster: Lab, launched: Job, ada: APIClient) -> None:
    cluster.until(lambda: ada.get("/api/v1/teams/vision").json()["share"]["delivered"] == 1)
    share = ada.get("/api/v1/teams/vision").json()["share"]
    assert share == {"window_seconds": 604_800, "entitled": 1.0, "delivered": 1.0, "backlog_gpu_hours": 0.0}


# -- measured rates ----------------------------------------------------------------------------------------------


@pytest.fixture
def rates(cluster: Lab) -> None:
    for team, workload in (("vision", "resnet"), ("vision", "vit"), ("language", "bert")):
        Throughput.objects.create(
            team=cluster.team(team),
            workload=workload,
            gpu_type=GpuType.objects.get(),
            gpus=4,
            nodes=1,
            steps_per_second=2.5,
            reports=7,
        )


@pytest.mark.usefixtures("rates")
def test_rates_are_those_of_ones_teams(ada: APIClient, root: APIClient) -> None:
    assert {rate["workload"] for rate in ada.get("/api/v1/throughputs").json()["results"]} == {"resnet", "vit"}
    assert len(root.get("/api/v1/throughputs").json()["results"]) == 3


@pytest.mark.usefixtures("rates")
@pytest.mark.parametrize("asked", ["team=vision&workload=vit", "workload=vit&gpu_type=A100"])
def test_rates_are_narrowed(root: APIClient, asked: str) -> None:
    (rate,) = root.get(f"/api/v1/throughputs?{asked}").json()["results"]
    assert rate.pop("updated_at")
    assert rate == {
        "team": "vision",
        "workload": "vit",
        "gpu_type": "a100",
        "gpus": 4,
        "nodes": 1,
        "batch_size": 0,
        "steps_per_second": 2.5,
        "reports": 7,
        "spread": 0.0,
        "runs": 0,
    }


@pytest.mark.usefixtures("rates")
def test_of_another_team_there_are_none(ada: APIClient) -> None:
    assert ada.get("/api/v1/throughputs?team=language").json()["results"] == []


# -- the caller --------------------------------------------------------------------------------------------------


def test_a_script_reads_its_user_and_its_permissions(cluster: Lab) -> None:
    me = caller(cluster.user(), Scope.READ).get("/api/v1/me").json()
    assert me.pop("token").startswith("mot_")
    assert me == {"username": "ada", "is_staff": False, "teams": ["vision"], "default_team": "vision", "scope": "read"}


def test_a_session_has_no_scope(browser_of_ada) -> None:
    me = browser_of_ada.get("/api/v1/me").json()
    assert (me["username"], me["scope"], me["token"]) == ("ada", None, None)


# -- all of them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["nodes/n1", "gpu-types/a100", "teams/vision"])
def test_an_unchanged_answer_is_not_sent_again(ada: APIClient, route: str) -> None:
    Node.objects.update(heard_at=None)
    first = ada.get(f"/api/v1/{route}")
    again = ada.get(f"/api/v1/{route}", headers={"if-none-match": first["ETag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize("route", ["nodes", "nodes/n1", "gpu-types", "gpu-types/a100", "teams", "teams/vision"])
def test_only_the_fields_that_were_asked_for(ada: APIClient, route: str) -> None:
    answer = ada.get(f"/api/v1/{route}?fields=name").json()
    (one,) = answer.get("results", [answer])
    assert set(one) == {"name"}


@pytest.mark.parametrize("route", ["nodes", "gpu-types", "teams", "throughputs", "tokens", "policies", "rounds"])
def test_a_field_that_is_none_is_refused(ada: APIClient, route: str) -> None:
    answer = ada.get(f"/api/v1/{route}?fields=nmae")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, "/fields")


@pytest.mark.parametrize("route", ["nodes/n9", "gpu-types/h100", "teams/nobody", "tokens/999", "rounds/999"])
def test_what_is_not_there_is_not_found(ada: APIClient, route: str) -> None:
    assert ada.get(f"/api/v1/{route}").status_code == 404


@pytest.mark.parametrize("number", ["99999999999999999999999", "9223372036854775807", "-1", "1.5", "%00"])
@pytest.mark.parametrize("route", ["tokens", "rounds"])
def test_a_number_that_no_row_has_is_not_found(ada: APIClient, route: str, number: str) -> None:
    assert ada.get(f"/api/v1/{route}/{number}").status_code == 404
