"""Solve a past round again."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from allocation.planning import Plan
from scheduler_app.archive import Archived
from scheduler_app.choosing import words_of
from scheduler_app.errors import NotReplayable
from scheduler_app.services import replay_round


class Command(BaseCommand):
    help = "Solves round N again from its snapshot, and says whether the decision is the same."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            archived, again, same = replay_round(options["number"])
        except NotReplayable as error:
            raise CommandError(str(error)) from error
        policy = " with ".join(filter(None, (archived.policy, words_of(archived.parameters))))
        self.stdout.write(f"round {options['number']}, {policy}, objective {again.decision.objective:.6g}")
        for line in _lines(archived, again):
            self.stdout.write(line)
        if not same:
            raise CommandError("The decision is NOT the one that was made.")
        self.stdout.write("The same decision.")


def _lines(archived: Archived, plan: Plan) -> list[str]:
    """Each job with what it was given."""
    problem = archived.snapshot.problem
    lines = []
    for row, (job, k) in enumerate(zip(archived.snapshot.jobs, plan.picks.tolist(), strict=True)):
        given = "waits" if k < 0 else f"{problem.gpus[k]} x {archived.snapshot.type_of(k)}"
        share = "" if plan.decision.shares is None else f"  share {plan.decision.shares[row].sum():.3f}"
        lines.append(f"{job}  {given}{share}")
    return lines
