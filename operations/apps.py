"""The app of operations; `migrate` refuses a database of 0.1, whose tables it would leave half old and half new."""

from typing import Any

from django.apps import AppConfig, apps
from django.core.management import CommandError
from django.db.models.signals import pre_migrate

OF_0_1 = (
    "The database is of Motley 0.1, which `migrate` does not bring to this version. Take a backup with 0.1 "
    "(`manage.py backup FILE`) and restore it here: `manage.py restore --replace FILE`."
)


class OperationsConfig(AppConfig):
    name = "operations"
    verbose_name = "Operations"

    def ready(self) -> None:
        pre_migrate.connect(_refuse_0_1, sender=apps.get_app_config("scheduler_app"))  # sent for apps with models alone


def _refuse_0_1(**kwargs: Any) -> None:
    from operations.restore_from_0_1 import database_is_of_0_1  # noqa: PLC0415 - models are not loaded before

    if database_is_of_0_1():
        raise CommandError(OF_0_1)
