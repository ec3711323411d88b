from django.db import migrations, models


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
    ]
