from typing import Any

from django.db import migrations, models
from django.db.models import F


def trust_as_issued(apps: Any, _: Any) -> None:
    """Join tokens that were issued before mean the trust that was stored with them."""
    apps.get_model("scheduler_app", "Agent").objects.update(join_trusted=F("trusted"))


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler_app", "0022_job_forecasts"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="join_trusted",
            field=models.BooleanField(default=False, help_text="Whether the machine that joins will be trusted."),
        ),
        migrations.AlterField(
            model_name="agent",
            name="trusted",
            field=models.BooleanField(default=False, help_text="Whether the machine that has joined is."),
        ),
        migrations.RunPython(trust_as_issued, migrations.RunPython.noop, elidable=True),
    ]
