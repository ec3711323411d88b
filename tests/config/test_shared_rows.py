"""Fixtures of `shared_rows`: made once, found unchanged by each test, and gone for tests that do not ask for them."""

import pytest
from django.contrib.auth.models import User

from jobs_app.models import Team
from tests.shared_rows import shared_rows

MADE: list[str] = []


@shared_rows
def team() -> Team:
    MADE.append("team")
    return Team.objects.create(name="shared")


@shared_rows
def member(team: Team) -> User:
    MADE.append("member")
    user = User.objects.create(username="shared")
    team.members.add(user)
    return user


@pytest.mark.parametrize("_time", [1, 2])
def test_each_test_finds_them_as_they_were_made_once(team: Team, member: User, _time: int) -> None:
    assert (team.name, Team.objects.get().name, list(team.members.all())) == ("shared", "shared", [member])
    assert (MADE.count("team"), MADE.count("member")) == (1, 1)
    member.username = "changed"
    member.save()
    team.delete()


def test_one_that_needs_fewer_finds_no_more(team: Team) -> None:
    assert not team.members.exists()
    assert not User.objects.filter(username="shared").exists()


def test_one_that_needs_none_finds_none(db: None) -> None:
    assert not Team.objects.filter(name="shared").exists()


def test_one_that_commits_has_its_own(transactional_db: None, member: User) -> None:
    assert [one.username for one in Team.objects.get(name="shared").members.all()] == [member.username]
