"""Where forecasts of starts and ends are shown: lists of jobs, the explanation of a job, nodes that are emptied."""

import re
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cluster_app.models import Node
from cluster_app.services import cordon
from insight_app.explain.drain_estimate import name_jobs, occupancies
from insight_app.explain.queue_outlook import queue_outlook
from insight_app.models import JobForecast
from insight_app.start_forecasts.showing import Interval
from jobs_app.models import Attempt, Job
from tests.insight.forecast_cluster import forecast_now, running, submitted
from tests.service_lab import Lab
from web.pages.templatetags.format_filters import by_clock, coming

MINUTE = timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One GPU, in the order of submission."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    return lab


def queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as asked:
        assert client.get(address).status_code == 200
    return len(asked)


def text_of(client: Client, address: str) -> str:
    """The words of the page."""
    return " ".join(re.sub(r"<[^>]+>", " ", client.get(address).content.decode()).split())


# -- lists of jobs -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
@pytest.mark.parametrize("address", ["/", "/jobs"])
def test_lists_say_when_each_job_starts_or_is_done_and_when_that_was_forecast(
    cluster: Lab, client: Client, address: str
) -> None:
    running(cluster, submitted(cluster, minutes=10))
    submitted(cluster, minutes=20)
    client.force_login(cluster.user())
    assert "ETA made" not in text_of(client, address)
    forecast_now(cluster)
    shown = text_of(client, address)
    assert re.search(r"ETA made [\d.]+ s ago", shown)
    assert re.search(r"in about \d+ min \(\d+ to \d+ min\)", shown)
    assert re.search(r"done at (\w+ )?\d\d:\d\d \( (\w+ )?\d\d:\d\d to (\w+ )?\d\d:\d\d \) UTC", shown)


@pytest.mark.usefixtures("plain_static")
@pytest.mark.parametrize("address", ["/", "/jobs", "/api/v1/jobs?limit=100"])
def test_lists_with_forecasts_take_one_more_query_however_many_jobs_they_have(
    cluster: Lab, client: Client, address: str
) -> None:
    now = timezone.now()
    first = submitted(cluster, minutes=10)
    client.force_login(cluster.user())
    queries(client, address)  # what is cached
    of_one = queries(client, address)
    jobs = [first, *(submitted(cluster, minutes=10) for _ in range(99))]
    JobForecast.objects.bulk_create(
        JobForecast(job=job.pk, made_at=now, start_median=now + MINUTE, place=1, queue=100) for job in jobs
    )
    assert queries(client, address) == of_one


def test_the_list_over_rest_has_the_forecast_of_each_job_unless_it_is_not_asked_for(
    cluster: Lab, client: Client
) -> None:
    job, fresh = submitted(cluster, minutes=10), submitted(cluster, minutes=10)
    forecast_now(cluster)
    JobForecast.objects.filter(job=fresh.pk).delete()
    client.force_login(cluster.user())
    told = {one["id"]: one["forecast"] for one in client.get("/api/v1/jobs").json()["results"]}
    assert told[str(fresh.pk)] is None
    assert told[str(job.pk)] == client.get(f"/api/v1/jobs/{job.pk}/forecast").json()["forecast"]
    with CaptureQueriesContext(connection) as asked:
        assert "forecast" not in client.get("/api/v1/jobs?fields=id").json()["results"][0]
    assert not [query for query in asked if JobForecast._meta.db_table in query["sql"]]


# -- why a job waits -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_static")
def test_a_waiting_job_says_its_place_who_holds_the_gpus_and_when_it_starts(cluster: Lab, client: Client) -> None:
    first, second = submitted(cluster, minutes=10), submitted(cluster, minutes=20)
    running(cluster, first)
    client.force_login(cluster.user())
    assert client.get(f"/api/v1/jobs/{second.pk}/explain").json()["outlook"] is None
    forecast_now(cluster)
    told = client.get(f"/api/v1/jobs/{second.pk}/explain").json()["outlook"]
    words = "1st of 1 that wait; another job holds the 1 GPU that it may use"
    assert (told["place"], told["gpus"], told["held_gpus"], told["detail"]) == (1, 1, 1, words)
    assert told["start"]["low"] <= told["start"]["median"] <= told["start"]["high"]
    shown = text_of(client, f"/jobs/{second.pk}?tab=why")
    assert re.search(rf"{words} ; a start is expected in about \d+ min \(\d+ to \d+ min\) \.", shown)
    assert client.get(f"/api/v1/jobs/{first.pk}/explain").json()["outlook"] is None, "it runs"


