import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from tests.live_service import Live
from tests.one_node import ada, cluster
from tests.service_lab import Lab

__all__ = ["ada", "cluster"]


@pytest.fixture
def service(live_server: LiveServer, lab: Lab, plain_static: None) -> Live:
    return Live(str(live_server.url), lab)


@pytest.fixture
def browser(cluster: Lab) -> Client:
    """Ada's."""
    client = Client()
    client.force_login(cluster.user())
    return client
