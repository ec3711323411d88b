"""A round taken apart, so that something can happen between its decision and its commit."""

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from allocation.plan_round import Plan
from jobs_app.models import Job
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.commit import changes_of, commit_round
from scheduler_app.round.cpu_memory import CpuMemoryShares
from scheduler_app.round.inputs import newest_events
from scheduler_app.round.inputs.job_row import JobRow
from scheduler_app.round.run_round import OpenedRound, cpu_memory_shares, decide, take_snapshot
from scheduler_app.round.snapshot import Snapshot
from tests.service_lab import Lab


@dataclass(frozen=True)
class Decided:
    """A round that was decided and not yet committed."""

    holder: str
    record: Round
    snapshot: Snapshot
    plan: Plan
    shares: CpuMemoryShares
    requests: dict[UUID, JobRow]

    @classmethod
    def now(cls, lab: Lab, holder: str, number: int) -> Self:
        setting, opening = PolicySetting.objects.current(), OpenedRound(number, lab.now, *newest_events())
        snapshot, _, rows, since = take_snapshot(lab.now, setting)
        record = opening.record(Round.Result.COMMITTED, setting=setting, shares_since=since)
        plan = decide(snapshot, setting.policy, setting.parameters)
        requests = {job.id: job for job in rows.jobs}
        return cls(holder, record, snapshot, plan, cpu_memory_shares(rows, snapshot, plan), requests)

    def starts(self, job: Job) -> bool:
        rows = changes_of(self.snapshot, self.plan).starts
        return str(job.pk) in {self.snapshot.jobs[start.row] for start in rows}

    def commit(self, lab: Lab) -> None:
        beside = {"shares": self.shares, "requests": self.requests}
        commit_round(self.record, self.snapshot, self.plan, holder=self.holder, now=lab.now, **beside)
