from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("insight_app", "0002_lab_run_slots")]

    operations = [migrations.RenameField("labrun", "told_at", "heartbeat_at")]
