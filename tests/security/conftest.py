import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer
from rest_framework.test import APIClient

from tests.live_service import Live
from tests.rest_callers import caller
from tests.service_lab import Lab


@pytest.fixture
def service(live_server: LiveServer, lab: Lab, plain_static: None) -> Live:
    return Live(str(live_server.url), lab)


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1", gpus=4)
    return lab


@pytest.fixture
def ada(cluster: Lab) -> APIClient:
    """A member of vision, by a token that may submit."""
    return caller(cluster.user())


@pytest.fixture
def browser(cluster: Lab) -> Client:
    """Ada's."""
    client = Client()
    client.force_login(cluster.user())
    return client
