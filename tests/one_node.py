"""Fixtures of a cluster of one node, and of ada, who may submit to it over REST; folders import what they need."""

import pytest
from rest_framework.test import APIClient

from jobs_app.models import Job
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1", gpus=4)
    return lab


@pytest.fixture
def ada(cluster: Lab) -> APIClient:
    """A member of vision, by a token that may submit."""
    return caller(cluster.user())


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
