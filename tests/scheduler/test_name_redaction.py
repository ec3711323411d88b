"""Names of jobs stay within their team."""

from scheduler_app.round.holders import JobName

RIVAL = JobName("secret-project", team_id=1, team="vision")


def test_a_job_goes_by_its_name_within_its_team() -> None:
    assert RIVAL.shown_to(1) == "secret-project"


def test_before_another_team_only_its_team_is_named() -> None:
    assert RIVAL.shown_to(2) == "a job of team vision"
