"""A sentence for each team on its share and its entitlement, with reasons from ledger, policy and queue."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Count

from accounting_app.fairness.usage_ledger import TeamShare
from allocation.policies import REGISTRY, Need
from jobs_app.models import Job
from jobs_app.models.job import Reason

NEARLY = 0.02
"""Difference of shares that is not explained."""
MOST_NAMED = 3
LEAST_WAITING = 0.5
"""GPUs that waiting jobs ask for, on average, from which a team could have used more."""
UNEVEN_SPEED = 0.1
"""Relative difference of a team's work per GPU-second from that of all, from which it is told."""


@dataclass(frozen=True)
class ShareContext:
    """Possible reasons for a share: policy, pending reasons."""

    policy: str
    waiting: Mapping[str, Mapping[str, int]]
    """Team → headline reason → queued jobs, of the teams that the reader may see."""


def read_circumstances(user: User, policy: str) -> ShareContext:
    """The policy, and the reasons of queued jobs of the user's teams; one query."""
    queued = Job.objects.visible_to(user).queued().exclude(reason="")
    rows = queued.order_by().values_list("team__name", "reason").annotate(Count("pk"))
    waiting: dict[str, dict[str, int]] = defaultdict(dict)
    for team, reason, count in rows:
        waiting[team][reason] = count
    return ShareContext(policy, waiting)


def sentences(shares: Sequence[TeamShare], window: str, around: ShareContext) -> list[str]:
    """One sentence per team, in the order of the shares; pure."""
    return [_sentence(share, shares, window, around) for share in shares]


def _sentence(share: TeamShare, shares: Sequence[TeamShare], window: str, around: ShareContext) -> str:
    got = f"In {window} {share.team} got {_percent(share.delivered)} of the cluster's work"
    if abs(share.delivered - share.entitled) < NEARLY:
        return f"{got}, about its entitlement of {_percent(share.entitled)}."
    reasons = list(_reasons(share, shares, around))
    because = f", because {'; '.join(reasons)}" if reasons else ""
    although = "" if _is_sated(share) or share.delivered > share.entitled else f", although {_demand(share)}"
    waits = _queue(around.waiting.get(share.team, {})) if share.delivered < share.entitled else ""
    return f"{got} against an entitlement of {_percent(share.entitled)}{although}{because}.{waits}"


def _reasons(share: TeamShare, shares: Sequence[TeamShare], around: ShareContext) -> Iterable[str]:
    is_behind = share.delivered < share.entitled
    yield from _speed(share, shares, is_behind=is_behind)
    if is_behind and _is_sated(share):
        yield _demand(share)
    if not is_behind:
        yield from _left_by_others(share, shares)
    known = REGISTRY.get(around.policy)
    if known and Need.WEIGHTS not in known.needs:
        yield f"the policy {around.policy} does not count the weights of teams"


def _speed(share: TeamShare, shares: Sequence[TeamShare], *, is_behind: bool) -> Iterable[str]:
    """Its jobs had faster or slower GPUs than those of all teams, if that is the direction of the difference."""
    held = sum(each.gpu_hours for each in shares)
    speed = share.delivered * held / share.gpu_hours if share.gpu_hours else 1.0
    if abs(speed - 1) > UNEVEN_SPEED and (speed < 1) is is_behind:
        yield f"its GPUs did {_percent(speed)} of the average work per hour"


def _queue(waiting: Mapping[str, int]) -> str:
    """A sentence on what the team's jobs wait for now."""
    if not waiting:
        return ""
    labels: Mapping[str, str] = dict(Reason.choices)
    most = sorted(waiting.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMED]
    total = sum(waiting.values())
    told = ", ".join(f"{labels.get(reason, reason)}{f': {count}' if len(most) > 1 else ''}" for reason, count in most)
    return f" {total} of its jobs {'waits' if total == 1 else 'wait'} now ({told})."


def _left_by_others(share: TeamShare, shares: Sequence[TeamShare]) -> Iterable[str]:
    """Teams that got less than they were entitled to, those of the largest difference first, and why, if it is known.

    That one got less, and could have used more, is no reason for the other's share but the other side of it.
    """
    behind = [each for each in shares if each.team != share.team and each.entitled - each.delivered >= NEARLY]
    for each in sorted(behind, key=lambda each: each.delivered - each.entitled)[:MOST_NAMED]:
        why = [*([_demand(each)] if _is_sated(each) else []), *_speed(each, shares, is_behind=True)]
        if why:
            yield f"{each.team} got {_against(each)} ({'; '.join(why)})"


def _against(share: TeamShare) -> str:
    return f"{_percent(share.delivered)} against {_percent(share.entitled)}"


def _is_sated(share: TeamShare) -> bool:
    """Whether the team's jobs could not have used more GPUs over the window."""
    return share.waiting_gpus < LEAST_WAITING


def _demand(share: TeamShare) -> str:
    """Whether a team could have used more GPUs over the window."""
    if _is_sated(share):
        return "hardly any of its jobs waited, so that it could use no more"
    gpus = f"{share.waiting_gpus:.0f} GPU{'' if round(share.waiting_gpus) == 1 else 's'}"
    return f"its waiting jobs asked for {gpus} on average"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"
