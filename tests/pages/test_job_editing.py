"""Edit page of a job: the fields that its state and its reader allow, by the rules of PATCH."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs_app.models import Job


@pytest.fixture
def browser(member, web) -> Client:
    return web(member)


def shown(browser: Client, job: Job) -> dict[str, str]:
    """Fields of the form with their values, as a browser would send them back."""
    form = browser.get(reverse("edit-job", args=[job.pk])).context["form"]
    return {name: "" if (value := form[name].value()) is None else str(value) for name in form.fields}


def save(browser: Client, job: Job, **changes: str) -> str:
    fields = shown(browser, job) | changes
    answer = browser.post(reverse("edit-job", args=[job.pk]), fields, follow=True)
    job.refresh_from_db()
    return answer.content.decode()


def test_the_page_of_a_job_links_to_its_edit_page(browser, submit):
    job = submit()
    assert reverse("edit-job", args=[job.pk]) in browser.get(reverse("job", args=[job.pk])).content.decode()


def test_a_queued_job_is_changed_as_a_whole(browser, submit):
    job = submit(tags={"a": "1"}, env={"LR": "0.1"})
    told = save(
        browser,
        job,
        name="two",
        tags="a=2\nb = c=d",
        env="LR=0.2",
        command="python b.py",
        gpus="2",
        time_limit="2h",
        retries="3",
        gpu_types="v100, t4",
        weight="0.5",
    )
    assert "is changed." in told
    assert (job.name, job.tags, job.env) == ("two", {"a": "2", "b": "c=d"}, {"LR": "0.2"})
    assert (job.command, job.gpus_min, job.gpus_max, job.gpu_types) == ("python b.py", 2, 2, ["v100", "t4"])
    assert (job.time_limit_s, job.retries, job.weight) == (7200, 3, 0.5)


def test_what_is_left_as_it_is_leaves_no_trace(browser, submit):
    job = submit(
        begin_time=(timezone.now() + timedelta(hours=1)).isoformat(), env={"A": "1"}, gpus={"min": 1, "max": 2}
    )
    assert "Nothing was changed." in save(browser, job)
    assert [event.kind for event in job.events.all()] == ["submitted"]


def test_times_are_read_in_the_zone_of_the_page(browser, submit):
    job, begin = submit(), (timezone.now() + timedelta(days=1)).replace(second=0, microsecond=0)
    browser.cookies["time_zone"] = "Asia/Kathmandu"
    save(browser, job, begin_time=f"{begin + timedelta(hours=5, minutes=45):%Y-%m-%dT%H:%M}")
    assert job.begin_time == begin
    save(browser, job, begin_time="")
    assert job.begin_time is None


def test_faults_are_shown_at_their_fields(browser, submit):
    job = submit()
    told = save(browser, job, gpus="5000", env="no pair")
    assert "Write one name=value a line" in told
    told = save(browser, job, gpus="5000", deadline="2020-01-01T00:00")
    assert told.count('class="fault"') >= 1
    assert "This time has passed" in told
    assert job.gpus_min == 1


def test_each_state_has_its_fields(browser, submit, web, staff):
    job = submit()
    assert {"command", "gpus", "begin_time", "deadline", "name"} <= shown(browser, job).keys()
    Job.objects.filter(pk=job.pk).update(state="running")
    assert not {"command", "gpus", "begin_time"} & shown(browser, job).keys()
    assert "deadline" in shown(browser, job)
    Job.objects.filter(pk=job.pk).update(state="succeeded", finished_at=timezone.now())
    assert shown(browser, job).keys() == {"name", "tags"}


def test_who_is_not_its_owner_changes_no_command(submit, web, member, django_user_model):
    job, mate = submit(), django_user_model.objects.create_user("zoe")
    mate.teams.add(job.team)
    assert "command" not in shown(web(mate), job)
    save(web(mate), job, name="theirs", command="env")
    assert (job.name, job.command) == ("theirs", "true")


def test_every_wrong_field_is_marked(browser, submit):
    job = submit(tags={"b": "1"})
    told = save(browser, job, gpus="5000", env="no pair", tags="a=1\na=2", deadline="2020-01-01T00:00", name="new")
    for field in ("gpus", "env", "tags", "deadline"):
        assert f'<div class="field wrong{" wide" * (field in ("env", "tags"))}" data-field="{field}">' in told
    assert "a is there twice" in told
    assert (job.name != "new", job.tags) == (True, {"b": "1"})


def test_a_deadline_comes_after_the_begin(browser, submit):
    begin = timezone.now() + timedelta(days=2)
    job = submit(begin_time=begin.isoformat())
    told = save(browser, job, deadline=f"{begin - timedelta(days=1):%Y-%m-%dT%H:%M}")
    assert "at the earliest: give a deadline after that" in told
    assert job.deadline is None


def test_a_change_of_the_gpus_is_one_change_in_the_history(browser, submit):
    job = submit(gpus=4)
    save(browser, job, gpus="2")
    assert job.events.last().message == "GPUs 4 → 2"
