"""Two people change the same thing at the same moment: each finds what the other has done, and nothing is lost."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from rest_framework.test import APIClient

from jobs_app.errors import InvalidSpec, NotAllowed, TeamInUse
from jobs_app.models import Job, Team
from jobs_app.submission.submit import admitted, enter
from jobs_app.teams import remove_member, retire_team, set_lead
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy, lock_settings
from tests.rest_callers import caller
from tests.service_lab import Lab
from tests.two_connections import apart, one_after_the_other, only_there, wait_for_our_lock

pytestmark = [only_there, pytest.mark.django_db(transaction=True)]
SPEC = {"name": "a", "command": "true", "gpus": 1}


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


# -- the policy ----------------------------------------------------------------------------------------------------

CURRENT = "/api/v1/policies/current"


def test_a_policy_that_is_chosen_for_another_than_that_in_force_by_then_is_refused(root: APIClient) -> None:
    seen = {"if-match": root.get(CURRENT)["ETag"]}
    late = one_after_the_other(
        lambda: choose_policy(PolicySetting(policy="fifo"), actor=None),
        lambda: root.put(CURRENT, {"policy": "srtf"}, format="json", headers=seen),
    )
    assert (late.status_code, PolicySetting.objects.current().policy) == (412, "fifo")


def test_what_is_left_out_stays_as_it_is_by_then(root: APIClient) -> None:
    late = one_after_the_other(
        lambda: choose_policy(PolicySetting(policy="fifo", round_length_s=30), actor=None),
        lambda: root.put(CURRENT, {"policy": "srtf"}, format="json"),
    )
    assert (late.json()["policy"], late.json()["round_length_s"]) == ("srtf", 30)


def test_the_third_waits_for_the_second_who_has_waited_for_the_first(cluster: Lab) -> None:
    has_it, done = Event(), Event()

    @transaction.atomic
    def second() -> None:
        lock_settings()
        has_it.set()
        done.wait(60)

    @transaction.atomic
    def third() -> None:
        connection.cursor().execute("SET LOCAL lock_timeout = '200ms'")
        lock_settings()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            choose_policy(PolicySetting(policy="fifo"), actor=None)
            late = threads.submit(apart, second)
            wait_for_our_lock(late)
        assert has_it.wait(60)
        try:
            with pytest.raises(OperationalError, match="lock timeout"):
                third()
        finally:
            done.set()
        late.result()


# -- names ---------------------------------------------------------------------------------------------------------

THINGS: dict[str, dict[str, Any]] = {
    "recipes": {"spec": SPEC},
    "recurring-jobs": {"spec": SPEC, "schedule": "0 3 * * *"},
}


@pytest.fixture(params=THINGS)
def things(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Address of a list, and the body of an addition without a name."""
    return f"/api/v1/{request.param}", THINGS[request.param]


@pytest.fixture
def max_(cluster: Lab) -> APIClient:
    """Another member of vision."""
    return caller(cluster.user("max"))


def test_of_two_that_are_renamed_to_one_name_the_second_is_refused(
    ada: APIClient, max_: APIClient, things: tuple[str, dict[str, Any]]
) -> None:
    address, body = things
    first, second = (ada.post(address, body | {"name": name}, format="json").json()["id"] for name in "ab")
    late = one_after_the_other(
        lambda: ada.patch(f"{address}/{first}", {"name": "c"}, format="json"),
        lambda: max_.patch(f"{address}/{second}", {"name": "c"}, format="json"),
    )
    assert (late.status_code, late.json()["errors"][0]["code"]) == (422, "name_taken")


def test_one_that_is_renamed_to_the_name_of_one_that_is_added_is_refused(
    ada: APIClient, max_: APIClient, things: tuple[str, dict[str, Any]]
) -> None:
    address, body = things
    known = ada.post(address, body | {"name": "a"}, format="json").json()["id"]
    late = one_after_the_other(
        lambda: ada.post(address, body | {"name": "c"}, format="json"),
        lambda: max_.patch(f"{address}/{known}", {"name": "c"}, format="json"),
    )
    assert (late.status_code, late.json()["errors"][0]["code"]) == (422, "name_taken")


def test_a_recurring_job_is_submitted_while_one_of_its_team_is_renamed(cluster: Lab, ada: APIClient) -> None:
    address, body = "/api/v1/recurring-jobs", THINGS["recurring-jobs"]
    renamed, run = (ada.post(address, body | {"name": name}, format="json").json()["id"] for name in "ab")
    with ThreadPoolExecutor(1) as threads, transaction.atomic():
        assert ada.patch(f"{address}/{renamed}", {"name": "c"}, format="json").status_code == 200
        late = threads.submit(apart, lambda: ada.post(f"{address}/{run}/run")).result(timeout=60)
    assert late.status_code == 201, late.json()


def test_of_two_who_invite_a_person_by_one_name_the_second_is_told_of_the_account(
    leads: tuple[Team, User, User],
) -> None:
    team, lea, max_ = leads
    invitations, ivy = f"/api/v1/teams/{team}/invitations", {"username": "ivy"}
    callers = caller(lea), caller(max_)
    late = one_after_the_other(
        lambda: callers[0].post(invitations, ivy, format="json"),
        lambda: callers[1].post(invitations, ivy, format="json"),
    )
    assert (late.status_code, "There is an account ivy" in late.json()["detail"]) == (422, True)
