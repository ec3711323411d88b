"""A `motley` command that talks to the service."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.conftest import client, script, service  # noqa: F401 - fixtures
from tests.client.scripted_server import TOKEN, Script
from tests.live_service import Live
from tests.motley_command import Motley


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is configured."""
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MOTLEY_URL": "",
        "MOTLEY_TOKEN": "",
        "TERM": "dumb",
    }


@pytest.fixture
def motley(service: Live, home: dict[str, str]) -> Motley:  # noqa: F811
    """The command as ada has it, by a token that may submit."""
    return Motley({**home, "MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token})


@pytest.fixture
def staff(service: Live, home: dict[str, str]) -> Motley:  # noqa: F811
    """The command of an administrator."""
    return Motley({**home, "MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.staff_token})


@pytest.fixture
def scripted(script: Script, home: dict[str, str]) -> Motley:  # noqa: F811
    """The command, talking to that server."""
    return Motley({**home, "MOTLEY_URL": script.url, "MOTLEY_TOKEN": TOKEN})


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of this machine."""

    def chosen(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield chosen
    monkeypatch.undo()
    time.tzset()
