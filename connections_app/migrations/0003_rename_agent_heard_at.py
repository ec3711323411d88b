from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("connections_app", "0002_marks_of_agents")]

    operations = [migrations.RenameField("agent", "told_at", "heard_at")]
