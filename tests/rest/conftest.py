import pytest
from django.test import Client
from rest_framework.test import APIClient

from tests.one_node import ada, cluster, launched, running
from tests.rest.world import tokens_and_places, world
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

__all__ = ["ada", "cluster", "launched", "running", "tokens_and_places", "world"]  # fixtures of other modules


@pytest.fixture
def root(cluster: Lab) -> APIClient:
    """Staff, by a token of scope admin."""
    return caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)


@pytest.fixture
def browser_of_ada(cluster: Lab) -> Client:
    client = Client()
    client.force_login(cluster.user())
    return client
