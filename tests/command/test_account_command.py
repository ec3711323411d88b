"""Login and logout, tokens, and where the command finds them."""

import json
import stat
from pathlib import Path

import pytest

from jobs_app.models import ApiToken, Job
from tests.live_service import Live
from tests.motley_command import Motley


@pytest.fixture
def stranger(home: dict[str, str]) -> Motley:
    """The command where nothing is configured."""
    return Motley(home)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "motley" / "config.yaml"


def test_login_keeps_the_token_where_only_its_owner_can_read_it(service: Live, stranger: Motley, file: Path) -> None:
    result = stranger("login", service.url, typed=f"{service.token}\n")
    assert (result.exit_code, " as ada. " in result.stdout, "submit and change jobs" in result.stdout) == (
        0,
        True,
        True,
    )
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert stranger("me", "-o", "name").stdout == "ada\n"
    assert service.token not in result.stdout + result.stderr


def test_login_asks_for_no_token_of_an_address_without_its_scheme(stranger: Motley, file: Path) -> None:
    result = stranger("login", "nohost", typed="mot_x\n")
    assert (result.exit_code, "e.g. http://nohost." in result.stderr, "API token" in result.stderr) == (2, True, False)
    assert not file.exists()


def test_login_replaces_a_file_that_others_could_read(service: Live, stranger: Motley, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(f"url: {service.url}\n")
    file.chmod(0o644)
    assert stranger("login", typed=f"\n{service.token}\n").exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_that_the_service_does_not_know_is_not_kept(service: Live, stranger: Motley, file: Path) -> None:
    result = stranger("login", service.url, typed="mt_nonsense\n")
    assert (result.exit_code, file.exists()) == (3, False)


def test_logout_forgets_the_token_and_says_that_it_is_valid(service: Live, stranger: Motley, file: Path) -> None:
    stranger("login", service.url, typed=f"{service.token}\n")
    assert "valid until" in stranger("logout").stdout
    assert "token" not in file.read_text()
    result = stranger("me")
    assert (result.exit_code, "motley login" in result.stderr) == (2, True)


def test_options_go_before_the_environment_and_that_before_the_file(
    service: Live, stranger: Motley, file: Path
) -> None:
    users = {name: service.token_of(service.lab.user(name)) for name in ("filed", "surrounding", "optional")}
    file.parent.mkdir(parents=True)
    file.write_text(f"url: {service.url}\ntoken: {users['filed']}\n")

    def who(*arguments: str, **env: str) -> str:
        return stranger(*arguments, "me", "-o", "name", **env).stdout.strip()

    assert who() == "filed"
    assert who(MOTLEY_TOKEN=users["surrounding"]) == "surrounding"
    assert who("--token", users["optional"], MOTLEY_TOKEN=users["surrounding"]) == "optional"
    assert who("--url", "http://127.0.0.1:1", MOTLEY_URL=service.url) == ""


@pytest.mark.parametrize(("missing", "words"), [("MOTLEY_URL", "--url"), ("MOTLEY_TOKEN", "--token")])
def test_what_is_not_configured_says_where_to_put_it(motley: Motley, missing: str, words: str) -> None:
    result = motley("ps", **{missing: ""})
    for place in (words, missing, "motley login", "config.yaml"):
        assert place in result.stderr
    assert result.exit_code == 2


def test_a_configuration_file_with_a_slip_is_refused(motley: Motley, file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text("tokn: x\n")
    result = motley("ps")
    assert (result.exit_code, str(file) in result.stderr) == (2, True)


def test_a_token_is_printed_once_and_alone(service: Live, motley: Motley) -> None:
    made = motley("token", "create", "CI", "--scope", "read", "--expires-in", "30d")
    token = made.stdout.strip()
    assert (motley("--token", token, "me", "-o", "name").stdout, "never" in made.stderr) == ("ada\n", True)
    listed = motley("token", "list").stdout
    assert ("CI" in listed, "in 29d" in listed or "in 30d" in listed, token in listed) == (True, True, False)


def test_only_a_person_who_is_no_administrator_is_told_to_ask_one_for_a_team(service: Live, motley: Motley) -> None:
    staff = Motley({**motley.env, "MOTLEY_TOKEN": service.staff_token})
    service.lab.team().members.clear()
    assert " ".join(staff("me").stdout.split()).startswith("user root (staff) teams none token ")
    assert "teams none: ask an administrator to add you to one" in " ".join(motley("me").stdout.split())


@pytest.mark.parametrize("by", ["name", "number", "text"])
def test_a_token_is_revoked_by_name_number_or_text(service: Live, motley: Motley, by: str) -> None:
    made = json.loads(motley("token", "create", "CI", "-o", "json").stdout)
    typed = {"name": "CI", "number": str(made["id"]), "text": made["prefix"]}[by]
    assert motley("token", "revoke", typed).stdout == f"CI ({made['prefix']}…): revoked\n"
    assert ApiToken.objects.get(pk=made["id"]).revoked_at is not None
    assert motley("--token", made["token"], "me").exit_code == 3


def test_secrets_are_set_from_standard_input_listed_used_and_deleted(service: Live, motley: Motley) -> None:
    assert motley("secret", "set", "KEY", typed="the value of the key\n").stdout == "KEY is set for your jobs.\n"
    motley("secret", "set", "KEY", "--team", "vision", typed="the value of the team")
    listed = motley("secret", "list").stdout
    assert [line.split()[1] for line in listed.splitlines()[1:]] == ["your", "team"]
    assert "the value" not in listed
    job = motley("submit", "--gpus", "1", "--name", "with-key", "--secret", "KEY", "-o", "name", "--", "true")
    assert Job.objects.get(pk=job.stdout.strip()).secrets == ["KEY"]
    assert motley("secret", "delete", "KEY").stdout == "KEY of your jobs is deleted.\n"
    gone = motley("secret", "delete", "KEY")
    assert gone.exit_code
    assert "There is no secret KEY of your jobs" in gone.stderr


def test_tokens_of_one_name_are_told_apart_by_number(motley: Motley) -> None:
    for _ in range(2):
        motley("token", "create", "CI")
    assert motley("token", "revoke", "CI").exit_code == 2
    assert motley("token", "revoke", "nothing").exit_code == 4


def test_version_needs_no_service(stranger: Motley) -> None:
    assert stranger("version").stdout.startswith("motley ")
    assert stranger("--version").stdout == stranger("version").stdout


def test_new_jobs_are_of_the_default_team(service: Live, motley: Motley) -> None:
    """Somebody who is in two teams does not name one each time."""
    service.lab.team("audio").members.add(service.ada)
    refused = motley("config", "set", "team", "nobodys")
    assert (refused.exit_code, "Your teams: audio, vision" in refused.stderr) == (2, True)
    assert motley("config", "set", "team", "audio").exit_code == 0
    assert motley("config", "show").stdout == "team: audio\n"
    for words, team in ((("submit", "--"), "audio"), (("submit", "--team", "vision", "--"), "vision")):
        assert motley(*words, "true").exit_code == 0
        assert service.jobs[0].team.name == team
    assert motley("submit", "--", "true", MOTLEY_TEAM="vision").exit_code == 0
    assert service.jobs[0].team.name == "vision"
    assert motley("config", "unset", "team").exit_code == 0
    assert motley("config", "show").stdout == ""
