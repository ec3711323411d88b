"""The demo: sample jobs arrive as long as somebody looks at the pages."""

import os
import time
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, modify_settings

from jobs_app.models import Job
from operations.demo import (
    LOOKING_S,
    UNFINISHED,
    create_teams,
    declare_emulated_cluster,
    somebody_looks,
    submit_another,
)
from operations.sample_jobs import FIRST


@pytest.fixture
def member(db) -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def last_page_view(tmp_path: Path, settings) -> Path:
    settings.MOTLEY_LAST_PAGE_VIEW = tmp_path / "last_page_view"
    return settings.MOTLEY_LAST_PAGE_VIEW


@modify_settings(MIDDLEWARE={"append": "config.middleware.note_page_views"})
def test_somebody_looks_while_pages_are_loaded(client: Client, member: User, last_page_view: Path, plain_static):
    client.get("/")
    client.get("/api/v1/jobs")
    assert not somebody_looks(), "nobody has logged in"

    client.force_login(member)
    client.get("/jobs")
    assert somebody_looks()

    long_ago = time.time() - 2 * LOOKING_S
    os.utime(last_page_view, (long_ago, long_ago))
    assert not somebody_looks()


def test_pages_are_noted_only_in_the_demo():
    assert "config.middleware.note_page_views" not in settings.MIDDLEWARE


def test_sample_jobs_go_on_after_the_first_but_never_pile_up(member: User):
    create_teams(member.username)
    declare_emulated_cluster()
    for _ in range(UNFINISHED + 2):
        submit_another(member)
    assert Job.objects.count() == UNFINISHED

    done = Job.objects.order_by("id").first()
    Job.objects.filter(pk=done.pk).update(state=Job.State.SUCCEEDED, finished_at=done.created_at)
    submit_another(member)
    names = list(Job.objects.order_by("id").values_list("name", flat=True))
    assert len(names) == UNFINISHED + 1
    assert int(names[-1].rpartition("-")[2]) > FIRST
