"""The page Cluster of a large cluster: so many nodes on a page, and filters that find one."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from cluster_app.models import GpuType, Node
from cluster_app.services import add_node
from scheduler_app.pages import cluster as cluster_page
from scheduler_app.pages.cluster import NODES_PER_PAGE


@pytest.fixture
def many_nodes(db: None) -> None:
    """One more than a page shows, on two GPU types; the last of them is out of service."""
    kinds = [GpuType.objects.create(name=name, memory_mib=1) for name in ("a100", "t4")]
    for number in range(NODES_PER_PAGE + 1):
        add_node(f"node-{number:03}", kinds[number % 2], gpus=1, cpus=8, memory_mib=1024)
    Node.objects.update(health=Node.Health.HEALTHY)
    Node.objects.filter(name="node-059").update(state=Node.State.CORDONED, reason="repair")


def shown(client: Client, **query: object) -> list[str]:
    page = client.get(reverse("cluster"), query).content.decode()
    return re.findall(r"<h3><a [^>]*>(node-\d+)</a></h3>", page)


def test_every_node_is_on_one_page(many_nodes: None, member: User, web) -> None:
    client = web(member)
    first, second = shown(client), shown(client, page=2)
    assert (len(first), len(second)) == (NODES_PER_PAGE, 1)
    assert len({*first, *second}) == NODES_PER_PAGE + 1


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"q": "NODE-007"}, ["node-007"]),
        ({"service": "out"}, ["node-059"]),
        ({"gpu_type": "t4", "q": "node-00"}, [f"node-{number:03}" for number in (1, 3, 5, 7, 9)]),
        ({"q": "nothing"}, []),
    ],
)
def test_filters_find_nodes(many_nodes: None, member: User, web, query: dict[str, str], names: list[str]) -> None:
    assert shown(web(member), **query) == names


def test_an_unknown_gpu_type_is_said_and_nothing_is_lost(many_nodes: None, member: User, web) -> None:
    page = web(member).get(reverse("cluster"), {"gpu_type": "k9"}).content.decode()
    assert "gpu_type: Select a valid choice" in page


def test_a_small_cluster_has_neither_pages_nor_filters(cluster: None, member: User, web) -> None:
    page = web(member).get(reverse("cluster")).content.decode()
    assert 'class="filters"' not in page
    assert 'class="pages"' not in page


def test_a_page_costs_as_many_queries_however_many_nodes_there_are(
    many_nodes: None, member: User, web, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries
) -> None:
    client = web(member)
    with django_assert_max_num_queries(20) as asked:
        shown(client)
    monkeypatch.setattr(cluster_page, "NODES_PER_PAGE", 2)
    with django_assert_max_num_queries(len(asked)):
        assert len(shown(client)) == 2
