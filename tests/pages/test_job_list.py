"""The list of jobs: arrays as one row, states as a filter, and actions on a selection."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from insight_app.models import JobForecast
from insight_app.start_forecasts.showing import Interval
from jobs_app.lifecycle.commands import hold_job
from jobs_app.models import Job
from tests.pages.conftest import decide
from web.pages import job_rows, job_selection


@pytest.fixture
def array(submit) -> list[Job]:
    """Five tasks, of which one has succeeded and one failed, beside a job of its own."""
    submit(name="sweep", array={"start": 0, "end": 4}, tags={"lr": "0.1"})
    submit(name="alone")
    tasks = list(Job.objects.filter(name="sweep").order_by("array_index"))
    for task, state in ((tasks[0], Job.State.SUCCEEDED), (tasks[4], Job.State.FAILED)):
        Job.objects.filter(pk=task.pk).update(state=state, finished_at=task.created_at)
    return tasks


def listed(client: Client, **query: Any) -> list[tuple[str, int]]:
    """Name of each row and, for an array, the number of its tasks."""
    rows = client.get(reverse("jobs"), query).context["listed"]
    return [(row.job.name if row.tasks else str(row.job), row.tasks.total if row.tasks else 1) for row in rows]


@pytest.mark.parametrize(
    "query", [{}, {"q": "sweep"}, {"tag": "lr=0.1"}, {"state": "failed"}, {"state": ["queued", "succeeded"]}], ids=str
)
def test_an_array_is_one_row_under_every_filter_that_its_tasks_match(query, array, member, web):
    expected = [("sweep", 5)]
    if not {"q", "tag"} & query.keys() and query.get("state") != "failed":
        expected.insert(0, ("alone", 1))
    assert listed(web(member), **query) == expected


def test_a_list_is_filtered_by_the_command_with_a_chip_and_counts_of_what_is_left(array, member, web, submit):
    submit(name="other", command="python evaluate.py")
    context = web(member).get(reverse("jobs"), {"command": "evaluate"}).context
    assert [row.job.name for row in context["listed"]] == ["other"]
    assert [(chip["name"], chip["value"]) for chip in context["chips"]] == [("command", "evaluate")]
    assert [(segment.state, segment.count, address) for segment, address in context["state_bar"]] == [
        ("queued", 1, "?command=evaluate&state=queued")
    ]


def test_an_array_none_of_whose_tasks_matches_is_not_listed(array, member, web):
    assert listed(web(member), state="running") == []


def test_one_task_is_found_by_its_name_or_id(array, member, web):
    client = web(member)
    assert listed(client, q="sweep[3]") == [("sweep[3]", 1)]
    assert listed(client, q=str(array[3].pk)) == [("sweep[3]", 1)]


def test_an_array_opens_as_the_list_of_its_tasks(array, member, web):
    rows = listed(web(member), array=str(array[0].array_id))
    assert rows == [(f"sweep[{index}]", 1) for index in (4, 3, 2, 1, 0)]


def test_an_array_says_how_much_of_it_is_done_and_what_it_holds(array, member, web):
    decide()
    shown = text_of(web(member))
    assert "1 of 5 done" in shown
    assert "1 succeeded , 1 failed" in shown
    assert re.search(r"3 starting ,.* 3 A100", shown)


def test_the_bar_of_states_counts_what_the_other_filters_leave_and_leads_to_each_state(array, member, web):
    bar = web(member).get(reverse("jobs"), {"q": "sweep", "state": "failed"}).context["state_bar"]
    assert [(segment.state, segment.count, segment.width, address) for segment, address in bar] == [
        ("queued", 3, 100, "?q=sweep&state=queued"),
        ("succeeded", 1, 0, "?q=sweep&state=succeeded"),
        ("failed", 1, 0, "?q=sweep&state=failed"),
    ]


def test_ended_jobs_are_counted_up_to_a_limit_whatever_the_number_of_them(array, member, web, submit, monkeypatch):
    monkeypatch.setattr(job_rows, "MOST_COUNTED", 2)
    ended = {"state": Job.State.SUCCEEDED, "finished_at": timezone.now()}
    client = web(member)
    for expected in ("succeeded 1", "succeeded 2", "succeeded 2+", "succeeded 2+"):
        assert f"{expected} " in text_of(client)
        Job.objects.filter(pk=submit(name="more").pk).update(**ended)


def text_of(client: Client) -> str:
    """The list of jobs, as read."""
    return " ".join(re.sub("<[^>]+>", " ", client.get(reverse("jobs")).content.decode()).split())


def test_an_array_is_done_when_the_last_of_its_tasks_is_by_their_forecasts(array, member, web):
    now = timezone.now()
    for task in array[1:3]:
        columns = {f"finish_{name}": now + timedelta(hours=1 + task.array_index) for name in ("low", "median", "high")}
        JobForecast.objects.create(job=task.pk, made_at=now, place=1, queue=3, **columns)
    assert "done at" not in text_of(web(member))  # nothing is known of one task
    JobForecast.objects.create(job=array[3].pk, made_at=now, place=2, queue=3, **columns)
    end = now + timedelta(hours=3)
    assert [row.forecast.finish for row in web(member).get(reverse("jobs")).context["listed"] if row.tasks] == [
        Interval(end, end, end)
    ]
    assert "done at about" in text_of(web(member))
    JobForecast.objects.filter(job=array[1].pk).update(finish_high=None)
    assert "to more than 3 days)" in text_of(web(member))


def test_restarts_of_an_array_are_those_of_its_tasks(array, member, web):
    for task, attempts in zip(array, (0, 1, 2, 4), strict=False):
        Job.objects.filter(pk=task.pk).update(attempt_count=attempts)
    (row,) = (row for row in web(member).get(reverse("jobs")).context["listed"] if row.tasks)
    assert row.restarts == 4


def act(client: Client, verb: str, **data: Any) -> str:
    return client.post(reverse("act-on-jobs", args=[verb]), data, follow=True).content.decode()


def test_a_selected_array_is_held_and_released_with_the_jobs_beside_it(array, member, web):
    client, chosen = web(member), {"array": str(array[0].array_id), "job": str(Job.objects.get(name="alone").pk)}
    assert "Holding 4 jobs" in act(client, "hold", **chosen)
    assert Job.objects.filter(held=True).count() == 4
    assert "Released 4 jobs" in act(client, "release", **chosen)
    assert not Job.objects.filter(held=True).exists()


def test_the_weight_of_selected_jobs_is_set_within_the_limit_of_their_team(array, member, web):
    client, chosen = web(member), {"array": str(array[0].array_id)}
    act(client, "weight", weight="2.5", **chosen)
    assert set(Job.objects.filter(name="sweep").queued().values_list("weight", flat=True)) == {2.5}
    assert "3 jobs: Weight: Team vision allows a weight of at most 4" in act(client, "weight", weight="5", **chosen)


@pytest.mark.parametrize("weight", ["", "heavy", "-1"])
def test_what_is_no_weight_is_refused_with_the_fields_name(weight, array, member, web):
    assert "1 job: Weight: " in act(web(member), "weight", weight=weight, job=str(array[1].pk))
    assert Job.objects.get(pk=array[1].pk).weight == 1


def test_an_action_leads_back_to_the_list_as_it_was_filtered(array, member, web):
    sent = {"job": str(array[1].pk), "back": "state=queued&tag=lr%3D0.1"}
    answer = web(member).post(reverse("act-on-jobs", args=["hold"]), sent)
    assert answer.url == "/jobs?state=queued&tag=lr%3D0.1"


def test_an_action_on_nothing_says_what_to_do(array, member, web):
    assert "No job is selected" in act(web(member), "hold")


def test_what_cannot_be_done_is_said_and_the_rest_is_done(array, member, web):
    hold_job(array[1], actor=member)
    shown = act(web(member), "release", job=[str(array[1].pk), str(array[2].pk)])
    assert "Released 1 job:" in shown
    assert "1 job: " in shown


def test_a_large_array_is_acted_on_in_parts_that_are_told(array, member, web, monkeypatch):
    monkeypatch.setattr(job_selection, "MOST_AT_ONCE", 2)
    assert "repeat it for the other 1." in act(web(member), "hold", array=str(array[0].array_id))
    assert Job.objects.filter(held=True).count() == 2


@pytest.mark.parametrize("verb", ["hold", "release", "weight"])
def test_jobs_and_arrays_of_other_teams_are_not_found(verb, array, stranger, web):
    for chosen in ({"job": str(array[1].pk)}, {"array": str(array[0].array_id)}, {"job": "x"}):
        answer = web(stranger).post(reverse("act-on-jobs", args=[verb]), chosen | {"weight": "2"})
        assert answer.status_code == 404


def test_cancelling_an_array_asks_first_and_cancels_what_is_unfinished(array, member, web):
    client, chosen = web(member), {"array": str(array[0].array_id)}
    asked = client.post(reverse("cancel-jobs"), chosen | {"ask": "yes"}).content.decode()
    assert "Cancel 3 jobs?" in asked
    assert not Job.objects.filter(state=Job.State.CANCELLED).exists()
    client.post(reverse("cancel-jobs"), {"job": re.findall(r'name="job" value="([^"]+)"', asked)})
    assert Job.objects.filter(state=Job.State.CANCELLED, name="sweep").count() == 3


def test_the_filters_stay_when_a_tag_is_added(array, member, web):
    shown = web(member).get(reverse("jobs"), {"tag": "lr=0.1", "array": str(array[0].array_id)}).content.decode()
    assert '<input type="hidden" name="tag" value="lr=0.1">' in shown
    assert f'<input type="hidden" name="array" value="{array[0].array_id}">' in shown


def test_more_arrays_cost_no_more_queries(array, member, web, submit, django_assert_max_num_queries):
    client = web(member)
    with django_assert_max_num_queries(40) as few:
        client.get(reverse("jobs"))
    for number in range(4):
        submit(name=f"sweep-{number}", array={"start": 0, "end": 9})
    with django_assert_max_num_queries(len(few)):
        client.get(reverse("jobs"))
