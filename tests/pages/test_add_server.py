"""The page *Add a server*: a token, the line for the server, and what is refused."""

from django.contrib.auth.models import User
from django.urls import reverse

from connections_app.models import Agent
from jobs_app.models.team import digest_of
from tests.pages.test_joined_machines import machine


def test_an_administrator_makes_a_token_that_the_answer_alone_shows(staff: User, web) -> None:
    page = web(staff).post(reverse("add-server"), {"name": "gpu1"}).content.decode()
    assert "/agent/install | sh -s --" in page
    token = page.partition('<pre id="token">')[2].partition("</pre>")[0]
    assert Agent.objects.get(name="gpu1", site=True).join_digest == digest_of(token)
    assert token not in web(staff).get(reverse("add-server")).content.decode()


def test_who_asks_over_http_is_told_not_to_fetch_a_program_that_way(staff: User, web) -> None:
    pages = [
        web(staff).post(reverse("add-server"), {"name": name}, secure=secure).content.decode()
        for name, secure in (("gpu1", False), ("gpu2", True))
    ]
    assert ["the service's https address" in page for page in pages] == [True, False]


def test_a_name_that_is_taken_or_is_none_is_refused_in_its_field(staff: User, web) -> None:
    machine("desk", None)
    for name, said in (("desk", "desk is a volunteer&#x27;s machine: take another name"), ("GPU 7", "lower-case")):
        page = web(staff).post(reverse("add-server"), {"name": name}).content.decode()
        fault = page.partition('class="fault"')[2].partition("</p>")[0]
        assert said in fault
        assert "/agent/install" not in page


def test_the_page_cluster_leads_administrators_there(staff: User, member: User, web) -> None:
    shown = {
        user.username: reverse("add-server") in web(user).get(reverse("cluster")).content.decode()
        for user in (staff, member)
    }
    assert shown == {staff.username: True, member.username: False}
