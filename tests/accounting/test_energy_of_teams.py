"""Energy of teams, rounds and jobs: as read of the GPUs, by the power of their type otherwise, and where it is from."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounting_app.fairness.energy_ledger import ReadEnergy, add_energy_to_ledger, energy_between, overlap
from accounting_app.fairness.usage_ledger import accrue
from accounting_app.fairness.usage_report import Period, usage_between
from accounting_app.models import DailyUsage, GpuTypeUsage, LedgerCoverage
from cluster_app.models import GpuType, Node
from jobs_app.measurement.energy import Energy, EnergySource, energy_of_ended
from jobs_app.models import Attempt, Team
from jobs_app.serializers import in_full
from scheduler_app.models import Round
from tests.rest_callers import caller
from tests.service_lab import Lab

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("read_gpu_s", "power_w", "joules", "source"),
    [
        (100, 300, 20_000, EnergySource.MEASURED),
        (96, 300, 21_200, EnergySource.MEASURED),
        (50, 300, 35_000, EnergySource.PARTLY_MEASURED),
        (50, 0, 20_000, EnergySource.INCOMPLETE),
    ],
)
def test_what_was_not_read_is_the_power_of_the_type(
    read_gpu_s: float, power_w: float, joules: float, source: EnergySource
) -> None:
    energy = Energy.of(read_j=20_000, read_gpu_s=read_gpu_s, gpu_s=100, power_w=power_w)
    assert (energy.joules, energy.source) == (joules, source)


def test_without_readings_it_is_the_power_of_the_type_or_unknown() -> None:
    by_power, unknown = (Energy.of(read_j=0, read_gpu_s=0, gpu_s=36, power_w=power) for power in (100, 0))
    assert (by_power.watt_hours, by_power.source) == (1, EnergySource.POWER)
    assert (unknown.watt_hours, unknown.source) == (None, EnergySource.UNKNOWN)
    assert (by_power + unknown).source is EnergySource.INCOMPLETE


@pytest.fixture
def hour(lab: Lab) -> Lab:
    """From noon until one, vision runs on two A100 of 300 W that are read at 200 W for half of the time."""
    lab.node("n1", gpus=2)
    Node.objects.update(emulated=False)
    GpuType.objects.update(power_w=300)
    LedgerCoverage.extend(NOON)
    attempt = lab.attempt(lab.submit(gpus=2), state=Attempt.State.RUNNING, started_at=NOON, gpu_count=2)
    read = ReadEnergy(attempt.job.team_id, attempt.gpu_type_id, 2 * 200 * 10, 2 * 10)
    for tens in range(1, 181):
        add_energy_to_ledger([read], NOON + (tens - 1) * timedelta(seconds=10), NOON + tens * timedelta(seconds=10))
    for half in (1, 2):
        accrue(NOON + half * HOUR / 2)
    return lab


def test_a_team_has_what_was_read_and_the_rest_by_power(hour: Lab) -> None:
    (row,) = usage_between(date(2026, 1, 1), date(2026, 1, 1), hour.user(), by=Period.DAY)
    assert (row.gpu_hours, row.energy_kwh) == (pytest.approx(2), pytest.approx(0.2 + 0.3))
    assert row.energy_source is EnergySource.PARTLY_MEASURED


def test_readings_change_no_gpu_hours_and_rounds_no_readings(hour: Lab) -> None:
    accrue(NOON + HOUR + MINUTE)
    day = DailyUsage.objects.get()
    assert (day.gpu_s, day.read_gpu_s, day.read_energy_j) == pytest.approx((2 * 3660, 3600, 200 * 3600))


def test_the_energy_of_a_round_ends_with_the_next_committed_one(hour: Lab) -> None:
    def opened(number: int, at: datetime, result: str = "committed") -> Round:
        return Round.objects.create(number=number, started_at=at, result=result, policy="fifo", shares_since=at)

    first, second = opened(1, NOON + 15 * MINUTE), opened(3, NOON + 45 * MINUTE)
    opened(2, NOON + 20 * MINUTE, "failed")
    assert first.in_force_until() == second.started_at
    (read_half,) = energy_between(first.started_at, second.started_at)
    (read_none,) = energy_between(second.started_at, NOON + HOUR)
    assert read_half.energy.watt_hours == pytest.approx(100 + 150)
    assert (read_none.energy.watt_hours, read_none.energy.source) == (pytest.approx(150), EnergySource.POWER)
    answer = caller(hour.user()).get("/api/v1/rounds/1").json()
    assert answer["energy"] == [{"gpu_type": "a100", "wh": pytest.approx(250), "energy_source": "partly_measured"}]


def test_a_round_shorter_than_a_minute_has_its_part_of_it() -> None:
    assert overlap(NOON, NOON + timedelta(seconds=50), NOON + 5 * MINUTE) == timedelta(seconds=10)
    assert overlap(NOON, NOON + MINUTE, NOON + 5 * MINUTE) == timedelta(0)


def test_rest_page_and_csv_name_the_source(hour: Lab, plain_static: None) -> None:
    DailyUsage.objects.update(day=timezone.now().date())
    (row,) = caller(hour.user()).get("/api/v1/usage").json()["rows"]
    assert (row["energy_kwh"], row["energy_source"]) == (pytest.approx(0.5), "partly_measured")
    browser = Client()
    browser.force_login(hour.user())
    assert "partly measured" in browser.get("/usage").content.decode()
    assert browser.get("/usage?format=csv").getvalue().decode().splitlines()[1].endswith("0.5,partly_measured")


def test_what_was_read_of_emulated_gpus_is_not_measured(hour: Lab) -> None:
    attempt = Attempt.objects.get()
    DailyUsage.objects.update(day=timezone.now().date())
    Attempt.objects.update(state="ended", outcome="succeeded", ended_at=NOON + HOUR, gpu_energy_j=3600.0)

    def sources() -> list[str]:
        (row,) = caller(hour.user()).get("/api/v1/usage").json()["rows"]
        (of_type,) = energy_between(NOON, NOON + HOUR)
        return [row["energy_source"], of_type.energy.source, in_full(attempt.job)["energy"]["source"]]

    assert sources() == ["partly_measured", "partly_measured", "measured"]
    Node.objects.update(emulated=True)
    assert sources() == ["emulated"] * 3
    hour.node("n2")
    Node.objects.filter(name="n2").update(emulated=False)
    assert "emulated" not in sources(), "the type has real GPUs, too"


def test_an_ended_job_has_its_energy_also_for_the_archive(hour: Lab) -> None:
    attempt = Attempt.objects.get()
    assert in_full(attempt.job)["energy"]["wh"] == 0, "the entity tag of a running job would change at each reading"
    Attempt.objects.update(state="ended", outcome="succeeded", ended_at=NOON + HOUR)
    assert in_full(attempt.job)["energy"] == {"wh": pytest.approx(600), "source": "power"}
    Attempt.objects.update(gpu_energy_j=3600.0)
    assert in_full(attempt.job)["energy"] == {"wh": pytest.approx(1), "source": "measured"}
    assert energy_of_ended([]).joules == 0


def test_more_teams_and_types_take_no_more_queries(hour: Lab) -> None:
    """Written in one statement per table, and read by sums of the database."""

    def queries(teams: int) -> int:
        kind = GpuType.objects.get()
        read = [ReadEnergy(Team.objects.get_or_create(name=f"t{n}")[0].pk, kind.pk, 1.0, 1.0) for n in range(teams)]
        with CaptureQueriesContext(
            connection,
        ) as seen:
            add_energy_to_ledger(read, NOON, NOON + MINUTE)
        return len(seen)

    assert queries(20) == queries(1)
    assert GpuTypeUsage.objects.count() >= 1