@pytest.mark.usefixtures("plain_static")
def test_pages_call_overdue_a_start_and_an_end_that_should_have_come(cluster: Lab, client: Client) -> None:
    first, second = submitted(cluster, minutes=10), submitted(cluster, minutes=20)
    running(cluster, first)
    client.force_login(cluster.user())
    forecast_now(cluster)
    past = timezone.now() - 10 * MINUTE
    for event, job in (("start", second), ("finish", first)):
        moments = dict.fromkeys((f"{event}_low", f"{event}_median", f"{event}_high"), past)
        JobForecast.objects.filter(job=job.pk).update(**moments)
    overdue = r"at any time \(10 min overdue\)"
    assert re.search(rf"; a start is expected {overdue} \.", text_of(client, f"/jobs/{second.pk}?tab=why"))
    listed = text_of(client, "/jobs")
    assert re.search(rf"starts {overdue}", listed)
    assert re.search(rf"done {overdue}", listed)


def test_gpus_of_types_that_a_job_does_not_allow_are_not_counted(cluster: Lab) -> None:
    cluster.node("n2", "t4", gpus=4)
    job = submitted(cluster, minutes=10, gpu_types=["t4"], rates={"t4": 1.0})
    forecast_now(cluster)
    found = queue_outlook(job)
    assert found is not None
    assert (found.gpus, found.held_gpus, found.detail) == (
        4,
        0,
        "1st of 1 that wait; 4 of the 4 GPUs that it may use are free",
    )


def test_only_jobs_that_would_start_on_free_gpus_have_a_place_before_others(cluster: Lab) -> None:
    """Tasks beyond their array's limit, and jobs that wait for others or for their begin time, are no queue."""
    first = submitted(cluster, minutes=10)
    running(cluster, first)
    tasks = submitted(cluster, minutes=1, array={"start": 0, "end": 9, "at_a_time": 1}).array.jobs.order_by(
        "array_index"
    )
    submitted(cluster, minutes=1, after=[{"job": str(first.pk), "on": "success"}])
    submitted(cluster, minutes=1, begin_time=(cluster.now + 600 * MINUTE).isoformat())
    last = submitted(cluster, minutes=20)
    forecast_now(cluster)
    found = [queue_outlook(job) for job in (tasks[0], tasks[9], last)]
    assert [one and one.queue for one in found] == [2, 3, 2]
    assert [one and one.place for one in found] == [1, 2, 2]


# -- nodes that are emptied ----------------------------------------------------------------------------------------


def ends(job: Job, *minutes: float) -> None:
    """A forecast of the job's end: 10, 50 and 90 %."""
    now = timezone.now()
    moments = (now + one * MINUTE for one in minutes)
    columns = dict(zip(("finish_low", "finish_median", "finish_high"), moments, strict=True))
    JobForecast.objects.create(job=job.pk, made_at=now, **columns, place=0, queue=0)


@pytest.mark.usefixtures("plain_static")
def test_a_cordoned_node_is_empty_when_the_last_of_its_jobs_is_forecast_to_end(cluster: Lab, client: Client) -> None:
    job = submitted(cluster, minutes=None)
    running(cluster, job)
    client.force_login(cluster.user())
    assert client.get("/api/v1/nodes/n1").json()["empty_forecast"] is None
    ends(job, 20, 60, 150)
    assert client.get("/api/v1/nodes/n1").json()["empty_forecast"] is None, "it is in service"
    assert re.search(r"If cordoned now empty at (\w+ )?\d\d:\d\d \(", text_of(client, "/nodes/n1"))
    cordon(Node.objects.get(), reason="fan", actor=None)
    node = client.get("/api/v1/nodes/n1").json()
    low, median, high = (datetime.fromisoformat(node["empty_forecast"][name]) for name in ("low", "median", "high"))
    now = timezone.now()
    for at, minutes in ((low, 20), (median, 60), (high, 150)):
        assert at == pytest.approx(now + minutes * MINUTE, abs=MINUTE)
    assert datetime.fromisoformat(node["empty_at"]) == median
    shown = text_of(client, "/nodes/n1")
    assert re.search(r"Expected empty at (\w+ )?\d\d:\d\d \(", shown)
    assert str(job) in shown
    assert "1 job there; empty in about 1 h (20 min to" in text_of(client, "/cluster")


