"""The policy `motley_plan` is called `motley`, and what was `motley` is called `motley_static` (decision 131)."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Case, Value, When

RENAMED = {"motley": "motley_static", "motley_plan": "motley"}
BACK = {new: old for old, new in RENAMED.items()}


def rename(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _rename(apps, RENAMED)


def rename_back(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _rename(apps, BACK)


def _rename(apps: Apps, names: dict[str, str]) -> None:
    """In one statement for each table: the names are exchanged."""
    new = Case(*(When(policy=old, then=Value(new)) for old, new in names.items()))
    for model in ("PolicySetting", "Round"):
        apps.get_model("scheduler_app", model).objects.filter(policy__in=names).update(policy=new)


class Migration(migrations.Migration):
    dependencies = [("scheduler_app", "0001_initial")]

    operations = [
        migrations.RunPython(rename, rename_back),
    ]
