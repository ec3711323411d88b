"""`motley team`, `retire`, `restore` and `gpu-type`: members, leads and what is out of use for good, by the command."""

import json

import pytest
from django.contrib.auth.models import User

from cluster_app.models import GpuType, Node
from jobs_app.models import Team
from tests.live_service import Live
from tests.motley_command import Motley


@pytest.fixture
def team(service: Live) -> Team:
    """Of ada, its lead; ben has an account in another."""
    ada = service.lab.user()
    team = ada.teams.get()
    team.leads.add(ada)
    service.lab.user("ben", "language")
    return team


def test_a_lead_adds_names_and_removes_members(team: Team, motley: Motley) -> None:
    assert motley("team", "add", team.name, "ben").stdout == "ben is a member of vision.\n"
    assert motley("team", "make-lead", team.name, "ben").stdout == "ben is a lead of vision.\n"
    rows = [row.split() for row in motley("team", "members", team.name).stdout.splitlines()]
    assert ["ada", "lead", "0", "0", "0", "0"] in rows
    assert motley("team", "add", team.name, "ben").stdout == "ben is a lead of vision.\n"
    assert motley("team", "end-lead", team.name, "ben").stdout == "ben is a member of vision.\n"
    assert motley("team", "remove", team.name, "ben").exit_code == 0
    assert json.loads(motley("team", "members", team.name, "-o", "json").stdout)[0]["username"] == "ada"


def test_a_team_without_starts_says_so(team: Team, motley: Motley) -> None:
    assert motley("team", "starts", team.name).stdout == "No start has ended in seven days.\n"
    assert json.loads(motley("team", "starts", team.name, "-o", "json").stdout)["stages"] == []


def test_a_misspelt_name_becomes_no_lead_and_no_member(team: Team, motley: Motley) -> None:
    refused = motley("team", "make-lead", team.name, "ben")
    assert (refused.exit_code, "ben is not a member of vision" in refused.stderr) == (2, True)
    unknown = motley("team", "add", team.name, "bne")
    assert (unknown.exit_code, "There is no account 'bne'" in unknown.stderr) == (2, True)
    assert motley("team", "remove", team.name, "bne").exit_code == 4
    assert [*team.members.all()] == [User.objects.get(username="ada")]


def test_the_only_lead_stays(team: Team, motley: Motley) -> None:
    refused = motley("team", "remove", team.name, "ada")
    assert (refused.exit_code, "only lead" in refused.stderr) == (3, True)


def test_an_administrator_retires_and_restores_nodes_and_their_type(service: Live, staff: Motley) -> None:
    assert staff("gpu-type", "retire", "a100").exit_code == 5
    assert staff("retire", "n1", "-r", "sold").stdout == "n1: retired, empty\n"
    assert staff("gpu-type", "retire", "a100").exit_code == 0
    assert GpuType.objects.get().retired_at is not None
    refused = staff("restore", "n1")
    assert (refused.exit_code, "motley gpu-type restore a100" in refused.stderr) == (5, True)
    assert staff("gpu-type", "restore", "a100").exit_code == 0
    assert staff("restore", "n1").stdout == "n1: ready\n"
    assert Node.objects.get().state == Node.State.READY


def test_an_administrator_retires_and_restores_a_team(team: Team, staff: Motley, motley: Motley) -> None:
    assert motley("team", "retire", team.name).exit_code == 3
    assert staff("team", "retire", team.name).exit_code == 0
    assert Team.objects.exclude(retired_at=None).get() == team
    assert staff("team", "restore", team.name).exit_code == 0
    assert not Team.objects.exclude(retired_at=None).exists()


def test_a_lead_invites_a_person(team: Team, motley: Motley) -> None:
    invited = motley("team", "invite", team.name, "ivy", "--email", "ivy@example.org")
    assert (invited.exit_code, "/invitation#" in invited.stdout) == (0, True), invited.stderr
    assert "was not mailed" in invited.stderr
    assert team.members.filter(username="ivy").exists()


def test_a_lead_limits_members_and_what_is_not_given_stays(team: Team, motley: Motley) -> None:
    said = motley("team", "limit", team.name, "--gpus", "4", "--idle", "60").stdout
    assert said == "Each member of vision: GPUs 4 at most, minutes of idle GPUs 60 at most.\n"
    said = motley("team", "limit", team.name, "--idle", "none").stdout
    assert said == "Each member of vision: GPUs 4 at most, minutes of idle GPUs without a limit.\n"
    team.refresh_from_db()
    assert (team.max_gpus_per_member, team.idle_gpus_limit_min) == (4, None)
    assert motley("team", "limit", team.name, "--gpus", "many").exit_code == 2
