"""Solve the archived snapshot of a past round again."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from allocation.plan_round import Plan
from scheduler_app.errors import NotReplayable
from scheduler_app.policy.settings import format_parameters
from scheduler_app.round.archive import Archived
from scheduler_app.round.replay import replay_round


class Command(BaseCommand):
    help = "Solves a past round again from its snapshot, and reports whether the decision is the same."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            archived, again, same = replay_round(options["number"])
        except NotReplayable as error:
            raise CommandError(str(error)) from error
        policy = " with ".join(filter(None, (archived.policy, format_parameters(archived.parameters))))
        self.stdout.write(f"round {options['number']}, {policy}, objective {again.decision.objective:.6g}")
        for line in _lines(archived, again):
            self.stdout.write(line)
        if not same:
            raise CommandError("The decision differs from the recorded one.")
        self.stdout.write("The same decision.")


def _lines(archived: Archived, plan: Plan) -> list[str]:
    """One line per job: its GPUs, and its share if the policy computes shares."""
    problem = archived.snapshot.problem
    lines = []
    for row, (job, k) in enumerate(zip(archived.snapshot.jobs, plan.assignment.tolist(), strict=True)):
        given = "waits" if k < 0 else f"{problem.gpus[k]} x {archived.snapshot.type_of(k)}"
        share = "" if plan.decision.shares is None else f"  share {plan.decision.shares[row].sum():.3f}"
        lines.append(f"{job}  {given}{share}")
    return lines
