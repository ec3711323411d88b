"""What nodes would save: prices of past rounds summed up over a week, beside what the lab simulated."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from allocation.plan.more_gpus import hours_saved
from insight_app.gpu_prices.past import RoundPrices, hours_by_price, price_spans
from insight_app.lab.node_savings import TOO_EARLY, NodeSavings, SimulatedSaving, read_node_savings
from insight_app.models import LabRun
from scheduler_app.models import Round
from scheduler_app.policy.settings import with_defaults
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab

HOUR = timedelta(hours=1)
FIGURES = {"avg_jct_h": 3.0}


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    """Nodes of 4 T4 and of 2 P100; for seven days a T4-hour has cost 0.5 hours of others."""
    for name, gpu_type, gpus in (("t1", "t4", 4), ("t2", "t4", 4), ("p1", "p100", 2)):
        lab.node(name, gpu_type, gpus=gpus)
    lab.policy("motley", round_s=3600)
    for hour in range(7 * 24):
        began_at = lab.now - (7 * 24 - hour) * HOUR + timedelta(seconds=1)
        a_round(hour + 1, began_at, {"t4": 0.5, "p100": 0.0})
    return lab


def a_round(number: int, began_at: Any, prices: dict[str, float], policy: str = "motley") -> None:
    Round.objects.create(
        number=number, started_at=began_at, result="committed", policy=policy, shares_since=began_at, prices=prices
    )


def savings(lab: Lab, *, staff: bool = True) -> NodeSavings:
    return read_node_savings(lab.user("root" if staff else "ada", staff=staff), lab.now)


def simulated(lab: Lab, owner: str, *, after_h: float, **columns: Any) -> LabRun:
    """A run under the current policy with one node of T4 more, in which 20 jobs took so long on average."""
    policy, span_h = columns.pop("policy", "motley"), columns.pop("span_h", 168.0)
    parameters = columns.pop("parameters", with_defaults(*split(policy)))
    row = {"policy": policy, **({"parameters": parameters} if parameters is not None else {})}
    rows = [{**row, "failed": "", "figures": {"avg_jct_h": after_h}}]
    result = {"jobs": 20, "present": {**row, "figures": FIGURES}, "policies": rows}
    result |= {"span_h": span_h} if span_h else {}
    given = {"days": 7, "policies": [policy], "nodes": {"t4": 1}, "teams": [], "finished_at": lab.now} | columns
    user = lab.user(owner, staff=owner == "root")
    return LabRun.objects.create(owner=user, state="done", result=result, **given)


def split(words: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters of `motley:lateness=1`, also of a policy that is no more."""
    name, _, given = words.partition(":")
    return name, {key: float(value) for key, _, value in (one.partition("=") for one in given.split(",") if one)}


def more_t4(lab: Lab, *, staff: bool = True) -> SimulatedSaving | None:
    return next(one for one in savings(lab, staff=staff).types if one.gpu_type == "t4").simulated_more


def test_prices_are_summed_up_over_the_time_for_which_their_rounds_were_in_force() -> None:
    now = datetime(2026, 11, 29, tzinfo=UTC)
    rounds = [
        RoundPrices("motley", now - 3 * HOUR, {"t4": 2.0}),
        RoundPrices("fifo", now - 2.5 * HOUR, {"t4": 100.0}),
        RoundPrices("motley", now - 2 * HOUR, {"t4": 1.0, "p100": 4.0}),
    ]
    spans = price_spans(rounds, now)
    words = "a round of another policy has another unit; a pause counts not"
    assert [span.hours for span in spans] == [0.5, 1.0], words
    assert hours_by_price(spans) == {"t4": 2.0, "p100": 4.0}


def test_each_further_gpu_saves_less_than_the_one_before() -> None:
    each = [hours_saved(10.0, gpus=100, more=more) / more for more in (-50, -1, 1, 50)]
    assert each == sorted(each, reverse=True)
    assert each[1] == pytest.approx(10.0, rel=0.02) == each[2]


def test_a_node_saves_the_price_of_its_gpus_over_the_week(cluster: Lab) -> None:
    found = savings(cluster)
    t4, p100 = found.types
    assert (found.why_none, t4.gpu_type, t4.gpus, t4.node_gpus) == ("", "t4", 8, 4)
    assert t4.price == pytest.approx(0.5, rel=0.01)
    assert t4.cost_h is not None
    assert t4.saved_h < 0.5 * 7 * 24 * 4 < t4.cost_h, "prices fall with more GPUs"
    assert t4.words.startswith("One more node of 4 T4 would have saved ")
    assert (p100.saved_h, p100.cost_h) == (0, None), "it is the only one"


def test_days_without_prices_in_hours_are_not_counted_as_days_without_waiting(lab: Lab) -> None:
    """Another policy was in force, or the service stood still: the price of the week is that of the other days."""
    for name in ("t1", "t2", "t3"):
        lab.node(name, "t4", gpus=4)
    lab.policy("motley", round_s=7200)
    for part in range(42):
        policy = "motley" if part // 6 in (0, 6) else "fifo"
        a_round(part + 1, lab.now - (42 - part) * 4 * HOUR + timedelta(seconds=1), {"t4": 2.0}, policy)
    (t4,) = savings(lab).types
    assert (t4.price, t4.saved_h) == (pytest.approx(2.0), pytest.approx(882, rel=0.01))
    Round.objects.filter(policy="motley", started_at__lt=lab.now - 2 * 24 * HOUR).delete()
    Round.objects.filter(started_at__gt=lab.now - 20 * HOUR).delete()
    assert savings(lab).why_none == TOO_EARLY, "eight hours"


