"""`motley ssh-config`: a real `ssh` logs in to a running job, with the job's environment, and copies files."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from motley_client import Client
from tests.service.running_service import Service
from tests.service.test_command_with_jobs import TIMEOUT_S
from tests.service.test_sessions import running

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
needs_sshd = pytest.mark.skipif(SSHD is None, reason="openssh-server is not installed")
MOTLEY = str(Path(sys.executable).parent / "motley")
UP = "echo up; sleep 3600"


@pytest.fixture
def service(four_gpus: Service) -> Service:
    return four_gpus


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token) as client:
        yield client


class Home:
    """A person's home, with `motley` and `ssh` in it."""

    def __init__(self, path: Path, service: Service) -> None:
        self.path = path
        login = {"MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token}
        self.env = {"PATH": os.environ["PATH"], "HOME": str(path), "TERM": "dumb", **login}

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.env, input=given, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )

    def ssh(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """With this home's configuration: `ssh` itself takes the home of the account from passwd."""
        return self.run("ssh", "-F", str(self.path / ".ssh/config"), "-o", "BatchMode=yes", *words, given=given)


@pytest.fixture
def home(tmp_path: Path, service: Service) -> Home:
    return Home(tmp_path, service)


@needs_sshd
def test_ssh_is_in_the_job_with_its_environment_and_folder(service: Service, client: Client, home: Home) -> None:
    assert SSHD is not None
    with running(service, client, UP, "--env", f"PATH={Path(SSHD).parent}:{os.environ['PATH']}") as job:
        made = home.run(MOTLEY, "ssh-config", job, "--add")
        assert (made.returncode, made.stdout) == (0, "ssh motley-long\n"), made.stderr
        inside = home.ssh("motley-long", "echo $MOTLEY_JOB_ID; pwd; echo no >&2; exit 7")
        assert (inside.returncode, inside.stderr) == (7, "no\n")
        assert inside.stdout.splitlines()[0] == job
        folder = inside.stdout.splitlines()[1]
        assert home.ssh("motley-long", "cat > given; wc -c < given", given="x" * 300_000).stdout.strip() == "300000"
        assert home.ssh("motley-long", "pwd").stdout.strip() == folder
        shell = home.ssh("-tt", "motley-long", given="echo in-$MOTLEY_JOB_NAME; tty; exit 5\n")
        assert ("in-long" in shell.stdout, "/dev/pts/" in shell.stdout, shell.returncode) == (True, True, 5)
        assert client.job(job)["state"] == "running"


@needs_sshd
def test_another_key_is_refused(service: Service, client: Client, home: Home, tmp_path: Path) -> None:
    assert SSHD is not None
    with running(service, client, UP, "--env", f"PATH={Path(SSHD).parent}:{os.environ['PATH']}") as job:
        home.run(MOTLEY, "ssh-config", job, "--add")
        other = tmp_path / "other"
        home.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other))
        refused = home.run("ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o",
                           "UserKnownHostsFile=/dev/null", "-i", str(other), "-o", "IdentitiesOnly=yes", "-o",
                           f"ProxyCommand={MOTLEY} ssh-proxy %n", "-l", "root", "motley-long", "true")  # fmt: skip
        assert (refused.returncode, "Permission denied" in refused.stderr) == (255, True), refused.stderr


def test_a_job_without_a_server_is_told_what_to_install(service: Service, client: Client, home: Home) -> None:
    empty = home.path / "bin"
    empty.mkdir()
    for tool in ("sh", "id"):
        (empty / tool).symlink_to(shutil.which(tool) or tool)
    if Path("/usr/sbin/sshd").exists() or Path("/usr/local/sbin/sshd").exists():
        pytest.skip("where openssh-server is installed, every job finds it")
    with running(service, client, "echo up; exec /bin/sleep 3600", "--env", f"PATH={empty}") as job:
        refused = home.run(MOTLEY, "ssh-config", job)
        assert (refused.returncode, "install openssh-server" in refused.stderr) == (5, True), refused.stderr
