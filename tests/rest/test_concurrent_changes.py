"""Two people change the same thing at the same moment: each finds what the other has done, and nothing is lost."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from jobs_app.errors import InvalidSpec, NotAllowed, TeamInUse
from jobs_app.models import Job, Team
from jobs_app.submission.submit import admitted, enter
from jobs_app.teams import remove_member, retire_team, set_lead
from tests.service_lab import Lab
from tests.two_connections import apart, only_there, wait_for_our_lock

pytestmark = [only_there, pytest.mark.django_db(transaction=True)]
SPEC = {"name": "a", "command": "true", "gpus": 1}


def one_after_the_other(first: Callable[[], Any], second: Callable[[], Any]) -> Any:
    """What the second returns or raises, which comes before the first is committed."""
    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            first()
            late = threads.submit(apart, second)
            wait_for_our_lock(late)
        return late.result()


# -- teams ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def leads(cluster: Lab) -> tuple[Team, User, User]:
    team, lea, max_ = cluster.team(), cluster.user("lea"), cluster.user("max")
    team.leads.add(lea, max_)
    return team, lea, max_


def test_of_two_leads_who_remove_each_other_one_stays(leads: tuple[Team, User, User]) -> None:
    team, lea, max_ = leads
    with pytest.raises(NotAllowed, match="Only leads"):
        one_after_the_other(lambda: remove_member(team, max_, actor=lea), lambda: remove_member(team, lea, actor=max_))
    assert list(team.leads.all()) == [lea]


def test_of_two_leads_who_give_the_role_up_one_keeps_it(leads: tuple[Team, User, User]) -> None:
    team, lea, max_ = leads
    with pytest.raises(NotAllowed, match="only lead"):
        one_after_the_other(
            lambda: set_lead(team, max_, lead=False, actor=max_), lambda: remove_member(team, lea, actor=lea)
        )
    assert list(team.leads.all()) == [lea]


def test_a_job_that_comes_while_its_team_is_retired_is_refused(cluster: Lab) -> None:
    team, job = cluster.team(), admitted(SPEC, cluster.user())
    with pytest.raises(InvalidSpec, match="has just been retired"):
        one_after_the_other(lambda: retire_team(team, actor=None), lambda: enter(job))
    assert not Job.objects.exists()


def test_a_team_is_not_retired_while_a_job_comes(cluster: Lab) -> None:
    team, job = cluster.team(), admitted(SPEC, cluster.user())
    with pytest.raises(TeamInUse):
        one_after_the_other(lambda: enter(job), lambda: retire_team(team, actor=None))
    assert Team.objects.current().get() == team


def test_jobs_of_a_team_do_not_wait_for_each_other(cluster: Lab) -> None:
    one, other = (admitted(SPEC, cluster.user()) for _ in range(2))
    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        enter(one)
        threads.submit(apart, lambda: enter(other)).result(timeout=60)
    assert Job.objects.count() == 2
