from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from pytest_django import Settings

from tests.notification_server import Mailbox, Received, http_server, smtp_server
from tests.service_lab import Lab


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1")
    return lab


@pytest.fixture
def hook(settings: Settings) -> Iterator[Received]:
    """A server for webhooks on this machine, which the site allows."""
    settings.MOTLEY_WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    with http_server() as received:
        yield received


@pytest.fixture
def mailbox(settings: Settings) -> Iterator[Mailbox]:
    """The mail server of the site."""
    with smtp_server() as box:
        settings.MOTLEY_MAIL_URL = box.url
        yield box
