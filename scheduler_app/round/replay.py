"""Replay of past rounds: solve the archived snapshot again and compare the plans."""

import numpy as np

from allocation.decision import Status
from allocation.plan_round import Plan
from allocation.policies.parameters import InvalidParameter
from scheduler_app.errors import NoSuchPolicy, NotReplayable
from scheduler_app.models import Round
from scheduler_app.round.archive import Archived, archive_of
from scheduler_app.round.run_round import decide


def replay_round(number: int) -> tuple[Archived, Plan, bool]:
    """A past round, solved again: what was decided, what is decided now, and whether they are equal.

    It has the time limit again only if it ran into it: on a busier machine it is still the same round.
    """
    archived = archive_of(Round(number=number))
    if archived is None:
        raise NotReplayable(
            f"Round {number} has no snapshot: it failed, or there was no such round, or its snapshot was deleted or is "
            "damaged."
        )
    limited = archived.plan.decision.status == Status.LIMIT
    snapshot = archived.snapshot if limited else archived.snapshot.without_limit()
    try:
        again = decide(snapshot, archived.policy, archived.parameters)
    except (NoSuchPolicy, InvalidParameter) as error:
        raise NotReplayable(
            f"Round {number} was decided by a policy or a parameter of an earlier release: {error}"
        ) from error
    return archived, again, same_plan(archived.plan, again)


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans have the same shares, assignments and GPUs."""
    shares = (one.decision.shares, other.decision.shares)
    alike = shares[0] is None if shares[1] is None else shares[0] is not None and np.array_equal(shares[0], shares[1])
    return alike and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("assignment", "owner"))
