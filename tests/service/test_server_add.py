"""`motley server add` by the system's real ssh and a real sshd: what is wrong is named first, then a server is added.

The sshd sees a /opt and a /var/lib of its own, so that nothing is written on this machine. There is no systemd here:
the line that the command prints starts the agent.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.supervision.engine_root import SYSTEM_PATH
from tests.deployment import wait_for
from tests.motley_command import Motley
from tests.private_servers import free_port
from tests.service.running_service import Service, a_service

SSHD, SSH = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("ssh")
pytestmark = [
    pytest.mark.xdist_group("servers"),
    pytest.mark.skipif(SSHD is None or SSH is None or os.geteuid() != 0, reason="it takes root, ssh and sshd"),
]
BY_SSH = "127.0.0.1"
OWN_PLACES = "mount -t tmpfs none /opt && mount -t tmpfs none /var/lib && mkdir -p /run/sshd && exec {}"
ADMIN = """
from django.contrib.auth.models import User
from jobs_app.tokens import issue_token
from operations import demo
demo.create_login("root", staff=True)
answer = issue_token(User.objects.get(username="root"), name="test", scope="admin")
"""


PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(11, 15)))
OLD_PYTHON = "case $1 in --version) echo Python 3.9.2;; *) exit 1;; esac"
AGENTS = """
from connections_app.models import Agent
answer = [str(one) for one in Agent.objects.filter(revoked_at=None)]
"""


def with_clock_off(folder: Path, seconds: float) -> str:
    """A Python whose clock, which it reads as all programs of a server do, is off by so much."""
    place = folder / "off"
    place.mkdir(exist_ok=True)
    text = f"import time\nright = time.time\ntime.time = lambda: right() + {seconds}\n"
    (place / "sitecustomize.py").write_text(text)
    return f'exec env PYTHONPATH={place} /usr/bin/python3 "$@"'


class Remote:
    """A machine that is reached by ssh, and the administrator's own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        for key in ("host", "other", "own"):
            self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
        shutil.copy(folder / "own.pub", folder / "authorized")
        self.programs = folder / "programs"
        self.programs.mkdir()
        keys = {"HostKey": folder / "host", "AuthorizedKeysFile": folder / "authorized"}
        sees = f"PATH={self.programs}:{SYSTEM_PATH} HOME={self.programs}"  # root's own files could set another PATH
        self._settings("sshd_config", Port=self.port, SetEnv=sees, **keys)
        self.knows("host")
        self._settings(
            "ssh_config", Port=self.port, IdentityFile=folder / "own", UserKnownHostsFile=folder / "known", User="root"
        )
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)
        command = [str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config"), "-o", "StrictModes=no"]
        words = [*command, "-o", "ListenAddress=127.0.0.1", "-o", f"PidFile={folder}/pid"]
        self.sshd = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", OWN_PLACES.format(shlex.join(words))], stderr=subprocess.DEVNULL
        )
        wait_for("sshd answers", lambda: self.ssh("true").returncode == 0)

    def knows(self, key: str) -> None:
        """Have the administrator know this key as that of the host."""
        kind, text, *_ = (self.folder / f"{key}.pub").read_text().split()
        (self.folder / "known").write_text(f"[{BY_SSH}]:{self.port} {kind} {text}\n")

    @contextmanager
    def with_python(self, script: str) -> Iterator[None]:
        """Have `python3` and its other names be this script, for commands that come by ssh."""
        names = [self.programs / name for name in PYTHONS]
        for path in names:
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        yield
        for path in names:
            path.unlink()

    def ssh(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.folder / "bin" / "ssh"), "-o", "BatchMode=yes", BY_SSH, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def end(self) -> None:
        self.sshd.send_signal(signal.SIGTERM)
        self.sshd.wait(30)

    def _settings(self, name: str, **settings: object) -> None:
        (self.folder / name).write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    def _run(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)


@pytest.fixture
def service(runtime: Path, data_folder: Path) -> Iterator[Service]:
    with a_service(prepared=data_folder) as running:
        running.declare(v100=1)
        yield running


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    one = Remote(tmp_path)
    yield one
    one.end()


def test_a_server_is_added_by_real_ssh_and_what_is_wrong_is_named_before(
    service: Service, remote: Remote, job_user: str
) -> None:
    login = {"MOTLEY_URL": service.url.replace("localhost", BY_SSH), "MOTLEY_TOKEN": service.python(ADMIN)}
    path = f"{remote.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = Motley({**login, "HOME": str(remote.folder), "PATH": path})
    options = ("--insecure-http", "--name", "gpu1", "--gpus", "k80:2", "--job-user", job_user, "--address", BY_SSH)

    def refused(*words: str) -> str:
        done = command("server", "add", BY_SSH, *options, *words)
        assert (done.exit_code, "Nothing was written." in done.stderr) == (1, True), done.stderr
        return done.stderr

    remote.knows("other")
    assert f"ssh: the host key of {BY_SSH} is not known, or is another one" in refused()
    remote.knows("host")
    assert "FAIL  gpus: No driver answers: install NVIDIA's" in refused("--gpus", "")
    assert "FAIL  account: Jobs cannot run as root, which is root" in refused("--job-user", "root")
    with remote.with_python(OLD_PYTHON):
        assert "FAIL  python: Python 3.11 or newer is needed, and Python 3.9.2 is here" in refused()
    for seconds, off in ((600, "ahead of"), (-600, "behind")):
        with remote.with_python(with_clock_off(remote.folder, seconds)):  # the service's is told in whole seconds
            said = rf"FAIL  clock: The clock is (59|60)\d s {off} the service: set it by NTP \(timedatectl"
            assert re.search(said, refused())
    assert service.python(AGENTS) == []
    assert remote.ssh("ls /opt /var/lib").stdout.split() == ["/opt:", "/var/lib:"]
    added = command("server", "add", BY_SSH, *options)
    assert added.exit_code == 0, added.stderr
    assert "gpu1 has joined" in added.stdout
    by_hand = added.stdout.rpartition("start the agent with `")[2].partition("`")[0].replace("&& ", "&& exec ")
    agent = remote.ssh(f"({by_hand}) > /dev/null 2>&1 < /dev/null & echo $!").stdout
    try:
        wait_for("the node is there", lambda: _health(service) == "healthy")
    finally:
        os.kill(int(agent), signal.SIGTERM)


def _health(service: Service) -> str:
    return next((str(one["health"]) for one in service.client.nodes() if one["name"] == "gpu1"), "")
