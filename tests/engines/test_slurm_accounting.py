"""Slurm's accounting knows how jobs ended that Slurm itself has forgotten."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.protocol import EngineError, NodeLaunch, Phase, SiteReason
from engines.slurm.parsing import SlurmJob, parse_jobs
from operations.private_slurm import EmulatedNode, PrivateCluster
from simulation.shadow.accounting import FORMAT, read_accounting
from tests.engines.engine_lab import SlurmLab, until
from tests.private_servers import free_ports

pytestmark = pytest.mark.xdist_group("slurm with accounting")
PACKAGES = "slurmdbd mariadb-server"
SEARCH_PATH = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/sbin:/bin"


@dataclass
class Accounting:
    """A private cluster with its accounting: slurmdbd over a MariaDB of its own."""

    cluster: PrivateCluster
    port: int
    database: "subprocess.Popen[bytes] | None" = None

    def up(self) -> None:
        self.cluster.start_munge()
        self._start_database()
        self.start_daemon()
        until(self._knows_the_cluster)
        self.cluster.up()

    def start_daemon(self) -> None:
        self.cluster.run("slurmdbd")

    def down(self) -> None:
        self.cluster.down()
        self.cluster.stop_daemon("slurmdbd", signal_number=signal.SIGKILL)
        if self.database is not None:
            self.database.kill()
            self.database.wait()

    def _start_database(self) -> None:
        base, user = self.cluster.base, pwd.getpwuid(os.geteuid()).pw_name
        data = [f"--datadir={base}/database", f"--user={user}"]
        make = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", *data]
        subprocess.run(make, check=True, capture_output=True)
        place = [f"--socket={base}/database.socket", f"--port={self.port + 1}", "--bind-address=127.0.0.1"]
        place.append(f"--log-error={base}/database.log")
        self.database = subprocess.Popen(
            [shutil.which("mariadbd", path=SEARCH_PATH) or "", "--no-defaults", "--skip-grant-tables", *data, *place]
        )
        until((base / "database.socket").exists)
        settings = {"AuthType": "auth/munge", "AuthInfo": f"socket={base}/munge.socket", "SlurmUser": user}
        settings |= {"DbdHost": "localhost", "DbdPort": str(self.port), "PidFile": f"{base}/slurmdbd.pid"}
        settings |= {"LogFile": f"{base}/slurmdbd.log", "StorageType": "accounting_storage/mysql", "StorageUser": user}
        settings |= {"StorageHost": "127.0.0.1", "StoragePort": str(self.port + 1), "StorageLoc": "slurm"}
        path = base / "slurmdbd.conf"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        path.chmod(0o600)

    def _knows_the_cluster(self) -> bool:
        with suppress(EngineError):
            self.cluster.run("sacctmgr", "-i", "add", "cluster", "motley")
            return True
        return False


@pytest.fixture(scope="module")
def accounting() -> Iterator[Accounting]:
    missing = [name for name in ("slurmctld", "slurmdbd", "mariadbd") if not shutil.which(name, path=SEARCH_PATH)]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"{', '.join(missing)} not found: apt-get install {PACKAGES}")
    base = Path(tempfile.mkdtemp(prefix="slurm-"))
    port = free_ports(4)
    cluster = PrivateCluster(
        base, [EmulatedNode("n1", "a100", 4)], port=port, min_job_age_s=2, accounting_port=port + 2
    )
    accounting = Accounting(cluster, port + 2)
    try:
        accounting.up()
        yield accounting
    finally:
        accounting.down()
        shutil.rmtree(base)


@pytest.fixture
def lab(place: Path, accounting: Accounting) -> Iterator[SlurmLab]:
    lab = SlurmLab(place, accounting.cluster)
    yield lab
    lab.stop_all()


def forgotten_after_preemption(lab: SlurmLab) -> int:
    """An attempt that Slurm preempted and forgot before anybody asked."""
    attempt = lab.launch("echo up; sleep 3600", tasks=[NodeLaunch("n1", {}, gpus=1)])
    lab.wait_for_output(attempt, b"up")
    lab.cluster.run("sbatch", "-o", "/dev/null", "-p", "urgent", "--exclusive", "--wrap", "true")
    until(lambda: not lab.cluster.run("squeue", "-h", "-t", "all"))
    return attempt


def test_why_a_forgotten_job_ended_is_known_from_the_accounting(lab: SlurmLab) -> None:
    report = lab.report(forgotten_after_preemption(lab))
    assert (report.phase, report.reason, report.proven_gone) == (Phase.ENDED, SiteReason.PREEMPTED, True)
    assert report.message.startswith("Slurm preempted it for another job")


def test_an_accounting_that_is_away_holds_nothing_up(lab: SlurmLab, accounting: Accounting) -> None:
    attempt = forgotten_after_preemption(lab)
    accounting.cluster.stop_daemon("slurmdbd", signal_number=signal.SIGKILL)
    try:
        report = lab.report(attempt)
    finally:
        accounting.start_daemon()
    assert (report.phase, report.reason, report.proven_gone) == (Phase.ENDED, SiteReason.CANCELLED, True)


def test_shadow_mode_reads_what_sacct_writes(lab: SlurmLab, accounting: Accounting) -> None:
    attempt = lab.launch("sleep 2", tasks=[NodeLaunch("n1", {}, gpus=2)])
    until(lambda: lab.report(attempt).phase is Phase.ENDED)
    ask = ("sacct", "-a", "-P", "-S", "now-1hour", "-o", FORMAT)
    found = until(
        lambda: [job for job in read_accounting(accounting.cluster.run(*ask).splitlines(), {}).jobs if job.gpus == 2]
    )
    (job, *_) = found
    assert (job.gpu_type, job.nodes, job.ran_s >= 1) == ("a100", ("n1",), True)


def test_lines_of_the_accounting_are_read() -> None:
    lines = (
        "22|CANCELLED by 1000|None|n[1-2]|motley-3f-7",
        "22|TIMEOUT|None|n1|a|b",
        "7+1|NODE_FAIL|None|n1|motley-3f-8",
    )
    assert list(parse_jobs("\n".join(lines), "motley-3f-")) == [
        SlurmJob(22, "motley-3f-7", "CANCELLED", "", "n[1-2]"),
        SlurmJob(7, "motley-3f-8", "NODE_FAIL", "", "n1"),
    ]
