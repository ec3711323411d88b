"""The model of durations: fitted once a night, stored with its card, used by rounds and pages where it was better."""

import os
import subprocess
import sys
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from django.core.management import call_command
from django.test import Client

from accounting_app.durations import boosted_model
from accounting_app.durations.boosted_model import TOO_FEW, claim_fit, fit_model, read_card, read_failure, read_model
from accounting_app.models import DurationForecast, DurationModel
from estimation.boosted_durations import FEWEST_JOBS
from estimation.duration_features import FEATURES_VERSION
from estimation.durations import Basis
from insight_app.explain.remaining_work import remaining_work
from tests.service_lab import UNTIL_LET_GO, Lab, lab_of_rows
from tests.shared_rows import shared_rows

HOUR = 3600
MINUTES, HOURS = 20 * 60, 20 * HOUR
"""Limits of short and of long jobs."""


def ended_jobs(lab: Lab, n: int = FEWEST_JOBS + 20) -> None:
    """Jobs of one name that used half of their limit, twenty minutes or twenty hours, one after another."""
    random, owner, team = Random(0), lab.user(), lab.team()
    first = lab.now - timedelta(days=n)
    rows = []
    for number in range(n):
        limit, at = random.choice((MINUTES, HOURS)), first + timedelta(days=number)
        seconds = limit / 2 * random.lognormvariate(0, 0.2)
        columns = {"name": "train", "gpus": 1, "time_limit_s": limit, "owner": owner, "team": team}
        end = at + timedelta(seconds=seconds)
        rows.append(DurationForecast(job=id_of(at), seconds=seconds, ended_at=end, **columns))
    DurationForecast.objects.bulk_create(rows)


def id_of(at: datetime) -> UUID:
    """A UUIDv7 of that time."""
    return UUID(int=(int(at.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62))


@pytest.fixture(autouse=True)
def _forgotten_model() -> None:
    """A process keeps the model that it has read; another test may have damaged its row."""
    boosted_model._model.cache_clear()


@shared_rows
def fitted() -> DurationModel:
    """The model of last night, of enough jobs."""
    lab = lab_of_rows()
    ended_jobs(lab)
    return fit_model(lab.now)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", "a100", gpus=2)
    lab.policy("qssf")
    lab.user()
    return lab


def test_a_round_tells_jobs_of_one_name_apart_by_what_the_model_knows(fitted: DurationModel, cluster: Lab) -> None:
    blocking = cluster.submit(UNTIL_LET_GO, name="blocking", gpus=2)
    cluster.running(blocking)
    long = cluster.submit(UNTIL_LET_GO, name="train", time_limit=f"{HOURS}s")
    short = cluster.submit(UNTIL_LET_GO, name="train", time_limit=f"{MINUTES}s")
    cluster.round()
    made = {row.job: row for row in DurationForecast.objects.filter(pk__in=(long.pk, short.pk))}
    assert {row.submission_basis for row in made.values()} == {Basis.BOOSTED}
    assert made[short.pk].submission_s == pytest.approx(MINUTES / 2, rel=0.5)
    assert made[long.pk].submission_s == pytest.approx(HOURS / 2, rel=0.5)
    left = remaining_work(short, [], cluster.now)
    assert left is not None
    assert (left.basis, left.seconds) == (Basis.BOOSTED, pytest.approx(made[short.pk].submission_s))
    assert left.detail == f"from a model of {made[short.pk].submission_n} jobs that ended"


def test_a_stored_forecast_keeps_what_the_job_requested(cluster: Lab) -> None:
    job = cluster.submit(time_limit=f"{HOUR}s", gpu_types=["a100"])
    cluster.decide()
    kept = DurationForecast.objects.get(pk=job.pk)
    assert (kept.gpu_types, kept.time_limit_s) == ("a100", HOUR)


def test_a_fit_is_due_once_a_night_and_when_enough_jobs_have_ended(lab: Lab) -> None:
    night = lab.now.replace(hour=3, minute=0)
    ended_jobs(lab, FEWEST_JOBS)
    assert not claim_fit(night)
    lab.succeeded("one more", HOUR)
    assert [claim_fit(night + timedelta(hours=hours)) for hours in (0, 1, 23, 24)] == [True, False, False, True]


def test_where_too_few_jobs_have_ended_the_card_says_so_and_the_last_model_stays(lab: Lab) -> None:
    ended_jobs(lab)
    fit_model(lab.now)
    DurationForecast.objects.all().delete()
    fit_model(lab.now + timedelta(days=1))
    assert read_failure() == TOO_FEW
    assert read_model() is not None


def test_only_the_newest_model_and_a_month_of_cards_are_kept(lab: Lab) -> None:
    ended_jobs(lab)
    for days in range(40, 2, -1):
        DurationModel.objects.create(day=(lab.now - timedelta(days=days)).date())
    fit_model(lab.now - timedelta(days=1))
    last = fit_model(lab.now)
    assert DurationModel.objects.count() == 30
    assert list(DurationModel.objects.exclude(trees=None)) == [last]
    assert DurationModel.objects.exclude(fitted_at=None).count() == 2


MORE_DAMAGE = [pytest.param(name, marks=pytest.mark.thorough) for name in ("empty", "cut", "no array")]


@pytest.mark.parametrize("damage", ["a byte", "other features", "other pools", *MORE_DAMAGE])
def test_with_a_model_that_cannot_be_read_the_rolling_estimate_is_used(
    fitted: DurationModel, cluster: Lab, damage: str
) -> None:
    assert fitted.trees is not None
    middle = len(fitted.trees) // 2
    flipped = bytes([fitted.trees[middle] ^ 255])
    DurationModel.objects.update(
        **{
            "empty": {"trees": b""},
            "cut": {"trees": fitted.trees[:middle]},
            "a byte": {"trees": fitted.trees[:middle] + flipped + fitted.trees[middle + 1 :]},
            "other features": {"features_version": FEATURES_VERSION + 1},
            "other pools": {"comparisons": [{**fitted.comparisons[0], "basis": "of_another_version"}]},
            "no array": {"trees": b"not what was stored"},
        }[damage]
    )
    job = cluster.submit(name="train", time_limit=f"{MINUTES}s")
    cluster.decide()
    assert DurationForecast.objects.get(pk=job.pk).submission_basis == Basis.SIMILAR


@pytest.mark.usefixtures("plain_static")
def test_the_page_and_rest_show_the_card(lab: Lab, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.force_login(lab.user())
    assert "There is no model" in client.get("/estimates").content.decode()
    assert client.get("/api/v1/estimates").json()["duration_model"] is None
    ended_jobs(lab)
    call_command("fitdurations")
    card = read_card()
    assert card is not None
    assert capsys.readouterr().out == f"fitted to {card.card.jobs} jobs\n"
    page = client.get("/estimates").content.decode()
    assert f"to {card.card.jobs} jobs that ended" in page
    assert "It is in use where its medians were better" in page
    found = client.get("/api/v1/estimates").json()["duration_model"]
    of_all, similar = found["comparisons"]
    assert (found["jobs"], of_all["basis"], of_all["in_use"]) == (card.card.jobs, None, False)
    assert (similar["basis"], similar["in_use"], similar["jobs"]) == ("similar", True, card.card.jobs // 10)
    assert similar["model"]["factor"] < similar["mean"]["factor"]


def test_the_processes_of_the_service_do_not_load_scikit_learn() -> None:
    program = "import sys, config.wsgi, operations.tasks, config.urls; print('sklearn' in sys.modules)"
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"
