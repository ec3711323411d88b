"""Energy: the series of nodes in use, the forecast, and the advice on which nodes could sleep."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from accounting_app.energy.advice import advise_when_due
from accounting_app.energy.node_use import STEP, read_node_demand, start_of, step_of
from accounting_app.energy.report import TypeEnergy, energy_by_type
from accounting_app.models import NodeUse, SleepAdvice
from cluster_app.models import GpuType, Node
from cluster_app.services import cordon
from jobs_app.models import GpuClaim
from operations.retention import delete_expired
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab

NIGHT = datetime(2026, 11, 20, 22, 0, tzinfo=UTC)
NODES = 10


@pytest.fixture
def a100(lab: Lab) -> GpuType:
    """Ten healthy nodes of two GPUs."""
    for number in range(NODES):
        lab.node(f"n{number}")
    return GpuType.objects.get()


def history(kind: GpuType, until: datetime, days: int, used: Callable[[datetime], int]) -> None:
    """Steps before this time, written as rounds would have."""
    steps = range(step_of(until) - days * 144, step_of(until))
    NodeUse.objects.bulk_create(
        NodeUse(gpu_type=kind, at=start_of(step), used=used(start_of(step)), nodes=NODES) for step in steps
    )


def by_day(at: datetime) -> int:
    """Eight nodes at work from 8 to 20 o'clock, then two fewer each ten minutes, down to two."""
    evening = (at - at.replace(hour=20, minute=0)) // STEP
    return 8 if 8 <= at.hour < 20 else max(8 - 2 * (evening + 1), 2) if at.hour >= 20 else 2


def decided(now: datetime) -> TypeEnergy:
    advise_when_due(now)
    [only] = energy_by_type(now, for_staff=True)
    return only


def test_a_step_has_the_most_nodes_that_were_in_use_at_a_time(lab: Lab) -> None:
    for name in ("n1", "n2", "n3"):
        lab.node(name)
    with lab.clock_stopped():
        lab.ahead += start_of(step_of(lab.now) + 1) - lab.now  # a step begins
        gang = lab.submit(UNTIL_LET_GO, gpus=4)
        lab.running(gang)
        lab.let_go(gang)
        lab.until(lambda: not GpuClaim.objects.open().exists())
        lab.round()
        row = NodeUse.objects.get(at=start_of(step_of(lab.now)))
    assert (row.used, row.nodes) == (2, 3)


def test_steps_without_a_round_have_the_value_before(a100: GpuType) -> None:
    for step, used in ((0, 4), (3, 1)):
        NodeUse.objects.create(gpu_type=a100, at=NIGHT + step * STEP, used=used, nodes=NODES)
    demand = read_node_demand(a100.pk, since=NIGHT, until=NIGHT + 5 * STEP)
    assert demand is not None
    assert demand.used.tolist() == [4, 4, 4, 1, 1]
    assert demand.start_h == 4 * 24 + 22  # a Friday


def test_with_a_short_history_the_forecast_is_the_last_value_and_says_so(a100: GpuType) -> None:
    history(a100, NIGHT, 2, lambda at: 6 if at < NIGHT - STEP else 4)
    energy = decided(NIGHT)
    assert energy.forecast_by == SleepAdvice.Source.LAST_VALUE
    assert "fewer than nine days" in energy.forecast_words
    assert [mean.nodes for mean in energy.forecast] == [4.0, 4.0, 4.0]


def test_with_nine_days_the_forecast_knows_the_hour_of_the_day(a100: GpuType) -> None:
    morning = NIGHT.replace(hour=7, minute=0)
    history(a100, morning, 14, by_day)
    energy = decided(morning)
    assert energy.forecast_by == SleepAdvice.Source.REGRESSION
    hours = {mean.hours: mean.nodes for mean in energy.forecast}
    assert hours[1] < 5 < hours[5]  # two nodes are in use now, and eight from the next hour on


def test_a_fitted_model_is_kept_for_a_day(a100: GpuType) -> None:
    history(a100, NIGHT, 14, by_day)
    decided(NIGHT)
    first = SleepAdvice.objects.get()
    decided(NIGHT + STEP)
    kept = SleepAdvice.objects.get()
    assert (kept.at, kept.fitted_at, kept.model) == (NIGHT + STEP, NIGHT, first.model)
    decided(NIGHT + timedelta(days=1))
    assert SleepAdvice.objects.get().fitted_at == NIGHT + timedelta(days=1)


def test_in_the_evening_the_surplus_could_sleep_the_longest_idle_first(lab: Lab, a100: GpuType) -> None:
    """What is held, cordoned, or used by others never is among them."""
    evening = NIGHT.replace(hour=20, minute=20)
    history(a100, evening, 14, by_day)
    claimed(lab, "n0")
    cordon(Node.objects.get(name="n9"), reason="new fan", actor=None)
    Node.objects.filter(name="n8").update(foreign_gpus=1)
    claimed(lab, "n3", released_at=evening - timedelta(hours=1))
    energy = decided(evening)
    assert (energy.nodes, energy.used, energy.awake) == (10, 1, 5)  # four in use lately, and one in reserve
    assert energy.could_sleep == ["n1", "n2", "n4", "n5"]
    assert energy.saved_w == 4 * 2 * (a100.idle_w_per_gpu - a100.asleep_w_per_gpu)


def test_before_a_rise_none_could_sleep(a100: GpuType) -> None:
    morning = NIGHT.replace(hour=7, minute=40)
    history(a100, morning, 14, lambda at: 1 if at == morning - STEP else by_day(at))
    assert decided(morning).could_sleep == []


def test_the_last_node_of_a_type_stays_awake(lab: Lab) -> None:
    lab.node("only")
    history(GpuType.objects.get(), NIGHT, 2, lambda at: 1 if at < NIGHT - STEP else 0)
    assert decided(NIGHT).could_sleep == []


def claimed(lab: Lab, name: str, *, released_at: datetime | None = None) -> None:
    """An attempt holds a GPU of the node, or did until then."""
    attempt = lab.attempt(lab.submit())
    gpu = Node.objects.get(name=name).gpu_set.first()
    GpuClaim.objects.create(gpu=gpu, attempt=attempt, held_from=NIGHT - timedelta(days=1), released_at=released_at)


def test_the_page_and_rest_name_the_nodes(lab: Lab, a100: GpuType, plain_static: None) -> None:
    lab.ahead += start_of(step_of(lab.now) + 1) - lab.now  # a step begins, and does not end before the page is read
    lab.round()
    history(a100, start_of(step_of(lab.now)), 1, lambda _: 9)
    NodeUse.objects.filter(at=start_of(step_of(lab.now) - 1)).update(used=0)
    SleepAdvice.objects.all().delete()
    lab.tick()
    ada = lab.user()
    web = Client()
    web.force_login(ada)
    page = web.get("/energy").content.decode()
    assert "9 of 10 nodes could sleep" in page
    assert "n0, n1" in page
    assert "1.8 kW" in page  # nine nodes of two GPUs, 98 W each
    [shown] = caller(ada).get("/api/v1/energy").json()["types"]
    assert shown["could_sleep"] == [f"n{number}" for number in range(9)]
    assert (shown["gpu_type"], shown["forecast_by"], shown["saved_w"]) == ("a100", "last_value", 1764.0)


def test_old_steps_are_deleted(a100: GpuType) -> None:
    history(a100, NIGHT, 92, lambda _: 1)
    delete_expired(NIGHT)
    assert min(NodeUse.objects.values_list("at", flat=True)) == NIGHT - timedelta(days=90)
