"""Solve the archived snapshots of past rounds again."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from allocation.plan_round import Plan
from scheduler_app.errors import NotReplayable
from scheduler_app.policy.settings import format_parameters
from scheduler_app.round.archive import Archived
from scheduler_app.round.replay import replay_round


class Command(BaseCommand):
    help = "Solves past rounds again from their snapshots, and reports whether the decisions are the same."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int, nargs="+")

    def handle(self, *args: Any, **options: Any) -> None:
        differ = [number for number in options["number"] if not self._replay(number)]
        if differ:
            raise CommandError(f"The decision differs from the recorded one in {', '.join(map(str, differ))}.")

    def _replay(self, number: int) -> bool:
        """Write one round's decision, solved again; returns whether it is the recorded one."""
        try:
            archived, again, same = replay_round(number)
        except NotReplayable as error:
            raise CommandError(str(error)) from error
        policy = " with ".join(filter(None, (archived.policy, format_parameters(archived.parameters))))
        self.stdout.write(f"round {number}, {policy}, objective {again.decision.objective:.6g}")
        for line in _lines(archived, again):
            self.stdout.write(line)
        if same:
            self.stdout.write("The same decision.")
        return same


def _lines(archived: Archived, plan: Plan) -> list[str]:
    """One line per job: its GPUs, and its share if the policy computes shares."""
    problem = archived.snapshot.problem
    lines = []
    for row, (job, k) in enumerate(zip(archived.snapshot.jobs, plan.assignment.tolist(), strict=True)):
        given = "waits" if k < 0 else f"{problem.gpus[k]} x {archived.snapshot.type_of(k)}"
        share = "" if plan.decision.shares is None else f"  share {plan.decision.shares[row].sum():.3f}"
        lines.append(f"{job}  {given}{share}")
    return lines
