"""The page Site: what an administrator wants to know of the service, without its secrets."""

import re

import django
import pytest
from django.core.management import call_command
from django.utils import timezone

from cluster_app.models import Engine
from operations.site import SHOWN, settings_of
from tests.config.test_configuration_page import _rows


def read(client) -> str:
    return re.sub(r"\s+", " ", client.get("/site").content.decode())


@pytest.fixture
def staff_reads(staff, web):
    return lambda: read(web(staff))


def test_it_tells_versions_engines_processes_and_policy(decided, staff, web) -> None:
    page = read(web(staff))
    assert f"<dt>Django</dt><dd>{django.get_version()}</dd>" in page
    assert re.search(r"<dt>Database</dt><dd>(SQLite|PostgreSQL) \d+", page)
    assert 'data-label="Loop of the scheduler">rounds' in page
    assert 'data-label="Nodes">5<' in page
    assert "/policies#motley" in page


def test_a_silent_engine_shows_its_fault(cluster, staff, web) -> None:
    Engine.objects.update(fault="No route to host.", since=timezone.now())
    assert "No route to host." in read(web(staff))


@pytest.mark.django_db(transaction=True)
def test_the_last_backup_is_known(cluster, staff, web, settings, tmp_path) -> None:
    assert "none yet" in read(web(staff))
    settings.VAR_DIR = settings.MOTLEY_ENGINE_ROOT = settings.MOTLEY_ARCHIVE_ROOT = tmp_path
    call_command("backup", str(tmp_path / "motley.backup"))
    page = read(web(staff))
    assert str(tmp_path / "motley.backup") in page
    assert "none yet" not in page


def test_no_value_that_may_be_a_secret_is_shown() -> None:
    """Whatever text is set, of every variable that there is."""
    every = {name: "hunter2" for name, _, _ in _rows() if not name.startswith("MOTLEY_KEEP_")}
    shown = {one.name for one in settings_of(every) if one.value is not None}
    assert not [name for name in shown if re.search("KEY|TOKEN|SECRET|PASSWORD|DATABASE|REDIS|CACHE|EMAIL_URL", name)]
    commands = {"MOTLEY_NODE_SLEEP", "MOTLEY_NODE_WAKE", "MOTLEY_GPU_HOOK_BEFORE", "MOTLEY_GPU_HOOK_AFTER"}
    assert not shown & commands


def test_what_may_be_shown_is_a_variable_that_exists() -> None:
    assert {name for name, _, _ in _rows()} >= SHOWN


@pytest.mark.parametrize(
    ("variable", "served", "other"),
    [
        ("MOTLEY_MAIL_URL", "notifications", "invitations</dt><dd>no: MOTLEY_EMAIL_URL is not set</dd>"),
        ("MOTLEY_EMAIL_URL", "invitations", "notifications</dt><dd>no: MOTLEY_MAIL_URL is not set</dd>"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_mail_of_notifications_and_of_invitations_are_told_apart(
    staff_reads, settings, variable, served, other
) -> None:
    settings.MOTLEY_MAIL_URL = settings.MOTLEY_EMAIL_URL = ""
    setattr(settings, variable, "smtp://mail.example.org")
    page = staff_reads()
    assert f"<dt>Mails {served}</dt><dd>yes</dd>" in page
    assert f"<dt>Mails {other}" in page
