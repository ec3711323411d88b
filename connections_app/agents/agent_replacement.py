"""Replacement of an agent by another machine: the attempts at the old one."""

from datetime import datetime, timedelta

from django.conf import settings

from connections_app.agents.silence import granted_lease_s
from connections_app.errors import AgentRefused
from connections_app.models import Agent, AgentAttempt
from engines.agent.codec import encode
from engines.protocol import AttemptReport, Phase


def leave_attempts_behind(agent: Agent, now: datetime) -> None:
    """Report the old machine's attempts as lost: its expired lease proves that none of them runs.

    What it never had is launched anew, if the new machine may have it. Raises `AgentRefused` during the lease.
    """
    left = agent.attempts.select_for_update().filter(forgotten=False, handed_over=False)
    rows = list(left.order_by("attempt"))
    left_s = _seconds_of_lease(agent, now)
    if left_s > 0 and any(row.delivered_at for row in rows):
        raise AgentRefused(f"The machine of before may still run jobs: join again in {left_s:.0f} s.")
    for row in rows:
        row.launch, row.report = "", encode(_last_report(row))
        row.handed_over = row.delivered_at is not None
    agent.attempts.filter(kept=True).update(kept=False)  # what the old machine kept is not on the new one
    AgentAttempt.objects.bulk_update(rows, ["launch", "report", "handed_over"])


def _last_report(row: AgentAttempt) -> AttemptReport:
    if row.delivered_at is None:
        return AttemptReport(row.attempt, Phase.UNKNOWN, proven_gone=True)
    said = "Another machine has joined in the place of its own."
    return AttemptReport(row.attempt, Phase.LOST, proven_gone=True, message=said)


def _seconds_of_lease(agent: Agent, now: datetime) -> float:
    """Seconds for which the machine may run jobs after its last message; as many again where a clock was set back."""
    if agent.heard_at is None:
        return 0.0
    lease = timedelta(seconds=max(settings.MOTLEY_AGENT_LEASE_S, granted_lease_s(agent)))
    return min((agent.heard_at + lease - now).total_seconds(), lease.total_seconds())
