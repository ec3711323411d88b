"""`manage.py jointoken NAME`: a token with which one machine may join."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from connections_app.agents.join_agent import issue_join_token
from connections_app.errors import AgentRefused
from jobs_app.models import Team


class Command(BaseCommand):
    help = "Print a token with which one machine may join as the node of this name."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="of the node: lower-case letters, digits, '.', '_' and '-'")
        parser.add_argument("--trusted", action="store_true", help="it may have secrets of jobs")
        parser.add_argument("--site", action="store_true", help="it is a server of the site (docs/servers.md)")
        parser.add_argument("--team", help="whose machine it is: its members see it on the page Cluster")
        parser.add_argument("--hours", type=int, default=24, help="for so long the token can be used; default 24")

    def handle(self, *args: Any, **options: Any) -> None:
        given = {
            "trusted": options["trusted"],
            "site": options["site"],
            "lifetime": timedelta(hours=options["hours"]),
            "team": _team_of(options["team"]),
        }
        try:
            _, token = issue_join_token(options["name"], actor=None, now=timezone.now(), **given)
        except AgentRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(token)


def _team_of(name: str | None) -> Team | None:
    if name is None:
        return None
    found = Team.objects.filter(name=name).first()
    if found is None:
        names = ", ".join(Team.objects.order_by("name").values_list("name", flat=True)) or "there is none"
        raise CommandError(f"--team: there is no team {name!r}; the teams: {names}.")
    return found
