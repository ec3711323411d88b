"""Quotas on GPU types in the service: limits, guarantees, loans, reasons, the ledger of their prices, and archives."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.utils import timezone

from accounting_app.fairness.quota_ledger import lent_gpus, quota_reports
from accounting_app.models import QuotaHour
from cluster_app.models import GpuType
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job, Reason, TeamQuota
from scheduler_app.models import Round
from scheduler_app.round.archive import archive_of
from tests.service_lab import UNTIL_LET_GO, Lab

State = Job.State


def quota(lab: Lab, gpus: int, *, team: str = "vision", gpu_type: str = "a100", **limits: Any) -> TeamQuota:
    kind = GpuType.objects.get(name=gpu_type)
    return TeamQuota.objects.create(team=lab.team(team), gpu_type=kind, gpus=gpus, **limits)


def reason_of(job: Job) -> dict[str, Any]:
    job.refresh_from_db()
    found: dict[str, Any] = next(reason for reason in job.reasons if reason["code"] == Reason.QUOTA)
    return found


def test_a_team_has_no_more_of_a_type_than_its_quota_and_is_told_which(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    quota(lab, 1, borrowing_limit=0)
    lab.recorded_as_running(lab.submit(preemptible=False))
    waiting = lab.submit()
    lab.decide()
    found = reason_of(waiting)
    assert waiting.reason == Reason.QUOTA
    assert found["numbers"] == {"gpu_type": "a100", "needed": 1, "quota": 1, "used": 1, "limit": 1}
    assert "The quota of its team is 1 A100" in found["detail"]


@pytest.mark.parametrize("by_type", [False, True])
def test_jobs_of_a_team_take_turns_within_its_quota_though_other_gpus_are_idle(lab: Lab, by_type: bool) -> None:
    lab.node("n1", gpus=4)
    if by_type:
        quota(lab, 1, borrowing_limit=0)
    else:
        lab.team().__class__.objects.update(max_gpus=1)
    first = lab.submit(UNTIL_LET_GO)
    lab.running(first)
    lab.running(lab.submit(UNTIL_LET_GO))
    lab.until_state(first, State.QUEUED)


def test_a_job_starts_on_another_type_where_the_quota_of_one_is_used_up(lab: Lab) -> None:
    lab.node("n1", "a100")
    lab.node("n2", "t4")
    quota(lab, 1, borrowing_limit=0)
    jobs = [lab.submit(rates={"a100": 9, "t4": 1}) for _ in range(2)]
    lab.recorded_as_running(*jobs)
    assert sorted(lab.attempts(job)[0].gpu_type.name for job in jobs) == ["a100", "t4"]


def test_borrowed_gpus_go_back_to_the_team_that_lent_them_once_it_has_jobs(lab: Lab) -> None:
    lab.node("n1", gpus=2)
    quota(lab, 2)
    borrower = lab.user("bob", "language")
    borrowing = [lab.submit(UNTIL_LET_GO, owner=borrower, team="language") for _ in range(2)]
    lab.running(*borrowing)
    own = [lab.submit(UNTIL_LET_GO) for _ in range(2)]
    lab.running(*own)
    assert {lab.until_state(job, State.QUEUED).state for job in borrowing} == {State.QUEUED}


def test_a_team_whose_gpus_are_borrowed_by_a_job_that_stays_is_told_by_whom(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    quota(lab, 1)
    lab.recorded_as_running(lab.submit(owner=lab.user("bob", "language"), team="language", preemptible=False))
    waiting = lab.submit()
    lab.decide()
    assert "a job of team language among them" in reason_of(waiting)["detail"]
    assert waiting.reason == Reason.INSUFFICIENT_GPUS


def test_the_hours_of_a_quota_tell_its_use_and_what_it_costs(lab: Lab) -> None:
    """Two jobs wait beside idle GPUs: one more GPU would let one of them run, 24 hours of waiting a day."""
    lab.node("n1", gpus=4)
    quota(lab, 1, borrowing_limit=0)
    lab.recorded_as_running(lab.submit(preemptible=False))
    for _ in range(2):
        lab.submit()
    lab.decide()
    QuotaHour.objects.all().delete()
    lab.ahead += timedelta(minutes=30)
    lab.decide()
    (report,) = quota_reports(lab.user(), lab.now)
    assert (report.used, report.borrowed, report.borrowed_by_others) == (1, 0, 0)
    assert report.mean_gpus == pytest.approx(1)
    assert report.waiting_h == pytest.approx(24)
    assert report.words == "The a100 quota of vision costs 24.0 h of waiting a day: one more GPU would save them."


def test_others_borrow_only_what_a_quota_leaves(lab: Lab) -> None:
    """Of four GPUs two belong to no quota, which is what teams without one use first."""
    lab.node("n1", gpus=4)
    quota(lab, 2)
    bob = lab.user("bob", "language")
    borrowed = []
    for _ in range(3):
        lab.recorded_as_running(lab.submit(owner=bob, team="language"))
        borrowed.append(quota_reports(lab.user(), lab.now)[0].borrowed_by_others)
    assert borrowed == [0, 0, 1]


def test_several_quotas_lend_in_proportion_to_what_they_leave() -> None:
    sizes, third = {(1, 1): 4, (2, 1): 2}, (3, 1)
    assert lent_gpus(sizes, {third: 3}, {1: 6}) == {(1, 1): 2, (2, 1): 1}
    assert lent_gpus(sizes, {third: 3}, {1: 8}) == {(1, 1): 1, (2, 1): 0}
    assert lent_gpus(sizes, {third: 2, (1, 1): 4}, {1: 6}) == {(1, 1): 0, (2, 1): 2}


def test_a_quota_that_keeps_no_gpu_idle_costs_nothing(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    quota(lab, 1, borrowing_limit=0)
    lab.recorded_as_running(lab.submit(preemptible=False))
    lab.submit()
    lab.ahead += timedelta(minutes=1)
    lab.decide()
    (report,) = quota_reports(lab.user(), lab.now)
    assert (report.waiting_h, report.words) == (0, "The a100 quota of vision costs no waiting.")


def test_members_see_the_quotas_of_their_teams_and_staff_all(lab: Lab, django_assert_num_queries: Any) -> None:
    lab.node("n1")
    lab.user("bob", "language")
    quota(lab, 1)
    quota(lab, 1, team="language")
    ada, root = lab.user(), lab.user("root", "admins", staff=True)
    assert [report.quota.team.name for report in quota_reports(ada, timezone.now())] == ["vision"]
    with django_assert_num_queries(5):
        assert [report.quota.team.name for report in quota_reports(root, timezone.now())] == ["language", "vision"]


def test_without_quotas_nothing_is_recorded(lab: Lab) -> None:
    lab.node("n1")
    lab.recorded_as_running(lab.submit())
    assert not QuotaHour.objects.exists()
    assert quota_reports(lab.user(), timezone.now()) == []


def test_a_round_with_quotas_can_be_read_from_its_archive(lab: Lab) -> None:
    lab.node("n1", gpus=4)
    quota(lab, 2, borrowing_limit=1, lending_limit=1)
    lab.submit()
    lab.decide()
    last = Round.objects.latest_committed()
    assert last is not None
    archived = archive_of(last)
    assert archived is not None
    by_type = archived.snapshot.quotas.by_type
    assert by_type is not None
    assert (by_type.nominal.tolist(), by_type.most.tolist(), by_type.withheld.tolist()) == ([[2]], [[3]], [[1]])


def test_a_job_that_no_quota_of_its_team_would_ever_allow_is_refused(lab: Lab) -> None:
    lab.node("n1", gpus=8)
    quota(lab, 2, borrowing_limit=1)
    with pytest.raises(InvalidSpec) as refused:
        lab.submit(gpus=4)
    (fault,) = refused.value.faults
    assert (fault["pointer"], fault["code"]) == ("/gpus", "quota")
    assert "at most 3 GPUs" in fault["detail"]


def test_a_quota_lends_no_more_than_it_has(lab: Lab) -> None:
    lab.node("n1")
    wrong = TeamQuota(team=lab.team(), gpu_type=GpuType.objects.get(), gpus=2, lending_limit=3)
    with pytest.raises(ValidationError, match="write a lending limit up to the quota"):
        wrong.full_clean()
    with pytest.raises(IntegrityError):
        wrong.save()
