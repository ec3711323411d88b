import pytest
from live_service import Live
from pytest_django.live_server_helper import LiveServer
from service_lab import Lab


@pytest.fixture
def service(live_server: LiveServer, lab: Lab, plain_static: None) -> Live:
    return Live(str(live_server.url), lab)
