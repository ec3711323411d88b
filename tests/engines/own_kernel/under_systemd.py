"""The unit motley-jobs under systemd, with a job that takes too much memory, and restarts of the worker beside it."""

import subprocess
import tempfile
from pathlib import Path

from engines.local.engine import LocalEngine
from engines.protocol import NodeLaunch, Phase
from tests.engines.engine_lab import Lab, python, until
from tests.engines.test_engine_limits import HOLD

UNIT = Path("/sys/fs/cgroup/system.slice/motley-jobs.service")


class UnitLab(Lab):
    def another_engine(self) -> LocalEngine:
        return LocalEngine(self.root, declared=["n1"], cgroup=str(UNIT))


def systemctl(*words: str) -> str:
    return subprocess.run(["systemctl", *words], stdout=subprocess.PIPE, check=False, text=True).stdout.strip()


def main() -> None:
    systemctl("start", "worker")
    until(lambda: (UNIT / "keeper").exists() and not (UNIT / "cgroup.procs").read_text())
    with tempfile.TemporaryDirectory() as folder:
        lab = UnitLab(Path(folder))
        until(lambda: "limits memory, CPU time and processes" in lab.engine.nodes()[0].limits)
        staying = lab.launch("echo up; sleep 3600")
        lab.wait_for_output(staying, b"up")
        hog = lab.run(python(HOLD.format(mib=128)), tasks=[NodeLaunch("n1", {}, memory_mib=64)], limits_memory=True)
        assert "had asked for 0.1 GiB" in lab.end_of(hog).message
        systemctl("restart", "worker")
        systemctl("daemon-reload")
        assert systemctl("is-active", "worker", "motley-jobs").split() == ["active", "active"]
        assert lab.report(staying).phase is Phase.RUNNING
        systemctl("stop", "motley-jobs")
        assert lab.end_of(staying).exit_code == 143
        assert "no cgroup can be made" in lab.engine.nodes()[0].limits
        systemctl("start", "motley-jobs")
        lab.stop_all()


if __name__ == "__main__":
    main()
