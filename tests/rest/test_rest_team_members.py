"""Members of a team over REST: added, invited, limited and made leads by its leads and by administrators."""

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app.models import Team
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

TEAM = "/api/v1/teams/vision"
MEMBERS = f"{TEAM}/members"


@pytest.fixture
def team(cluster: Lab) -> Team:
    """Of `lea`, its lead, and `mia`; `sam` is in another."""
    team = cluster.team()
    team.leads.add(cluster.user("lea"))
    cluster.user("mia")
    cluster.user("sam", "language")
    return team


@pytest.fixture
def lea(team: Team) -> APIClient:
    return caller(User.objects.get(username="lea"))


def put(client: APIClient, name: str, **role: object) -> int:
    return int(client.put(f"{MEMBERS}/{name}", role, format="json").status_code)


def roles(team: Team) -> dict[str, bool]:
    """Whether each member is a lead."""
    leads = set(team.leads.values_list("username", flat=True))
    return {name: name in leads for name in team.members.values_list("username", flat=True)}


def test_a_lead_adds_members_and_changes_roles(team: Team, lea: APIClient) -> None:
    assert [put(lea, "sam"), put(lea, "mia", lead=True)] == [200, 200]
    assert roles(team) == {"lea": True, "mia": True, "sam": False}
    assert put(lea, "mia") == 200
    assert roles(team)["mia"], "without `lead` the role stays"
    assert [put(lea, "mia", lead=False), lea.delete(f"{MEMBERS}/sam").status_code] == [200, 204]
    assert roles(team) == {"lea": True, "mia": False}
    messages = list(AuditEntry.objects.filter(action="team.change").order_by("pk").values_list("message", flat=True))
    assert messages[0] == "member sam added"
    assert messages[-1] == "member sam removed"


def test_members_read_who_uses_what(team: Team, lea: APIClient) -> None:
    (first, *_) = lea.get(MEMBERS).json()["members"]
    figures = {"gpus": 0, "gpu_hours": 0, "running": 0, "waiting": 0}
    assert first == {"username": "lea", "is_member": True, "is_lead": True, "invited": False, **figures}


def test_the_list_costs_as_many_queries_for_many_members(cluster: Lab, lea: APIClient) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            lea.get(MEMBERS)
        return len(found)

    queries()  # which notes that the token was used
    few = queries()
    for number in range(20):
        cluster.user(f"m{number}")
    assert queries() == few


def test_the_only_lead_stays_unless_an_administrator_ends_that(team: Team, lea: APIClient, root: APIClient) -> None:
    assert [put(lea, "lea", lead=False), lea.delete(f"{MEMBERS}/lea").status_code] == [403, 403]
    assert roles(team)["lea"]
    assert put(root, "lea", lead=False) == 200
    assert not any(roles(team).values())


def test_a_lead_who_is_no_member_any_more_is_no_other_lead(team: Team, lea: APIClient) -> None:
    """As one whom the group of single sign-on has left, or whom an administrator took out of the members alone."""
    team.leads.add(User.objects.get(username="sam"))
    assert [put(lea, "lea", lead=False), lea.delete(f"{MEMBERS}/lea").status_code] == [403, 403]


def test_members_who_are_no_leads_change_nothing(team: Team) -> None:
    mia = caller(User.objects.get(username="mia"))
    assert [put(mia, "sam"), put(mia, "mia", lead=True), mia.delete(f"{MEMBERS}/lea").status_code] == [403, 403, 403]
    assert roles(team) == {"lea": True, "mia": False}


def test_an_administrator_needs_a_token_of_scope_admin(cluster: Lab, team: Team) -> None:
    narrow = caller(cluster.user("root", "admins", staff=True), Scope.SUBMIT)
    assert put(narrow, "sam") == 403
    assert "sam" not in roles(team)


def test_a_name_without_an_account_is_refused_with_what_to_do(team: Team, lea: APIClient) -> None:
    answer = lea.put(f"{MEMBERS}/nobody", {}, format="json")
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["pointer"]) == (422, "/username")
    assert "check the name, or invite the person" in fault["detail"]


def test_a_role_that_is_refused_adds_nobody(team: Team, lea: APIClient) -> None:
    assert put(lea, "sam", lead="boss") == 422
    assert lea.delete(f"{MEMBERS}/sam").status_code == 404
    assert "sam" not in roles(team)


def test_a_lead_invites_a_person_whose_link_is_told_once(team: Team, lea: APIClient) -> None:
    answer = lea.post(f"{TEAM}/invitations", {"username": "ivy", "lead": True}, format="json")
    invited = answer.json()
    assert (answer.status_code, answer["Cache-Control"], invited["mailed"]) == (201, "no-store", False)
    assert re.fullmatch(r"http://testserver/invitation#[\w-]{43}", invited["link"])
    assert roles(team)["ivy"]
    assert invited["link"].partition("#")[2] not in lea.get(MEMBERS).content.decode()


def test_who_has_an_account_is_not_invited(team: Team, lea: APIClient) -> None:
    answer = lea.post(f"{TEAM}/invitations", {"username": "sam"}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/username")
    assert "There is an account sam: add it to the team" in answer.json()["detail"]


def test_a_lead_limits_members_within_the_limit_of_the_team(team: Team, lea: APIClient) -> None:
    Team.objects.filter(pk=team.pk).update(max_gpus=8)
    limits = {"max_gpus_per_member": 4, "idle_gpus_limit_min": 60}
    assert lea.put(f"{TEAM}/member-limits", limits, format="json").json() == limits
    for change, pointer in (
        ({"max_gpus_per_member": 9}, "/max_gpus_per_member"),
        ({"idle_gpus_limit_min": 1}, "/idle_gpus_limit_min"),
    ):
        answer = lea.put(f"{TEAM}/member-limits", limits | change, format="json")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    team.refresh_from_db()
    assert (team.max_gpus_per_member, team.idle_gpus_limit_min) == (4, 60)
