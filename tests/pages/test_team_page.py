"""The team's page: all members read it, its leads and administrators manage members and their limits."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from audit_app.models import AuditEntry
from jobs_app.invitations import invite
from jobs_app.models import Budget, Job, Team
from jobs_app.submission.submit import submit_job
from tests.pages.conftest import decide


@pytest.fixture
def team(member: User) -> Team:
    return Team.objects.get(name="vision")


@pytest.fixture
def lead(team: Team) -> User:
    user = User.objects.create_user("lea")
    team.members.add(user)
    team.leads.add(user)
    return user


def act(client: Client, verb: str, **data: Any) -> Any:
    return client.post(f"/teams/vision/{verb}", data, follow=True)


def read(client: Client) -> str:
    return client.get("/teams/vision").content.decode()


def changes() -> list[str]:
    entries = AuditEntry.objects.filter(action="team.change").order_by("pk")
    return list(entries.values_list("message", flat=True))


def test_members_see_who_uses_what_and_no_buttons(decided, team, member, web) -> None:
    Budget.objects.create(team=team, gpu_hours=100)
    page = re.sub(r"\s+", " ", read(web(member)))
    waiting = Job.objects.filter(team=team, state=Job.State.QUEUED).count()
    assert f'data-label="Waiting jobs">{waiting}<' in page
    assert "Budgets" in page
    assert "Remove" not in page
    assert "/teams/vision" in web(member).get("/teams").content.decode()


def test_a_team_is_no_business_of_strangers(team, stranger, web) -> None:
    assert web(stranger).get("/teams/vision").status_code == 404
    assert "/teams/vision" not in web(stranger).get("/teams").content.decode()


@pytest.mark.parametrize("verb", ["add", "invite", "limits", "remove", "make-lead", "end-lead"])
def test_members_who_are_no_leads_change_nothing(team, lead, stranger, web, verb) -> None:
    member = User.objects.get(username="mia")
    answer = act(web(member), verb, username="sam" if verb == "add" else "lea", max_gpus_per_member=1)
    assert answer.status_code == 403
    assert set(team.members.all()) == {member, lead}
    assert act(web(stranger), verb, username="sam").status_code == 404
    assert not changes()


def test_a_former_lead_changes_nothing(team, member, lead, web) -> None:
    team.members.remove(lead)  # as the administration can
    assert act(web(lead), "remove", username="mia").status_code == 404
    assert team.members.filter(pk=member.pk).exists()


def test_a_lead_of_another_team_changes_nothing_here(team, member, web) -> None:
    Team.objects.get(name="language").leads.add(member)
    assert act(web(member), "limits", max_gpus_per_member=1).status_code == 403


def test_a_lead_adds_and_removes_members(team, lead, stranger, web) -> None:
    assert "sam is a member of vision" in act(web(lead), "add", username=" sam ").content.decode()
    assert team.members.filter(username="sam").exists()
    act(web(lead), "remove", username="sam")
    assert not team.members.filter(username="sam").exists()
    assert changes() == ["member sam added", "member sam removed"]


def test_a_name_without_an_account_is_refused_at_the_field(lead, web) -> None:
    assert "There is no account &#x27;nobody&#x27;" in act(web(lead), "add", username="nobody").content.decode()


def test_whose_invitation_is_open_is_added_to_no_other_team(team, lead, web, staff) -> None:
    other = Team.objects.create(name="audio")
    invite("ivy", email="", team=other, lead=False, actor=staff, now=timezone.now())
    assert "There is no account" in act(web(lead), "add", username="ivy").content.decode()
    assert "There is an account ivy" in act(web(lead), "invite", username="ivy").content.decode()


def test_a_lead_invites_a_person_into_the_team(team, lead, web) -> None:
    page = act(web(lead), "invite", username="ada", email="ada@example.org").content.decode()
    assert re.search(r"http://testserver/invitation#[\w-]{43}", page)
    assert team.members.filter(username="ada").exists()
    assert "member, invited" in re.sub(r"\s+", " ", read(web(lead)))


def test_roles_are_given_and_taken_and_one_lead_stays(team, member, lead, web) -> None:
    act(web(lead), "make-lead", username="mia")
    assert set(team.leads.all()) == {member, lead}
    act(web(member), "end-lead", username="lea")
    assert set(team.leads.all()) == {member}
    for verb in ("end-lead", "remove"):
        assert "mia is the only lead of vision" in act(web(member), verb, username="mia").content.decode()
    assert set(team.leads.all()) == {member}


def test_a_lead_limits_members_within_the_limit_of_the_team(team, lead, web) -> None:
    before = team.weight
    Team.objects.filter(pk=team.pk).update(max_gpus=8)
    page = act(web(lead), "limits", max_gpus_per_member=9).content.decode()
    assert "The team may use 8 GPUs at once: write 8 or less" in page
    act(web(lead), "limits", max_gpus_per_member=2, idle_gpus_limit_min=30, max_gpus=1000, weight=50)
    team.refresh_from_db()
    assert (team.max_gpus_per_member, team.idle_gpus_limit_min, team.max_gpus, team.weight) == (2, 30, 8, before)
    assert changes() == ["max_gpus_per_member 2, idle_gpus_limit_min 30"]


def test_limits_are_validated_at_the_field(lead, web) -> None:
    assert "Write 10 minutes or more." in act(web(lead), "limits", idle_gpus_limit_min=1).content.decode()


def test_a_retired_team_is_managed_by_administrators_alone(team, lead, web) -> None:
    Team.objects.filter(pk=team.pk).update(retired_at=timezone.now())
    assert "This team is retired" in read(web(lead))
    assert act(web(lead), "limits", max_gpus_per_member=1).status_code == 403


def test_the_page_does_not_ask_more_as_jobs_and_members_grow(
    cluster, team, member, web, django_assert_max_num_queries
) -> None:
    client = web(member)
    with django_assert_max_num_queries(40) as few:
        read(client)
    for number in range(5):
        user = User.objects.create_user(f"m{number}")
        team.members.add(user)
        submit_job({"name": "one", "team": "vision", "command": "true", "gpus": 1}, owner=user)
    decide()
    with django_assert_max_num_queries(len(few) + 2):
        read(client)
