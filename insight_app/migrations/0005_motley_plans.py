"""The policy `motley_plan` is called `motley`, and what was `motley` is called `motley_static` (decision 131)."""

import re
from collections.abc import Callable
from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

RENAMED = {"motley": "motley_static", "motley_plan": "motley"}
BACK = {new: old for old, new in RENAMED.items()}
NAME = re.compile(r"\bmotley(?:_plan|_static)?\b")


def rename(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _rename(apps, RENAMED)


def rename_back(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    _rename(apps, BACK)


def _rename(apps: Apps, names: dict[str, str]) -> None:
    def renamed(spec: str) -> str:
        """A name with its parameters, as in sia:power=-0.5."""
        name, colon, parameters = spec.partition(":")
        return names.get(name, name) + colon + parameters

    for run in apps.get_model("insight_app", "LabRun").objects.all().iterator(chunk_size=20):
        run.policies = [renamed(spec) for spec in run.policies]
        for row in _rows(run.result):
            row["policy"] = renamed(row["policy"])
        if run.result and "summary" in run.result:
            run.result["summary"] = NAME.sub(lambda found: renamed(found[0]), run.result["summary"])
        run.save(update_fields=["policies", "result"])
    for guard in apps.get_model("insight_app", "PolicyGuard").objects.all().iterator(chunk_size=100):
        guard.predicted |= _renamed_words(guard.predicted, renamed)
        guard.save(update_fields=["predicted"])


def _rows(result: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The parts of a result that name a policy."""
    return [result["present"], *result["policies"]] if result else []


def _renamed_words(predicted: dict[str, Any], renamed: Callable[[str], str]) -> dict[str, str]:
    return {key: renamed(predicted[key]) for key in ("policy", "present_policy") if key in predicted}


class Migration(migrations.Migration):
    dependencies = [("insight_app", "0004_later_than_foreseen")]

    operations = [migrations.RunPython(rename, rename_back)]
