"""Many rows rewritten at once, as the database of the run does it."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from database.bulk_update import rewrite
from jobs_app.models import Job
from tests.service_lab import Lab

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
AWKWARD = 'it\'s 100 % "quoted" \\ {braced}, NULL\n→ é'


@pytest.fixture
def jobs(lab: Lab) -> list[Job]:
    lab.node("n1")
    return [lab.submit(name=f"job-{n}") for n in range(3)]


def test_each_row_gets_values_of_its_own(jobs: list[Job]) -> None:
    rewrite(Job, ("step", "step_at"), {job.pk: (n, NOON + timedelta(hours=n)) for n, job in enumerate(jobs)})
    written = Job.objects.order_by("pk").values_list("step", "step_at")
    assert list(written) == [(n, NOON + timedelta(hours=n)) for n in range(3)]


def test_other_rows_and_other_fields_stay(jobs: list[Job]) -> None:
    before = Job.objects.values().get(pk=jobs[1].pk)
    rewrite(Job, ("step",), {jobs[0].pk: (7,)})
    assert Job.objects.values().get(pk=jobs[1].pk) == before
    assert Job.objects.get(pk=jobs[0].pk).name == "job-0"


def test_documents_and_texts_come_back_as_they_were(jobs: list[Job]) -> None:
    reasons = [{"code": "outbid", "detail": AWKWARD, "numbers": {"share": 0.5, "list": [None, True]}}]
    rewrite(Job, ("reasons", "message"), {job.pk: (reasons, AWKWARD) for job in jobs})
    assert list(Job.objects.values_list("reasons", "message")) == [(reasons, AWKWARD)] * 3


def test_nothing_is_a_value_too(jobs: list[Job]) -> None:
    rewrite(Job, ("step_at",), {jobs[0].pk: (NOON,), jobs[1].pk: (None,)})
    assert [Job.objects.get(pk=job.pk).step_at for job in jobs[:2]] == [NOON, None]


def test_a_query_for_changes_since_a_moment_finds_the_rows(jobs: list[Job]) -> None:
    since = timezone.now()
    rewrite(Job, ("step",), {jobs[0].pk: (7,)})
    assert list(Job.objects.filter(updated_at__gte=since)) == [jobs[0]]


def test_rewriting_nothing_asks_nothing(db: None, django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        rewrite(Job, ("step",), {})


def test_the_rules_of_the_table_hold(jobs: list[Job]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        rewrite(Job, ("weight",), {jobs[0].pk: (-1.0,)})
