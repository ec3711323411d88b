"""Daily usage of the attempts that ran before there was a row per day."""

from collections import defaultdict
from datetime import UTC, timedelta

from django.db import migrations

DAY = timedelta(days=1)
ROWS = 5000


def fill(apps, schema_editor):
    Attempt = apps.get_model("jobs_app", "Attempt")
    lease = apps.get_model("scheduler_app", "SchedulerLease").objects.exclude(accrued_until=None).first()
    if lease is None:
        return
    held, work = defaultdict(float), defaultdict(float)
    columns = ("job__team", "gpu_type", "gpu_count", "relative_speed", "started_at", "ended_at")
    started = Attempt.objects.filter(started_at__lt=lease.accrued_until).order_by()
    for team, kind, gpus, speed, start, end in started.values_list(*columns).iterator(ROWS):
        for day, seconds in _days(start, min(end or lease.accrued_until, lease.accrued_until)):
            held[team, kind, day] += gpus * seconds
            work[team, kind, day] += gpus * seconds * speed
    DailyUsage = apps.get_model("scheduler_app", "DailyUsage")
    DailyUsage.objects.bulk_create(
        [
            DailyUsage(team_id=team, gpu_type_id=kind, day=day, gpu_s=gpu_s, work_gpu_s=work[team, kind, day])
            for (team, kind, day), gpu_s in held.items()
        ],
        batch_size=ROWS,
    )


def _days(start, until):
    """Each day (UTC) with the seconds of the interval in it."""
    start, until = start.astimezone(UTC), until.astimezone(UTC)
    while start < until:
        end = min(start.replace(hour=0, minute=0, second=0, microsecond=0) + DAY, until)
        yield start.date(), (end - start).total_seconds()
        start = end


class Migration(migrations.Migration):
    dependencies = [("scheduler_app", "0011_daily_usage_and_retention_runs"), ("jobs_app", "0025_archive_of_jobs")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
