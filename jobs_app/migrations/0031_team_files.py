from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs_app", "0030_limited_jobs")]

    operations = [
        migrations.AddField(
            model_name="team",
            name="files_bytes",
            field=models.PositiveBigIntegerField(
                default=0,
                editable=False,
                help_text="Of its jobs that ended, as added up at the last run of retention.",
            ),
        ),
    ]
