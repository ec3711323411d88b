"""Pages of recurring jobs: the list, one with its due times, the form, and the way there from a job."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from jobs_app.models import Job, RecurringJob, RecurringRun
from scheduler_app.recurring_jobs.submission import submit_due_runs

YAML = "name: train\nteam: vision\ncommand: python train.py\ngpus: 1\n"
FIELDS = {
    "name": "nightly",
    "schedule": "0 3 * * *",
    "zone": "Europe/Berlin",
    "concurrency": "forbid",
    "missed": "skip",
}


@pytest.fixture
def mia(web, member, cluster) -> Client:
    return web(member)


def add(client: Client, **fields: str) -> RecurringJob:
    client.post("/recurring/new", {**FIELDS, "spec": YAML, **fields})
    return RecurringJob.objects.get()


def text_of(client: Client, address: str) -> str:
    return " ".join(client.get(address).content.decode().split())


def due(recurring: RecurringJob) -> None:
    recurring.refresh_from_db()
    submit_due_runs(recurring.next_due_at)


def test_it_is_added_by_the_form_and_listed_with_its_last_due_times(mia):
    recurring = add(mia)
    assert (recurring.name, recurring.zone, recurring.spec["command"]) == (
        "nightly",
        "Europe/Berlin",
        "python train.py",
    )
    due(recurring)
    due(recurring)
    listed = text_of(mia, "/recurring")
    assert "<code>0 3 * * *</code>" in listed
    assert (f'href="{reverse("job", args=[Job.objects.get().pk])}"' in listed, "skipped" in listed) == (True, True)
    page = text_of(mia, f"/recurring/{recurring.pk}")
    assert f"the run before, {Job.objects.get().pk}, is queued" in page
    assert RecurringRun.objects.count() == 2


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"schedule": "at three"}, "These are not five fields."),
        ({"zone": "Berlin"}, "Berlin is no time zone"),
        ({"spec": "name: [\n"}, "This is not valid YAML"),
        ({"spec": YAML.replace("gpus: 1", "gpus: 9000")}, "gpus: "),
        ({"spec": f"{YAML}deadline: 2100-01-01T00:00Z\n"}, "A deadline is one moment"),
    ],
)
def test_a_fault_is_shown_and_nothing_is_added(mia, fields, fault):
    answer = mia.post("/recurring/new", {**FIELDS, "spec": YAML, **fields})
    assert (answer.status_code, fault in answer.content.decode()) == (200, True)
    assert not RecurringJob.objects.exists()


def test_a_job_is_repeated_on_a_schedule_and_its_runs_lead_back(mia, submit):
    job = submit(name="resnet", deadline="2100-01-01T00:00Z")
    assert f'href="/recurring/new?job={job.pk}"' in text_of(mia, f"/jobs/{job.pk}")
    form = text_of(mia, f"/recurring/new?job={job.pk}")
    assert ("name: resnet" in form, "deadline: 2100" in form) == (True, False)
    recurring = add(mia)
    due(recurring)
    run = Job.objects.get(recurring=recurring)
    assert f'by <a href="/recurring/{recurring.pk}">nightly</a>' in text_of(mia, f"/jobs/{run.pk}")
    listed = text_of(mia, "/jobs?recurring=nightly")
    assert (str(run.pk) in listed, str(job.pk) in listed) == (True, False)


def test_a_change_of_the_schedule_leaves_the_owner_and_one_of_the_spec_does_not(web, mia, staff, member):
    recurring = add(mia)
    address, ada = f"/recurring/{recurring.pk}/change", web(staff)
    shown = ada.get(address).context["form"].initial["spec"]
    ada.post(address, FIELDS | {"schedule": "0 4 * * *", "spec": shown})
    recurring.refresh_from_db()
    assert (recurring.schedule, recurring.owner) == ("0 4 * * *", member)
    ada.post(address, FIELDS | {"spec": shown.replace("train.py", "other.py")})
    recurring.refresh_from_db()
    assert (recurring.spec["command"], recurring.owner) == ("python other.py", staff)


def test_it_is_paused_run_resumed_and_deleted_by_buttons(mia):
    recurring = add(mia)
    place = f"/recurring/{recurring.pk}"
    for verb, seen in (("pause", "nightly is paused."), ("run", "train has been submitted."), ("resume", "goes on")):
        assert f"{place}/{verb}" in text_of(mia, place)
        assert seen in mia.post(f"{place}/{verb}", follow=True).content.decode()
    assert "is queued" in mia.post(f"{place}/run", follow=True).content.decode()
    assert "Its jobs stay." in mia.post(f"{place}/delete", follow=True).content.decode()
    assert (RecurringJob.objects.count(), Job.objects.count()) == (0, 1)


def test_the_list_costs_the_same_however_many_there_are(mia, django_assert_num_queries):
    recurring = add(mia)
    due(recurring)
    with CaptureQueriesContext(connection) as one:
        mia.get("/recurring")
        few = len(one)
    for number in range(3):
        mia.post("/recurring/new", {**FIELDS, "spec": YAML, "name": f"nightly {number}"})
    submit_due_runs(RecurringJob.objects.latest("pk").next_due_at)
    with django_assert_num_queries(few):
        mia.get("/recurring")
