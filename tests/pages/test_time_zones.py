"""Pages in the zone of their reader: that of the browser, or the one that the reader chose; REST stays in UTC."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from cluster_app.models import Node
from insight_app.models import JobForecast
from jobs_app.lifecycle.commands import change_job
from jobs_app.models import Job, PersonalSettings
from jobs_app.submission.conversion import parse_change
from scheduler_app.models import PolicySetting
from web.pages.time_zones import axis_ms, axis_time, in_page_zone, zone_at

KATHMANDU = "Asia/Kathmandu"
"""UTC+05:45, without summer time and without an abbreviation."""
OFFSET = timedelta(hours=5, minutes=45)
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def reader(member: User, web) -> Client:
    """A browser in Kathmandu."""
    client = web(member)
    client.cookies["time_zone"] = KATHMANDU
    return client


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize(
    ("zone", "text"), [("America/New_York", "0001-01-01 00:00 UTC"), (KATHMANDU, "9999-12-31 23:59 UTC")]
)
def test_a_time_that_the_zone_does_not_reach_is_shown_as_it_is_written(staff, web, zone, text):
    """In a sentence that somebody has written, and in the form of a job."""
    PolicySetting.objects.create(policy="fifo", note=f"as on {text}")
    client = web(staff)
    client.cookies["time_zone"] = zone
    assert f"as on {text}" in page(client, reverse("policies"))
    at = f"{text[:10]}T{text[11:16]}:00Z"
    told = client.post(reverse("check-job"), {"mode": "yaml", "yaml": f"command: x\ngpus: 1\nbegin_time: '{at}'\n"})
    assert told.json()["fields"]["begin_time"] == at


# -- which zone -----------------------------------------------------------------------------------------------------


def test_a_page_names_the_zone_of_the_browser(reader):
    shown = page(reader, reverse("jobs"))
    assert "Times are of Asia/Kathmandu" in shown
    assert 'data-zone="Asia/Kathmandu" data-follows-browser' in shown


@pytest.mark.parametrize("told", ["", "Mars/Olympus", "../../etc/passwd", "Europe", "x" * 5000])
def test_without_a_zone_that_exists_pages_are_in_utc(member, web, told):
    client = web(member)
    client.cookies["time_zone"] = told
    assert "Times are of UTC" in page(client, reverse("jobs"))


def test_the_zone_that_a_person_sets_goes_before_that_of_the_browser(reader, member):
    assert KATHMANDU in page(reader, reverse("account"))
    answer = reader.post(reverse("account"), {"time_zone": "Europe/Berlin"}, follow=True).content.decode()
    assert "Times are of Europe/Berlin" in answer
    assert "data-follows-browser" not in answer
    assert PersonalSettings.objects.get(user=member).time_zone == "Europe/Berlin"
    reader.post(reverse("account"), {"time_zone": ""})
    assert "Times are of Asia/Kathmandu" in page(reader, reverse("jobs"))


def test_a_zone_that_does_not_exist_is_refused_at_its_field(reader):
    answer = reader.post(reverse("account"), {"time_zone": "Mars/Olympus"}).content.decode()
    assert 'class="fault"' in answer
    assert not PersonalSettings.objects.exists()


def test_rest_is_in_utc_whatever_the_browser_says(reader, jobs):
    assert reader.get("/api/v1/jobs").json()["results"][0]["created_at"].endswith("Z")


# -- what is written in it ------------------------------------------------------------------------------------------


def test_hovered_times_events_and_the_bar_of_a_job_are_in_the_zone_of_the_page(reader, submit):
    job = submit()
    local = job.created_at + OFFSET
    shown = page(reader, reverse("job", args=[job.pk]))
    assert f'title="{local:%F %T} UTC+05:45"' in shown
    assert re.search(rf"\s{local:%H:%M:%S} UTC\+05:45\s", shown)
    submitted = job.events.get().at + OFFSET
    assert f"{submitted:%H:%M:%S}</time>" in page(reader, reverse("job", args=[job.pk]) + "?tab=events")


def test_an_expected_end_is_in_the_zone_of_the_page(reader, decided):
    job, at = Job.objects.filter(state=Job.State.STARTING).first(), timezone.now() + timedelta(minutes=1)
    ends = dict.fromkeys(("finish_low", "finish_median", "finish_high"), at)
    JobForecast.objects.create(job=job.pk, made_at=timezone.now(), **ends, place=0, queue=1)
    shown = page(reader, reverse("jobs"))
    assert re.search(rf"done at about <time [^>]*>{at + OFFSET:%H:%M}</time> UTC\+05:45", shown)


def test_reasons_that_name_a_time_are_in_the_zone_of_the_page(reader, submit):
    begin = timezone.now() + timedelta(days=2)
    job = submit(begin_time=begin.isoformat())
    shown = page(reader, reverse("job", args=[job.pk]) + "?tab=why")
    assert f"not started before {begin + OFFSET:%F %H:%M:%S} UTC+05:45" in shown
    assert " UTC," not in shown


def test_a_changed_deadline_is_told_in_the_zone_of_the_page(reader, submit, member):
    job, deadline = submit(), timezone.now() + timedelta(days=2)
    change_job(job, parse_change({"deadline": deadline.isoformat()}), actor=member)
    shown = page(reader, reverse("job", args=[job.pk]) + "?tab=events")
    assert f"deadline none → {deadline + OFFSET:%F %H:%M} UTC+05:45" in shown


def test_a_chart_and_its_table_are_in_the_zone_of_the_page(reader, decided):
    shown = page(reader, reverse("utilization"))
    figure = json.loads(re.search(r'<script id="figure" type="application/json">(.*?)</script>', shown).group(1))
    end = datetime.fromisoformat(figure["layout"]["xaxis"]["range"][1])
    assert abs(end - (timezone.now() + OFFSET).replace(tzinfo=None)) < timedelta(hours=1)
    assert figure["layout"]["xaxis"]["title"]["text"] == KATHMANDU
    assert "hours of Asia/Kathmandu" in shown
    assert not re.search(r"\d\d:\d\d UTC[^+]", shown)


def test_no_page_is_in_two_zones(reader, decided):
    for name in ("home", "jobs", "cluster", "timeline", "rounds", "fairness", "utilization", "energy", "audit"):
        assert not re.search(r"\d\d:\d\d(:\d\d)? UTC(?!\+)", page(reader, reverse(name))), name
    node = Node.objects.first().name
    assert not re.search(r"\d\d:\d\d(:\d\d)? UTC(?!\+)", page(reader, reverse("node", args=[node])))


# -- words ----------------------------------------------------------------------------------------------------------


def test_times_of_a_sentence_are_rewritten():
    with timezone.override("Europe/Berlin"):
        assert (
            in_page_zone("in maintenance until 2026-07-01 12:00 UTC.") == "in maintenance until 2026-07-01 14:00 CEST."
        )
        one, two = "2026-07-01 12:00 to 2026-07-02 12:00 UTC", "2026-07-01 14:00 to 2026-07-02 14:00 CEST"
        assert in_page_zone(f"from {one}: {one}") == f"from {two}: {two}"
        across = "2026-10-24 12:00 to 2026-10-26 12:00 UTC"
        assert in_page_zone(across) == "2026-10-24 14:00 CEST to 2026-10-26 13:00 CET"
        assert in_page_zone("2026-02-31 12:00 UTC; loss 0.1") == "2026-02-31 12:00 UTC; loss 0.1"


def test_a_time_axis_has_the_offset_of_each_time():
    winter = datetime(2026, 12, 1, 12, tzinfo=UTC)
    with timezone.override("Europe/Berlin"):
        assert (axis_time(NOON), axis_time(winter)) == ("2026-07-01T14:00:00", "2026-12-01T13:00:00")
        assert axis_ms(NOON.timestamp()) - 1000 * NOON.timestamp() == 7_200_000
        assert axis_ms(winter.timestamp()) - 1000 * winter.timestamp() == 3_600_000
        assert (zone_at(NOON), zone_at(winter)) == ("CEST", "CET")
