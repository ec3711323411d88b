from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("jobs_app", "0029_image")]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=Q(state="running") & (Q(time_limit_s__isnull=False) | Q(idle_limit_s__isnull=False)),
                fields=["id"],
                name="job_running_limited",
            ),
        ),
    ]