def test_a_job_of_more_years_than_dates_have_leaves_the_time_of_a_cordon_unknown(cluster: Lab, client: Client) -> None:
    job = submitted(cluster, minutes=1, total_steps=2**62)
    Attempt.objects.filter(pk=running(cluster, job).pk).update(rate=1.0)
    cordon(Node.objects.get(), reason="fan", actor=None)
    client.force_login(cluster.user())
    answer = client.get("/api/v1/nodes/n1")
    assert (answer.status_code, answer.json()["empty_at"]) == (200, None)


def test_a_job_without_a_forecast_leaves_the_time_of_a_cordon_unknown(cluster: Lab) -> None:
    job = submitted(cluster, minutes=None)
    running(cluster, job)
    (found,) = occupancies([Node.objects.get()], timezone.now(), if_state="cordoned").values()
    assert (found.within, found.empty_at) == (None, None)


def test_a_drain_stops_all_jobs_and_waits_for_no_forecast(cluster: Lab) -> None:
    job = submitted(cluster, minutes=None)
    running(cluster, job)
    ends(job, 20, 60, 150)
    now = timezone.now()
    (found,) = occupancies([Node.objects.get()], now, if_state="draining").values()
    assert (found.within, found.empty_at) == (None, now + timedelta(seconds=job.grace_s))
    assert (list(found.jobs), name_jobs(found)) == ([job], str(job))


@pytest.mark.usefixtures("plain_static")
def test_the_page_of_a_node_names_no_job_of_another_team(cluster: Lab, client: Client) -> None:
    job = submitted(cluster, minutes=10, name="hush")
    running(cluster, job)
    client.force_login(cluster.user("eve", "rivals"))
    shown = text_of(client, "/nodes/n1")
    assert "hush" not in shown
    assert "1 there" in shown


def test_the_occupancy_of_many_nodes_takes_as_many_queries_as_of_one(cluster: Lab) -> None:
    running(cluster, submitted(cluster, minutes=10))
    counts = []
    for number in range(2, 4):
        cluster.node(f"n{number}", "a100", gpus=1)
        with CaptureQueriesContext(connection) as asked:
            occupancies(list(Node.objects.all()), timezone.now())
        counts.append(len(asked) - 1)
    assert counts == [2, 2]


# -- words ---------------------------------------------------------------------------------------------------------


def test_intervals_name_a_unit_once_and_the_day_where_it_is_not_today() -> None:
    now = timezone.now() + timedelta(seconds=20)
    assert ">in about 4 min (2 to 9 min)</time>" in coming(
        Interval(now + 2 * MINUTE, now + 4 * MINUTE, now + 9 * MINUTE)
    )
    assert "(59 min to 1 h 1 min)" in coming(Interval(now + 59 * MINUTE, now + 60 * MINUTE, now + 61 * MINUTE))
    far = now + timedelta(days=2)
    assert f">{far:%a %H:%M}</time> (" in by_clock(Interval(far, far, None))
    assert " to more than 3 days)" in by_clock(Interval(far, far, None))
    assert by_clock(Interval(None, None, None)) == "in more than 3 days"


def test_what_should_have_happened_by_now_is_overdue() -> None:
    now = timezone.now()
    past = Interval(now - 3 * MINUTE, now - 2 * MINUTE, now - MINUTE)
    for words in (coming, by_clock):
        assert ">at any time (1 min overdue)</time>" in words(past)
    assert ">now</time>" in coming(Interval(now - 3 * MINUTE, now - 2 * MINUTE, now))


def test_what_reads_the_same_at_both_ends_of_an_interval_is_told_once() -> None:
    now = timezone.now() + timedelta(seconds=20)
    at = (now + MINUTE).replace(second=10)
    alike = Interval(at, at + timedelta(seconds=5), at + timedelta(seconds=40))
    assert re.fullmatch(r"at about <time [^>]*>(\w+ )?\d\d:\d\d</time> UTC", by_clock(alike))
    assert ">in about 3 min</time>" in coming(Interval(now + 3 * MINUTE, now + 3 * MINUTE, now + 3 * MINUTE))


def test_an_event_that_is_due_comes_now() -> None:
    now = timezone.now()
    assert ">now</time>" in coming(Interval(now - MINUTE, now, now))
    assert ">now or within 3 min</time>" in coming(Interval(now, now, now + 3 * MINUTE + timedelta(seconds=20)))
    later = now + 4 * MINUTE + timedelta(seconds=20)
    assert ">in about 4 min (now to 4 min)</time>" in coming(Interval(now, later, later))
