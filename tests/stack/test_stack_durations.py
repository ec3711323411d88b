"""The model of durations is fitted by the Celery worker, in a process of its own, and stored in PostgreSQL."""

from collections.abc import Iterator
from typing import Any

import pytest

from estimation.boosted_durations import FEWEST_JOBS
from tests.deployment import wait_for
from tests.stack.composed import Stack

ENDED_JOBS = f"""
from datetime import timedelta
from uuid import UUID
from django.contrib.auth.models import User
from django.utils import timezone
from jobs_app.models import Team
from accounting_app.models import DurationForecast
owner, _ = User.objects.get_or_create(username="ended")
team, now = Team.objects.get_or_create(name="ended")[0], timezone.now()
rows = []
for number in range({FEWEST_JOBS + 20}):
    limit, at = 1200 * (1 + 59 * (number % 2)), now - timedelta(days={FEWEST_JOBS + 20} - number)
    job = UUID(int=(int(at.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62))
    end = at + timedelta(seconds=limit / 2)
    rows.append(DurationForecast(job=job, seconds=limit / 2, ended_at=end, name="train", gpus=1,
                                 time_limit_s=limit, owner=owner, team=team))
DurationForecast.objects.bulk_create(rows)
"""
FORGOTTEN = """
from django.contrib.auth.models import User
from jobs_app.models import Team
from accounting_app.models import DurationForecast, DurationModel
DurationForecast.objects.filter(team__name="ended").delete()
DurationModel.objects.all().delete()
Team.objects.filter(name="ended").delete()
User.objects.filter(username="ended").delete()
"""


@pytest.fixture
def with_ended_jobs(stack: Stack) -> Iterator[Stack]:
    stack.python(ENDED_JOBS)
    yield stack
    stack.python(FORGOTTEN)


def test_the_worker_fits_the_model_once_enough_jobs_have_ended(with_ended_jobs: Stack) -> None:
    def row() -> Any:
        with with_ended_jobs.database() as database:
            columns = "jobs, message, length(trees) > 0"
            found = database.execute(f"select {columns} from accounting_app_durationmodel")
            return next((one for one in found.fetchall() if one[1] or one[2]), None)

    jobs, message, has_trees = wait_for("the model of durations is stored", row)
    assert (message, has_trees) == ("", True)
    assert jobs >= FEWEST_JOBS
