from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("connections_app", "0007_update_at")]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="update_tries",
            field=models.PositiveIntegerField(
                default=0, editable=False, help_text="How often an administrator had it try a change that failed again."
            ),
        ),
        migrations.AddField(
            model_name="agent",
            name="job_uid",
            field=models.BigIntegerField(
                null=True,
                editable=False,
                help_text="Number of the account of jobs on the server; empty: it has not said it.",
            ),
        ),
        migrations.AddField(
            model_name="agentattempt",
            name="kept",
            field=models.BooleanField(
                default=False, editable=False, help_text="Its job ended there, and its server keeps the job's folder."
            ),
        ),
        migrations.AddField(
            model_name="agentattempt",
            name="kept_bytes",
            field=models.BigIntegerField(
                null=True, editable=False, help_text="Of that folder; empty: not measured yet."
            ),
        ),
        migrations.AddIndex(
            model_name="agentattempt",
            index=models.Index(fields=["job", "agent"], name="agent_attempt_job_folder", condition=Q(kept=True)),
        ),
    ]
