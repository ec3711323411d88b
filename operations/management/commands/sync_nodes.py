"""Add or update the nodes of an engine."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cluster_app.models import Engine
from connections_app.sync_nodes import sync_nodes


class Command(BaseCommand):
    help = "Adds or updates the nodes of an engine as it reported them last, with their GPUs and GPU types."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("engine", help="Name of the engine.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            engine = Engine.objects.get(name=options["engine"])
        except Engine.DoesNotExist as error:
            known = ", ".join(Engine.objects.values_list("name", flat=True))
            raise CommandError(f"There is no engine {options['engine']}. Known engines: {known}.") from error
        for line in sync_nodes(engine, actor=None):
            self.stdout.write(line)
