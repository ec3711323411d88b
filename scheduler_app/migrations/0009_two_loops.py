"""Lease of the loop that speaks with the engines beside that of rounds."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler_app", "0008_engine_probe")]

    operations = [
        migrations.RemoveConstraint(model_name="schedulerlease", name="lease_is_one_row"),
        migrations.RenameField(model_name="schedulerlease", old_name="round_number", new_name="token"),
        migrations.AddConstraint(
            model_name="schedulerlease",
            constraint=models.CheckConstraint(condition=models.Q(id__gte=1, id__lte=2), name="lease_of_a_known_loop"),
        ),
    ]