def test_beside_it_stands_what_the_newest_run_of_the_lab_found_that_changed_only_the_node(cluster: Lab) -> None:
    simulated(cluster, "root", after_h=2.9)
    run = simulated(cluster, "root", after_h=2.0)
    simulated(cluster, "root", after_h=1.0, nodes={"t4": 1, "p100": 1})
    simulated(cluster, "root", after_h=1.0, team_weights={"vision": 2})
    t4 = savings(cluster).types[0]
    assert t4.simulated_more == (run.pk, pytest.approx(20), "")
    assert t4.simulated_less is None
    assert savings(cluster, staff=False).types[0].simulated_more is None, "a run of another person"


@pytest.mark.parametrize(
    ("parameters", "columns"),
    [
        ({}, {"policy": "fifo"}),
        ({}, {"policy": "gone"}),
        ({}, {"policy": "motley:lateness=1"}),
        ({"lateness": 1}, {"policy": "motley"}),
        ({}, {"nodes": {"t4": 2}}),
        ({}, {"finished_at": timedelta(days=-29)}),
        ({}, {"span_h": None}),
        ({}, {"span_h": 20.0}),
        ({}, {"parameters": with_defaults("motley", {"lateness": 0.5})}),
        ({}, {"parameters": with_defaults("motley", {"power": 1.25})}),
        ({}, {"parameters": None}),
    ],
    ids=[
        *("policy", "gone", "parameter", "setting", "two nodes", "old", "no span", "short"),
        *("another default", "parameter of before", "parameters not told"),
    ],
)
def test_a_run_that_cannot_be_compared_stands_not_beside_prices(
    cluster: Lab, parameters: dict[str, Any], columns: dict[str, Any]
) -> None:
    cluster.policy("motley", round_s=3600, **parameters)
    if age := columns.get("finished_at"):
        columns = columns | {"finished_at": cluster.now + age}
    simulated(cluster, "root", after_h=2.0, **columns)
    assert more_t4(cluster) is None


def test_a_run_under_the_parameters_of_the_setting_stands_beside_prices(cluster: Lab) -> None:
    cluster.policy("motley", round_s=3600, lateness=1)
    run = simulated(cluster, "root", after_h=2.0, policy="motley:lateness=1.0")
    assert more_t4(cluster) == (run.pk, pytest.approx(20), "")


def test_hours_are_those_of_a_week_by_the_history_that_there_was(cluster: Lab) -> None:
    run = simulated(cluster, "root", after_h=2.0, days=28, span_h=84.0)
    assert more_t4(cluster) == (run.pk, pytest.approx(40), "")


def test_a_run_of_all_jobs_stands_before_one_of_some_and_of_these_it_is_said(cluster: Lab, client: Client) -> None:
    of_some = simulated(cluster, "ada", after_h=2.5)
    ada = caller(cluster.user("ada"), Scope.READ)
    assert more_t4(cluster, staff=False) == (of_some.pk, pytest.approx(10), "ada")
    assert ada.get("/api/v1/lab/node-savings").json()["types"][0]["simulated_more"]["only_teams_of"] == "ada"
    client.force_login(cluster.user("ada"))
    assert "of the teams of ada only" in client.get(reverse("lab")).content.decode()
    assert more_t4(cluster) == (of_some.pk, pytest.approx(10), "ada"), "there is no other"
    of_all = simulated(cluster, "root", after_h=2.0)
    simulated(cluster, "ada", after_h=2.5)
    assert more_t4(cluster) == (of_all.pk, pytest.approx(20), "")


@pytest.mark.parametrize("staff", [True, False])
def test_many_runs_cost_no_more_queries_than_one(
    cluster: Lab, staff: bool, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(50):
        last = simulated(cluster, "root" if staff else "ada", after_h=2.0)
    user = cluster.user("root" if staff else "ada", staff=staff)
    with django_assert_max_num_queries(8) as asked:
        found = read_node_savings(user, cluster.now)
    assert {one.simulated_more.lab_run for one in found.types if one.simulated_more} == {last.pk}
    assert sum('"result",' in one["sql"] for one in asked.captured_queries) <= 1, "results of the chosen runs alone"


def test_without_a_day_of_prices_in_hours_it_says_why(cluster: Lab) -> None:
    Round.objects.filter(started_at__lt=cluster.now - 20 * HOUR).delete()
    assert savings(cluster).why_none == TOO_EARLY
    cluster.policy("fifo")
    assert savings(cluster).why_none.startswith("Prices of the policy fifo are no hours of waiting")


def test_pages_and_rest_have_the_same_figures(cluster: Lab) -> None:
    run, root = simulated(cluster, "root", after_h=2.0), cluster.user("root", staff=True)
    api: APIClient = caller(root, Scope.ADMIN)
    answer = api.get("/api/v1/lab/node-savings").json()
    t4 = answer["types"][0]
    assert (t4["gpu_type"], t4["simulated_more"]) == (
        "t4",
        {"lab_run": run.pk, "saved_h": pytest.approx(20), "only_teams_of": ""},
    )
    web = APIClient()
    web.force_login(root)
    for page in ("lab", "policies"):
        shown = " ".join(web.get(reverse(page)).content.decode().split())
        assert f"{t4['saved_h']:.1f} h a week" in shown, page
        assert ">20.0 h</a>" in shown, page
