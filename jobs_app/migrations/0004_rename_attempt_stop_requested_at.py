from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs_app", "0003_personal_secrets")]

    operations = [
        migrations.RenameField("attempt", "stop_told_at", "stop_requested_at"),
        migrations.AlterField(
            "attempt",
            "stop_requested_at",
            models.DateTimeField(blank=True, help_text="When the engine was asked to stop it.", null=True),
        ),
    ]
