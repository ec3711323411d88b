"""Machines that joined, on the page Cluster: administrators see all, others those of their teams."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from cluster_app.models import Engine, GpuType, Node
from cluster_app.services import add_node
from connections_app.agents.program import program_digest
from connections_app.models import Agent
from jobs_app.models import Team

LINK_OF_REVOKE = "admin/connections_app/agent"


def machine(name: str, team: Team | None, **columns: object) -> Agent:
    """One that joined with two GPUs, and has just been heard."""
    kind, _ = GpuType.objects.get_or_create(name="t4", defaults={"memory_mib": 16_384})
    engine = Engine.objects.create(name=name, kind=Engine.Kind.AGENT)
    add_node(name, kind, gpus=2, cpus=8, memory_mib=1024)
    Node.objects.filter(name=name).update(engine=engine, lent_from="20:00", lent_until="08:00")
    now = timezone.now()
    facts = {"digest": name, "join_digest": name, "join_expires_at": now, "heard_at": now, "joined_at": now}
    return Agent.objects.create(name=name, engine=engine, team=team, **facts | columns)


@pytest.fixture
def speech(stranger: User) -> Team:
    return stranger.teams.get()


def shown_to(user: User, web) -> str:
    page = web(user).get(reverse("cluster")).content.decode()
    return page.partition('aria-labelledby="machines"')[2]


def test_a_member_sees_the_machines_of_the_own_teams(speech: Team, stranger: User, member: User, web) -> None:
    machine("sams-desk", speech)
    machine("attic", None)
    shown = shown_to(stranger, web)
    assert all(words in shown for words in ("sams-desk", "connected", "2 T4", "from 20:00 to 08:00 (UTC)", "speech"))
    assert ("attic" in shown, LINK_OF_REVOKE in shown) == (False, False)
    assert shown_to(member, web) == ""


def test_an_administrator_sees_all_and_where_to_revoke_them(speech: Team, staff: User, web) -> None:
    machine("sams-desk", speech)
    machine("attic", None)
    shown = shown_to(staff, web)
    assert all(words in shown for words in ("sams-desk", "attic", LINK_OF_REVOKE))


def test_why_a_machine_gets_no_jobs_is_said(speech: Team, staff: User, web) -> None:
    machine("sams-desk", speech)
    Node.objects.update(state=Node.State.DRAINED, reason="Its owner has it back: the agent leaves")
    assert "drained: Its owner has it back" in " ".join(shown_to(staff, web).split())


def test_the_page_costs_as_many_queries_however_many_machines_have_joined(
    speech: Team, staff: User, web, django_assert_max_num_queries
) -> None:
    machine("desk-0", speech)
    with django_assert_max_num_queries(35) as asked:
        shown_to(staff, web)
    few = len(asked)
    for number in range(1, 6):
        machine(f"desk-{number}", speech)
    with django_assert_max_num_queries(few):
        assert "desk-5" in shown_to(staff, web)


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, "connected"),
        ({"heard_at": timezone.now() - timedelta(minutes=2)}, "silent"),
        ({"heard_at": None}, "silent"),
        ({"left_at": timezone.now()}, "left"),
        ({"revoked_at": timezone.now(), "left_at": timezone.now()}, "revoked"),
    ],
    ids=["heard", "long ago", "never", "left", "revoked"],
)
def test_the_state_of_a_machine_that_joined(db: None, columns: dict[str, object], state: str) -> None:
    assert machine("desk", None, **columns).state_at(timezone.now()) == state


def test_the_state_of_a_machine_that_has_not_joined(db: None) -> None:
    now = timezone.now()
    agent = Agent.objects.create(name="desk", join_digest="1", join_expires_at=now)
    assert agent.state_at(now) == "expired"
    assert agent.state_at(now - timedelta(seconds=1)) == "invited"


def test_the_page_of_a_server_shows_its_agent_and_what_is_to_be_mended(staff: User, member: User, web) -> None:
    findings = [
        {"name": "clock", "passed": True, "said": "The clock is 0 s behind the service."},
        {"name": "disk", "passed": False, "said": "1 GiB are free: free some."},
    ]
    facts = {"site": True, "join_trusted": True, "trusted": True, "release": "0.1.9", "program": "0123456789ab"}
    machine("gpu7", None, **facts, python="3.11.2", findings=findings, checked_at=timezone.now())
    page = web(staff).get(reverse("node", args=["gpu7"])).content.decode()
    shown = " ".join(page.partition('id="server"')[2].partition("</section>")[0].split())
    for words in (
        "connected",
        "0.1.9",
        "Python 3.11.2",
        "The service has another one",
        "1 GiB are free",
        "to be mended",
    ):
        assert words in shown
    assert reverse("act-on-node", args=["gpu7", "drain"]) in page
    assert 'id="server"' not in web(member).get(reverse("node", args=["gpu7"])).content.decode()
    listed = web(staff).get(reverse("admin:connections_app_agent_changelist")).content.decode()
    assert reverse("node", args=["gpu7"]) in listed


def test_the_administration_has_servers_try_an_update_again(staff: User, web) -> None:
    facts = {"site": True, "join_trusted": True, "trusted": True, "program": "0123456789ab"}
    machine("gpu7", None, **facts, update_to=program_digest(), update_fault=f"{program_digest()} was not heard")
    machine("gpu8", None, **facts)
    asked = {"action": "try_again", "_selected_action": [one.pk for one in Agent.objects.all()]}
    page = web(staff).post(reverse("admin:connections_app_agent_changelist"), asked, follow=True).content.decode()
    assert "The update is tried again on gpu7." in page
    assert "Gpu8 has not been told to change yet" in page
    assert [*Agent.objects.order_by("name").values_list("update_tries", flat=True)] == [1, 0]


def test_the_page_cluster_says_for_which_server_the_update_waits(
    speech: Team, staff: User, stranger: User, web
) -> None:
    """The members of its team see its card, without what administrators alone can do."""
    facts = {"site": True, "join_trusted": True, "trusted": True, "program": "0123456789ab"}
    machine("gpu7", speech, **facts, update_to=program_digest(), update_at=timezone.now() - timedelta(hours=1))
    words = "The update of servers waits for"
    assert words in web(staff).get(reverse("cluster")).content.decode()
    assert words not in web(stranger).get(reverse("cluster")).content.decode()
    card = web(stranger).get(reverse("node", args=["gpu7"])).content.decode().partition('id="server"')[2]
    assert "has neither changed nor said why not" in card
    assert LINK_OF_REVOKE not in card.partition("</section>")[0]
