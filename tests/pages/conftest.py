"""A demo cluster with its jobs, made by the service's own functions; nothing is launched unless a test does it."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from accounting_app.fairness.usage_ledger import accrue
from cluster_app.models import Node
from jobs_app.models import Job, Team
from jobs_app.submission.submit import submit_job
from operations import demo
from scheduler_app.models import Round
from scheduler_app.round.lease import acquire_lease
from scheduler_app.round.run_round import run_round
from tests.pages.sample_jobs import submit_samples
from tests.shared_rows import shared_rows

HOLDER = "tests"


@pytest.fixture(autouse=True)
def _plain_pages(plain_static) -> None:
    """Pages need no `collectstatic`."""


@shared_rows
def cluster() -> None:
    demo.declare_emulated_cluster()
    Node.objects.update(health=Node.Health.HEALTHY)  # no scheduler asks the engine


@shared_rows
def member() -> User:
    """In both teams."""
    demo.create_login("mia", staff=False)
    demo.create_teams("mia")
    return User.objects.get(username="mia")


@shared_rows
def jobs(cluster, member) -> list[Job]:
    """The samples in the queue, newest first."""
    submit_samples(member)
    return list(Job.objects.all())


@shared_rows
def decided(jobs) -> Round:
    """A round was decided: some jobs have GPUs, some wait with reasons; and the ledger has a first entry."""
    record = decide()
    accrue(timezone.now())
    return record


@shared_rows
def crowded(jobs, member) -> Round:
    """A round with more jobs than one table of its page shows."""
    for _ in range(150):
        submit_job({"name": "one-of-many", "command": "true", "gpus": 1, "team": "vision"}, owner=member)
    return decide()


@shared_rows
def staff(member) -> User:
    demo.create_login("ada", staff=True)
    return User.objects.get(username="ada")


@shared_rows
def stranger(member) -> User:
    """In a team of their own."""
    demo.create_login("sam", staff=False)
    user = User.objects.get(username="sam")
    Team.objects.create(name="speech").members.add(user)
    return user


def decide() -> Round:
    now = timezone.now()
    assert acquire_lease(HOLDER, now)
    record = run_round(HOLDER, now)
    assert record is not None
    return record


@pytest.fixture
def web() -> Callable[[User], Client]:
    """A browser session of a user."""

    def session(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return session


@pytest.fixture
def submit(member, cluster) -> Callable[..., Job]:
    def of(**spec: object) -> Job:
        return submit_job({"name": "one", "team": "vision", "command": "true", "gpus": 1, **spec}, owner=member)

    return of
