import pytest
from django.test import Client
from rest_framework.test import APIClient

from jobs_app.models import Job
from tests.rest.world import tokens_and_places, world
from tests.rest_callers import Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab

__all__ = ["tokens_and_places", "world"]  # fixtures of their own module


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1", gpus=4)
    return lab


@pytest.fixture
def ada(cluster: Lab) -> APIClient:
    """A member of vision, by a token that may submit."""
    return caller(cluster.user())


@pytest.fixture
def root(cluster: Lab) -> APIClient:
    """Staff, by a token of scope admin."""
    return caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)


@pytest.fixture
def running(cluster: Lab) -> Job:
    """As rows say; it has no process."""
    job = cluster.submit()
    cluster.recorded_as_running(job)
    return job


@pytest.fixture
def launched(cluster: Lab) -> Job:
    """It runs in a process."""
    job = cluster.submit(f"echo hello; {UNTIL_LET_GO}")
    cluster.running(job)
    return job


@pytest.fixture
def browser_of_ada(cluster: Lab) -> Client:
    client = Client()
    client.force_login(cluster.user())
    return client
