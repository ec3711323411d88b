"""`motley` has no parameter `power`: a setting that names it would no longer be one (decision 141)."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def drop_power(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for setting in apps.get_model("scheduler_app", "PolicySetting").objects.filter(policy="motley"):
        if "power" in setting.parameters:
            del setting.parameters["power"]
            setting.save(update_fields=["parameters"])


class Migration(migrations.Migration):
    dependencies = [("scheduler_app", "0003_heard_at")]

    operations = [migrations.RunPython(drop_power, migrations.RunPython.noop)]
