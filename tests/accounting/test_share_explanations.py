"""Why a team got more or less than its entitlement, in one sentence."""

from accounting_app.fairness.share_explanations import ShareContext, read_circumstances, sentences
from accounting_app.fairness.usage_ledger import TeamShare, team_shares
from accounting_app.models import TeamUsage
from tests.service_lab import Lab


def share(team: str, entitled: float, delivered: float, gpu_hours: float, waiting_gpus: float = 0.0) -> TeamShare:
    return TeamShare(team, 1.0, entitled, delivered, gpu_hours, 0.0, waiting_gpus)


FAST = [share("vision", 0.5, 0.7, 70), share("speech", 0.5, 0.3, 30, waiting_gpus=6.2)]


def test_a_team_that_is_behind_is_told_what_its_jobs_wait_for() -> None:
    waiting = {"speech": {"insufficient_gpus": 4, "outbid": 1}}
    ahead, behind = sentences(FAST, "the last hour", ShareContext("motley", waiting))
    against = "of the cluster's work against an entitlement of 50 %"
    assert ahead == f"In the last hour vision got 70 % {against}."
    told = "5 of its jobs wait now (not enough free GPUs: 4, outbid by other jobs: 1)"
    asked = "although its waiting jobs asked for 6 GPUs on average"
    assert behind == f"In the last hour speech got 30 % {against}, {asked}. {told}."


def test_no_two_teams_are_each_others_reason() -> None:
    """One got what the other did not: that is no reason for either."""
    ahead, behind = sentences(FAST, "the last hour", ShareContext("motley", {}))
    assert "because" not in ahead + behind
    assert "vision" not in behind


def test_a_team_whose_jobs_did_not_wait_is_said_to_have_used_what_it_could() -> None:
    idle = [share("vision", 0.5, 0.7, 70), share("speech", 0.5, 0.3, 30)]
    ahead, behind = sentences(idle, "the last hour", ShareContext("motley", {}))
    could = "hardly any of its jobs waited, so that it could use no more"
    assert ahead.endswith(f"because speech got 30 % against 50 % ({could}).")
    assert behind.endswith(f"because {could}.")


def test_how_much_waiting_jobs_asked_for_is_read_from_the_ledger(lab: Lab) -> None:
    minute = lab.now
    usage = {"minute": minute, "entitled_share_s": 60, "active_s": 60, "waiting_gpu_s": 240}
    TeamUsage.objects.create(team=lab.team("vision"), **usage)
    (found,) = team_shares(minute)
    assert found.waiting_gpus == 4


def test_speed_and_a_policy_that_counts_no_weights_are_told() -> None:
    even = [share("vision", 0.5, 0.7, 50), share("speech", 0.5, 0.3, 50)]
    ahead, behind = sentences(even, "the last hour", ShareContext("fifo", {}))
    assert "because its GPUs did 140 % of the average work per hour; speech got 30 % against 50 %" in ahead
    assert "could use no more; its GPUs did 60 % of the average work per hour)" in ahead
    assert "because its GPUs did 60 % of the average work per hour; hardly any" in behind
    assert "; the policy fifo does not count" in behind


def test_a_team_with_its_entitlement_needs_no_reason() -> None:
    (only,) = sentences([share("vision", 1.0, 1.0, 5)], "the last hour", ShareContext("fifo", {}))
    assert only.endswith("about its entitlement of 100 %.")


def test_reasons_of_queued_jobs_are_those_of_the_readers_teams(lab: Lab) -> None:
    lab.node("n1")
    for owner in (lab.user("ann", "vision"), lab.user("bob", "speech")):
        job = lab.submit(owner=owner)
        type(job).objects.filter(pk=job.pk).update(reason="outbid")
    assert read_circumstances(lab.user("ann", "vision"), "motley").waiting == {"vision": {"outbid": 1}}
