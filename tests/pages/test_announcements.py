"""Announcements of administrators, and whom to ask for help, on pages, the login page and over REST."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs_app.models import SiteAnnouncement


@pytest.fixture
def announced(db) -> SiteAnnouncement:
    return SiteAnnouncement.objects.create(text="The V100 leave on Friday: see https://example.org/v100 <b>")


def test_each_page_shows_an_announcement_with_its_links(announced, member, web):
    shown = web(member).get(reverse("jobs")).content.decode()
    assert "The V100 leave on Friday" in shown
    assert 'href="https://example.org/v100"' in shown
    assert "&lt;b&gt;" in shown


def test_it_is_shown_from_its_begin_until_its_end(announced, member, web):
    client, hour = web(member), timedelta(hours=1)
    for begins, ends, is_shown in ((hour, None, False), (-hour, hour, True), (-2 * hour, -hour, False)):
        now = timezone.now()
        SiteAnnouncement.objects.update(begins_at=now + begins, ends_at=ends and now + ends)
        assert ("The V100 leave" in client.get(reverse("jobs")).content.decode()) is is_shown
        assert len(client.get("/api/v1/announcements").json()["results"]) == is_shown


def test_the_login_page_shows_only_what_is_meant_for_it(announced):
    assert "The V100 leave" not in Client().get(reverse("login")).content.decode()
    SiteAnnouncement.objects.update(before_login=True)
    assert "The V100 leave" in Client().get(reverse("login")).content.decode()


def test_an_administrator_announces_in_the_administration(staff, web):
    now = timezone.now()
    fields = {"text": "hello", "begins_at_0": f"{now:%Y-%m-%d}", "begins_at_1": f"{now:%H:%M:%S}"}
    answer = web(staff).post(reverse("admin:jobs_app_siteannouncement_add"), fields)
    assert answer.status_code == 302
    assert SiteAnnouncement.objects.get().created_by == staff
    before = {"ends_at_0": "2020-01-01", "ends_at_1": "00:00:00"}
    refused = web(staff).post(reverse("admin:jobs_app_siteannouncement_add"), fields | before)
    assert "It must end after it begins." in refused.content.decode()


def test_help_is_named_on_pages_and_before_the_login(settings, member, web, db):
    settings.MOTLEY_HELP_CONTACT = "gpu-help@example.org"
    for answer in (web(member).get(reverse("jobs")), Client().get(reverse("login"))):
        assert "mailto:gpu-help@example.org" in answer.content.decode()
    settings.MOTLEY_HELP_CONTACT = ""
    assert "ask an administrator of this site" in Client().get(reverse("login")).content.decode()


def test_the_end_of_an_announcement_is_told(announced, member, web):
    SiteAnnouncement.objects.update(before_login=True)
    for client, name in ((web(member), "jobs"), (Client(), "login")):
        assert "Shown until" not in client.get(reverse(name)).content.decode()
    end = timezone.now() + timedelta(days=1)
    SiteAnnouncement.objects.update(ends_at=end)
    for client, name in ((web(member), "jobs"), (Client(), "login")):
        shown = client.get(reverse(name)).content.decode()
        assert "Shown until" in shown
        assert end.isoformat() in shown
