"""Quotas and budgets of teams over REST: set and deleted by administrators, refused with field and remedy, audited."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app.models import Budget, TeamQuota
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

TEAM = "/api/v1/teams/vision"
QUOTA, BUDGET = f"{TEAM}/quotas/a100", f"{TEAM}/budget"


@pytest.fixture
def admin(lab: Lab) -> APIClient:
    lab.node("n1", gpus=4)
    lab.user()
    return caller(lab.user("root", "admins", staff=True), Scope.ADMIN)


def audited() -> list[tuple[str, str, str]]:
    of_limits = AuditEntry.objects.filter(action__regex="^(quota|budget)[.]")
    return list(of_limits.order_by("pk").values_list("action", "target", "message"))


def test_a_quota_is_set_replaced_and_deleted(admin: APIClient) -> None:
    (shown,) = admin.put(QUOTA, {"gpus": 2, "borrowing_limit": 1, "lending_limit": 0}, format="json").json()["quotas"]
    assert (shown["gpu_type"], shown["gpus"], shown["borrowing_limit"], shown["lending_limit"]) == ("a100", 2, 1, 0)
    answer = admin.put(QUOTA, {"gpus": 3}, format="json")
    assert (answer.status_code, TeamQuota.objects.values_list("gpus", "borrowing_limit", "lending_limit").get()) == (
        200,
        (3, None, None),
    )
    assert admin.delete(QUOTA).status_code == 204
    assert admin.get(TEAM).json()["quotas"] == []
    assert audited() == [
        ("quota.set", "2 a100 of vision", "borrows 1 at most, lends 0 at most"),
        ("quota.set", "3 a100 of vision", "borrows any number, lends any number"),
        ("quota.delete", "3 a100 of vision", ""),
    ]


def test_a_budget_is_set_replaced_and_deleted(admin: APIClient) -> None:
    shown = admin.put(BUDGET, {"gpu_hours": 90.5, "period": "week", "kind": "hard"}, format="json").json()["budget"]
    assert (shown["gpu_hours"], shown["period"], shown["kind"], shown["used_gpu_hours"]) == (90.5, "week", "hard", 0)
    admin.put(BUDGET, {"gpu_hours": 500}, format="json")
    assert Budget.objects.values_list("gpu_hours", "period", "kind").get() == (500, "month", "soft")
    assert admin.delete(BUDGET).status_code == 204
    assert admin.get(TEAM).json()["budget"] is None
    actions = [action for action, *_ in audited()]
    assert actions == ["budget.set", "budget.set", "budget.delete"]


@pytest.mark.parametrize(
    ("route", "body", "pointer", "words"),
    [
        (QUOTA, {}, "/gpus", "required"),
        (QUOTA, {"gpus": -1}, "/gpus", "greater than or equal to 0"),
        (QUOTA, {"gpus": 10**9}, "/gpus", "100000"),
        (QUOTA, {"gpus": 2, "lending_limit": 3}, "/lending_limit", "write a lending limit up to the quota, or none"),
        (QUOTA, {"gpus": 2, "borrow": 3}, "/borrow", "The fields are: gpus, borrowing_limit, lending_limit"),
        (BUDGET, {"gpu_hours": 0}, "/gpu_hours", "0.001"),
        (BUDGET, {"gpu_hours": 1, "period": "year"}, "/period", "'year' is not one of week, month, quarter"),
        (BUDGET, {"gpu_hours": 1, "kind": "strict"}, "/kind", "'strict' is not one of soft, hard"),
    ],
)
def test_what_cannot_be_a_limit_is_refused_by_field(
    admin: APIClient, route: str, body: dict[str, Any], pointer: str, words: str
) -> None:
    answer = admin.put(route, body, format="json")
    assert answer.status_code == 422
    fault = answer.json()["errors"][0]
    assert (fault["pointer"], words in fault["detail"]) == (pointer, True), fault
    assert not TeamQuota.objects.exists() | Budget.objects.exists()


@pytest.mark.parametrize(
    ("method", "route", "words"),
    [
        ("put", f"{TEAM}/quotas/h100", "There is no GPU type 'h100'"),
        ("delete", QUOTA, "The team has no quota on 'a100'"),
        ("delete", BUDGET, "The team has no budget"),
        ("put", "/api/v1/teams/video/budget", "There is no team 'video', or you may not see it"),
    ],
)
def test_what_is_not_there_is_not_found(admin: APIClient, method: str, route: str, words: str) -> None:
    answer = getattr(admin, method)(route, {"gpus": 1}, format="json")
    assert (answer.status_code, words in answer.json()["detail"]) == (404, True), answer.json()
