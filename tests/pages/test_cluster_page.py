"""The page Cluster of a large cluster: so many nodes on a page, and filters that find one."""

import re
from collections import Counter
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from cluster_app.models import GpuType, Node
from cluster_app.services import add_node
from jobs_app.models import GpuClaim
from scheduler_app.round.dispatch import promote_waiting_claims
from scheduler_app.windows.editing import add_window
from tests.pages.conftest import decide
from tests.shared_rows import shared_rows
from web.pages import cluster as cluster_page
from web.pages.charts import OKABE_ITO
from web.pages.cluster import NODES_PER_PAGE


@shared_rows
def many_nodes() -> None:
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


# -- colours and density -----------------------------------------------------------------------------------------


def tints(page: str) -> list[str]:
    return re.findall(r'<rect class="(tint-\d|dense-\w+)"', page)


@pytest.fixture
def placed(submit) -> None:
    """Two jobs of one team on three GPUs, one of another team, and idle GPUs."""
    submit(name="wide", gpus=2)
    submit(name="narrow", gpus=1)
    submit(name="other", gpus=1, team="language")
    decide()
    promote_waiting_claims(timezone.now())


def test_gpus_of_one_job_have_one_colour_and_those_of_a_team_another(placed: None, member: User, web) -> None:
    client = web(member)
    by_job, by_team, plain = (
        Counter(tints(client.get(reverse("cluster"), {"view": "dense", "colour": by}).content.decode()))
        for by in ("job", "team", "condition")
    )
    assert sorted(count for name, count in by_job.items() if name.startswith("tint")) == [1, 1, 2]
    assert sorted(count for name, count in by_team.items() if name.startswith("tint")) == [1, 3]
    assert plain["dense-busy"] == 4
    assert by_job["dense-idle"] == plain["dense-idle"] > 0


def test_the_legend_names_teams_and_counts_their_gpus(placed: None, member: User, web) -> None:
    page = " ".join(web(member).get(reverse("cluster"), {"colour": "team"}).content.decode().split())
    assert re.search(r'</span>vision <span class="dim num">3</span>', page)
    assert re.search(r'</span>language <span class="dim num">1</span>', page)


def test_jobs_of_other_teams_have_neither_colour_nor_name(placed: None, stranger: User, web) -> None:
    page = web(stranger).get(reverse("cluster"), {"view": "dense", "colour": "job"}).content.decode()
    assert not [name for name in tints(page) if name.startswith("tint")]
    assert "wide" not in page
    assert "another team" in page


def test_a_large_cluster_is_dense_on_one_small_page(
    cluster: None, member: User, web, django_assert_max_num_queries
) -> None:
    kind = GpuType.objects.earliest("pk")
    for number in range(125):
        add_node(f"rack-{number:03}", kind, gpus=8, cpus=64, memory_mib=1024)
    client = web(member)
    with django_assert_max_num_queries(20):
        page = client.get(reverse("cluster")).content.decode()
    assert len(tints(page)) >= 1000
    assert len(page) < 300_000


def test_colours_of_the_style_sheet_are_those_of_charts() -> None:
    css = (settings.BASE_DIR / "static/motley/motley.css").read_text()
    assert re.findall(r"\.tint-\d { fill: (#\w+);", css) == [colour.lower() for colour in OKABE_ITO]


def test_a_node_lists_the_attempts_on_its_gpus_of_jobs_that_one_may_see(
    placed: None, member: User, stranger: User, web
) -> None:
    node = GpuClaim.objects.select_related("gpu__node").filter(attempt__job__name="wide").earliest("pk").gpu.node
    lately = [web(user).get(reverse("node", args=[node.name])).content.decode() for user in (member, stranger)]
    assert ["?tab=attempts" in page for page in lately] == [True, False]


def test_what_limits_jobs_on_a_node_is_on_its_page_and_not_on_every_card(placed: None, member: User, web) -> None:
    Node.objects.update(limits="A job's memory is added up once a second.", containers="podman 5")
    name = Node.objects.all()[0].name
    pages = [
        web(member).get(address).content.decode() for address in (reverse("node", args=[name]), reverse("cluster"))
    ]
    assert [("added up once a second" in page, "podman 5" in page) for page in pages] == [(True, True), (False, False)]


def test_a_window_names_its_first_three_nodes(many_nodes: None, member: User, staff: User, web) -> None:
    begin = timezone.now() + timedelta(hours=1)
    times = {"begins_at": begin, "ends_at": begin + timedelta(hours=1)}
    nodes = list(Node.objects.order_by("name")[:5])
    add_window({"reason": "new fans", "nodes": nodes[:1], **times}, actor=staff)
    add_window({"reason": "firmware", "nodes": nodes, "cron": "0 2 * * 0", **times}, actor=staff)
    page = web(member).get(reverse("cluster")).content.decode()
    card = page.split('id="windows"')[1].split("</section>")[0]
    one, several = (" ".join(re.sub(r"<[^>]*>", "", item).split()) for item in card.split("<li>")[1:])
    assert one.endswith("new fans on node-000")
    assert several.endswith("firmware on node-000, node-001, node-002 and 2 more (comes again)")
    assert 'href="/nodes/node-000' in card
