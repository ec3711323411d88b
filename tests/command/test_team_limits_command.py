"""`motley quota` and `motley budget`: set and deleted by administrators, as the command shows it."""

import pytest

from jobs_app.models import Budget, TeamQuota
from tests.live_service import Live
from tests.motley_command import Motley


def test_a_quota_is_set_and_deleted(service: Live, staff: Motley) -> None:
    team = service.lab.team().name
    shown = staff("quota", "set", team, "a100", "2", "--borrow", "1")
    assert shown.stdout.splitlines()[1].split() == [team, "a100", "2", "0", "0", "1", "all", "not", "known"]
    assert TeamQuota.objects.values_list("gpus", "borrowing_limit", "lending_limit").get() == (2, 1, None)
    assert staff("quota", "delete", team, "a100").exit_code == 0
    assert not TeamQuota.objects.exists()
    assert staff("quota", "delete", team, "a100").exit_code == 4


def test_a_budget_is_set_and_deleted(service: Live, staff: Motley) -> None:
    team = service.lab.team().name
    shown = staff("budget", "set", team, "90", "--period", "week", "--kind", "hard").stdout
    assert "0 of 90" in shown
    assert Budget.objects.values_list("gpu_hours", "period", "kind").get() == (90, "week", "hard")
    assert staff("budget", "delete", team).exit_code == 0
    assert not Budget.objects.exists()


@pytest.mark.parametrize("words", [("quota", "set", "vision", "a100", "2"), ("budget", "set", "vision", "90")])
def test_members_may_not(service: Live, motley: Motley, words: tuple[str, ...]) -> None:
    service.lab.team()
    assert motley(*words).exit_code == 3
    assert not TeamQuota.objects.exists() | Budget.objects.exists()


def test_a_quota_that_lends_more_than_it_has_is_refused(service: Live, staff: Motley) -> None:
    refused = staff("quota", "set", service.lab.team().name, "a100", "2", "--lend", "3")
    assert (refused.exit_code, "lending limit up to the quota" in refused.stderr) == (2, True), refused.stderr
