"""Words for the jobs that get the GPUs for which another one waits: which, until when, and why they come first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from allocation.rounds.pending_reasons import Holder, Holders, PendingReason, ReasonCode
from scheduler_app.round.snapshot import Snapshot

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True)
class JobName:
    """A job's name with its team, shown in full to that team only."""

    name: str
    team_id: int
    team: str

    def shown_to(self, team_id: int) -> str:
        """The job's name for members of its team; for others only the team."""
        return self.name if team_id == self.team_id else f"a job of team {self.team}"


def words_of_holders(
    reason: PendingReason, holders: Holders, row: int, snapshot: Snapshot, names: Mapping[str, JobName]
) -> str:
    """Which jobs get the GPUs of the type, for about how long, and why they come before this row."""
    kind = snapshot.types[int(reason.numbers["gpu_type"])].upper()
    told = [_named(holder, row, snapshot, names) for holder in holders.first]
    if more := holders.jobs - len(told):
        told.append(f"{more} more job{'s' * (more > 1)}")
    if reason.code == ReasonCode.AWAITING_RELEASE:
        return f"The other {kind} are with {_joined(told)}."
    in_all = holders.gpus_in_all
    some = f"All {in_all}" if holders.gpus == in_all else f"{holders.gpus} of the {in_all}"
    which = "The only" if in_all == 1 else some
    goes = "goes" if holders.gpus == 1 else "go"
    first = [_why_kept(holders), _why_first(holders, row, snapshot, counts_teams="behind" in reason.numbers)]
    return " ".join([f"{which} {kind} {goes} to {_joined(told)}.", *filter(None, first)])


def _named(holder: Holder, row: int, snapshot: Snapshot, names: Mapping[str, JobName]) -> str:
    """A job with its GPUs and its expected end: `resnet-3 (4 GPUs, about 2 min left)`."""
    known = names.get(snapshot.jobs[holder.row])
    name = known.shown_to(int(snapshot.problem.team[row])) if known else "another job"
    gpus = f"{holder.gpus} GPU{'s' * (holder.gpus != 1)}"
    return f"{name} ({gpus}, {_left(holder)})"


def _left(holder: Holder) -> str:
    """How long it still runs: as estimated, or at most what its time limit leaves, where that is less."""
    if holder.limit_s < holder.left_s:
        return f"at most {_time(holder.limit_s)} left"
    return f"about {_time(holder.left_s)} left" if isfinite(holder.left_s) else "its end is not known"


def _why_kept(holders: Holders) -> str:
    """That jobs may not be stopped, and until when."""
    if not holders.keep:
        return ""
    if holders.keep == holders.jobs:
        which = "It" if holders.jobs == 1 else "None of them"
    else:
        which = "One of them" if holders.keep == 1 else f"{holders.keep} of them"
    may = "may" if which == "None of them" else "may not"
    if not isfinite(holders.keep_s):
        return f"{which} {may} be stopped."
    first = "" if holders.keep == 1 else "the first "
    return f"{which} {may} be stopped yet: {first}in {_time(holders.keep_s)} at the earliest."


def _why_first(holders: Holders, row: int, snapshot: Snapshot, *, counts_teams: bool) -> str:
    """What all the jobs that might be stopped, or might not start, have over the row."""
    others = holders.jobs - holders.keep
    if not others:
        return ""
    have = _advantages(holders, row, snapshot, counts_teams=counts_teams)
    one = others == 1
    if not have:
        them = ("the other" if one else "the others") if holders.keep else "it" if one else "them"
        return f"By the measure of the policy, more is gained with {them}."
    subject = ("The other" if one else "The others all") if holders.keep else "It" if one else "They all"
    return f"{subject} {_joined([_ADVANTAGES[name][others > 1] for name in have])}."


_ADVANTAGES = {
    "shorter": ("has less left to run", "have less left to run"),
    "smaller": ("needs fewer GPUs", "need fewer GPUs each"),
    "behind": ("is of a team further behind its share", "are of teams further behind their shares"),
    "weight": ("has a higher weight", "have higher weights"),
    "runs": ("would lose time if it were stopped", "would lose time if they were stopped"),
}
"""What one job, or several, have over the one that waits."""


def _advantages(holders: Holders, row: int, snapshot: Snapshot, *, counts_teams: bool) -> list[str]:
    """What all those jobs have over the row, of what the policy counts."""
    problem = snapshot.problem
    tests = {
        "shorter": holders.longest_s < problem.remaining_steps[row] / problem.rate[row].max(),
        "smaller": holders.most_gpus < problem.gpus[problem.rate[row] > 0].min(),
        "behind": counts_teams and holders.least_backlog_s > problem.team_backlog_s[row],
        "weight": holders.least_weight > problem.job_weight[row],
        "runs": holders.all_run,
    }
    return [name for name, holds in tests.items() if holds]


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _time(seconds: float) -> str:
    """`40 s`, `3 min`, `5 h` or `2 days`."""
    for unit_s, name, until_s in ((1.0, "s", MINUTE_S), (MINUTE_S, "min", 2 * HOUR_S), (HOUR_S, "h", 2 * DAY_S)):
        if seconds < until_s:
            return f"{max(round(seconds / unit_s), 1)} {name}"
    return f"{round(seconds / DAY_S)} days"
