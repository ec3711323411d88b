"""Files that `motley ssh-config` writes, as OpenSSH's own client reads them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from motley_command import ssh
from motley_command.configuration import ConfigurationError

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a blank in its path."""
    path = tmp_path / "my home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path / ".config"))
    return path


def test_a_name_that_no_host_may_have_gives_way_to_the_id() -> None:
    assert ssh.host_of("resnet-1.2_a", "0190") == "motley-resnet-1.2_a"
    for name in ("two words", "*", "a[3]", "-o", "a%n", ""):
        assert ssh.host_of(name, "0190") == "motley-0190"


@needs_ssh
def test_ssh_reads_the_account_the_key_and_the_command(home: Path) -> None:
    ssh.write_host("motley-resnet", "motley-vision")
    config = home / ".ssh/config"
    assert ssh.add_include(config)
    read = subprocess.run(["ssh", "-G", "-F", str(config), "motley-resnet"], capture_output=True, text=True, check=True)
    told = dict(line.split(" ", 1) for line in read.stdout.splitlines() if " " in line)
    assert (told["user"], told["identitiesonly"], told["stricthostkeychecking"]) == ("motley-vision", "yes", "false")
    assert told["proxycommand"].endswith("ssh-proxy %n")
    assert Path(told["identityfile"]) == home / ".config/motley/ssh/id_ed25519"
    assert (home / ".config/motley/ssh/id_ed25519").stat().st_mode & 0o077 == 0


@needs_ssh
def test_nothing_of_the_users_machine_is_forwarded_to_jobs(home: Path) -> None:
    """Jobs of others in the team have the same account, and could use the keys of an agent that is forwarded."""
    config = home / ".ssh/config"
    config.parent.mkdir()
    config.write_text("Host *\n    ForwardAgent yes\n    ForwardX11 yes\n")
    ssh.write_host("motley-resnet", "motley-vision")
    ssh.add_include(config)
    read = subprocess.run(["ssh", "-G", "-F", str(config), "motley-resnet"], capture_output=True, text=True, check=True)
    assert {"forwardagent no", "forwardx11 no"} <= {*read.stdout.splitlines()}


def test_the_line_is_added_once_before_what_is_there(home: Path) -> None:
    config = home / ".ssh/config"
    config.parent.mkdir()
    config.write_text("Host other\n    User me\n")
    assert [ssh.add_include(config), ssh.add_include(config)] == [True, False]
    assert config.read_text() == f"{ssh.include_line()}\n\nHost other\n    User me\n"


@pytest.mark.parametrize("account", ['alice\nMatch exec "touch /tmp/owned"', "", "a b", "-oProxyCommand=x", "x" * 80])
def test_a_job_cannot_write_lines_of_the_configuration(
    account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job says the name of its account, and whoever made its image may be anybody."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="is no name of an account"):
        ssh.write_host("motley-resnet", account)
    assert not list(tmp_path.rglob("*.conf"))
