"""Why a team got more or less than its entitlement, in one sentence."""

from scheduler_app.fairness.because import Circumstances, read_circumstances, sentences
from scheduler_app.fairness.usage_ledger import TeamShare
from tests.service_lab import Lab


def share(team: str, entitled: float, delivered: float, gpu_hours: float) -> TeamShare:
    return TeamShare(team, 1.0, entitled, delivered, gpu_hours, 0.0)


FAST = [share("vision", 0.5, 0.7, 70), share("speech", 0.5, 0.3, 30)]
AGAINST = "of the cluster's work against an entitlement of 50 %, because"


def test_a_team_that_is_behind_is_told_what_its_jobs_wait_for() -> None:
    waiting = {"speech": {"insufficient_gpus": 4, "outbid": 1}}
    ahead, behind = sentences(FAST, "the last hour", Circumstances("motley", waiting))
    assert ahead == f"In the last hour vision got 70 % {AGAINST} speech got less than its entitlement."
    told = "5 of its jobs wait now (not enough free GPUs: 4, outbid by other jobs: 1)"
    assert behind == f"In the last hour speech got 30 % {AGAINST} {told}."


def test_speed_and_a_policy_that_counts_no_weights_are_told() -> None:
    even = [share("vision", 0.5, 0.7, 50), share("speech", 0.5, 0.3, 50)]
    ahead, behind = sentences(even, "the last hour", Circumstances("fifo", {}))
    assert "because its GPUs did 140 % of the average work per hour and speech got less" in ahead
    assert "because its GPUs did 60 % of the average work per hour and the policy fifo does not count" in behind


def test_a_team_with_its_entitlement_needs_no_reason() -> None:
    (only,) = sentences([share("vision", 1.0, 1.0, 5)], "the last hour", Circumstances("fifo", {}))
    assert only.endswith("which is its entitlement within 2 %.")


def test_reasons_of_queued_jobs_are_those_of_the_readers_teams(lab: Lab) -> None:
    lab.node("n1")
    for owner in (lab.user("ann", "vision"), lab.user("bob", "speech")):
        job = lab.submit(owner=owner)
        type(job).objects.filter(pk=job.pk).update(reason="outbid")
    assert read_circumstances(lab.user("ann", "vision"), "motley").waiting == {"vision": {"outbid": 1}}
