from django.db import migrations, models
from django.db.models import Q

SOURCES = ("", "measured", "declared", "completed", "fitted", "estimated", "assumed")
LABELS = (
    ("measured", "measured"),
    ("declared", "declared"),
    ("completed", "completed from other workloads"),
    ("fitted", "fitted to the workload's step times"),
    ("estimated", "estimated from the GPU types' specifications"),
    ("assumed", "assumed, as no rate of the workload is known"),
)


class Migration(migrations.Migration):
    dependencies = [("jobs_app", "0009_sweeps")]

    operations = [
        migrations.AlterField(
            "attempt", "rate_source", models.CharField(blank=True, choices=LABELS, default="", max_length=20)
        ),
        migrations.RemoveConstraint("attempt", "attempt_rate_source_known"),
        migrations.AddConstraint(
            "attempt",
            models.CheckConstraint(condition=Q(rate_source__in=SOURCES), name="attempt_rate_source_known"),
        ),
    ]
