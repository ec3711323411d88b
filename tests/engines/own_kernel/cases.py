"""Limits of jobs by cgroup v2. Collected by `test_own_kernel.py`, on a kernel of the tests' own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.local.engine import LocalEngine
from engines.protocol import CpuLimit, NodeLaunch, NodeShare, Phase, Setup
from engines.supervision.cgroup import kill_members, remove
from engines.supervision.cgroup_subtree import CgroupSubtree
from engines.supervision.isolation import Isolation
from engines.supervision.processes import kill
from tests.engines.engine_lab import Lab, python, running, until
from tests.engines.own_kernel.kernel import INSIDE
from tests.engines.test_engine_limits import FORK_BOMB, HOLD
from tests.engines.test_engine_sessions import run

ROOT = Path("/sys/fs/cgroup")
BUSY = "echo up; while :; do :; done"
HIDES_IN_FILES = """
import time
with open("/dev/shm/{name}", "wb") as file:
    for _ in range(32):
        file.write(bytes(4 << 20))
time.sleep(600)
"""
ESCAPES = "(env -i setsid setsid sleep 3600.77 & ) ; echo up; sleep 3600"

assert os.environ.get(INSIDE), "these tests change the cgroups of the whole machine"


class CgroupLab(Lab):
    def another_engine(self) -> LocalEngine:
        return LocalEngine(
            self.root,
            declared=["n1", "n2"],
            isolation=self.isolation,
            job_user=self.job_user,
            cgroup=str(ROOT / "motley"),
        )

    def cgroups(self) -> list[Path]:
        return [path for path in (ROOT / "motley").iterdir() if path.is_dir()]

    def cgroup(self) -> Path:
        (path,) = self.cgroups()
        return path


@pytest.fixture(autouse=True)
def subtree() -> Iterator[Path]:
    (ROOT / "cgroup.subtree_control").write_text("+memory +cpu +pids")
    path = ROOT / "motley"
    path.mkdir()
    yield path
    for cgroup in [one for one in path.iterdir() if one.is_dir()]:  # of jobs that the test left running
        until(lambda cgroup=cgroup: not kill_members(str(cgroup)))  # type: ignore[misc]  # bound now
        remove(str(cgroup))
    path.rmdir()


@pytest.fixture
def lab(place: Path, request: pytest.FixtureRequest) -> Iterator[CgroupLab]:
    lab = CgroupLab(place, isolation=getattr(request, "param", Isolation.NAMESPACE), job_user="nobody")
    yield lab
    lab.stop_all()


def tasks(**asked: int) -> list[NodeLaunch]:
    return [NodeLaunch("n1", {}, **asked)]


def test_the_kernel_ends_a_job_that_takes_more_memory_than_it_asked_for(lab: CgroupLab) -> None:
    other = lab.launch(python(HOLD.format(mib=128)))
    lab.wait_for_output(other, b"holds it")
    attempt = lab.run(python(HOLD.format(mib=128)), tasks=tasks(memory_mib=64), limits_memory=True)
    report = lab.end_of(attempt)
    assert report.exit_code == 137
    assert report.message == (
        "It used more than 0.1 GiB of memory on n1 and had asked for 0.1 GiB: ask for more by `memory_per_gpu`."
    )
    assert lab.processes(attempt) == []
    assert len(lab.cgroups()) == 1
    assert lab.report(other).phase == "running"


def test_files_in_memory_count(lab: CgroupLab) -> None:
    script = HIDES_IN_FILES.format(name=f"hidden-{lab.isolation}")
    attempt = lab.run(python(script), tasks=tasks(memory_mib=64), limits_memory=True)
    assert lab.end_of(attempt).exit_code == 137


def test_a_job_within_its_memory_ends_well(lab: CgroupLab) -> None:
    attempt = lab.run(python("bytearray(10 << 20)"), tasks=tasks(memory_mib=64), limits_memory=True)
    assert (lab.end_of(attempt).exit_code, lab.cgroups()) == (0, [])


def test_a_setup_has_the_limits_of_its_job(lab: CgroupLab) -> None:
    setup = Setup(f"exec python3 -ESc '{HOLD.format(mib=128).replace(chr(39), chr(34))}'", "key1")
    attempt = lab.run("true", setup=setup, tasks=tasks(memory_mib=64), limits_memory=True)
    assert "had asked for 0.1 GiB" in lab.end_of(attempt).message


def test_a_quota_of_cpu_time_throttles_a_job_that_wants_more(lab: CgroupLab) -> None:
    busy = f"{BUSY.replace('while', '(while :; do :; done) & while')}"
    lab.launch(busy, tasks=tasks(cpus=1), limits_cpus=CpuLimit.QUOTA)
    cgroup = until(lambda: lab.cgroups() and lab.cgroup())
    until(lambda: "nr_periods 0" not in (cgroup / "cpu.stat").read_text())
    assert (cgroup / "cpu.max").read_text() == "100000 100000\n"


def test_a_share_of_cpu_time_is_what_it_asked_for(lab: CgroupLab) -> None:
    lab.launch(BUSY, tasks=tasks(cpus=3, gpus=1), limits_cpus=CpuLimit.SHARE)
    cgroup = until(lambda: lab.cgroups() and lab.cgroup())
    until(lambda: (cgroup / "cpu.weight").read_text() == "300\n")
    assert (cgroup / "cpu.max").read_text() == "max 100000\n"


def test_a_running_job_is_lowered_goes_on_and_is_raised_again(lab: CgroupLab) -> None:
    asked, lowered = tasks(cpus=4, memory_mib=512), NodeShare(cpus=1, memory_mib=64)
    attempt = lab.launch(python(HOLD.format(mib=96)), tasks=asked, limits_cpus=CpuLimit.QUOTA, limits_memory=True)
    lab.wait_for_output(attempt, b"holds it")
    lab.engine.set_share(attempt, [lowered])
    said = {name: (lab.cgroup() / name).read_text().strip() for name in ("cpu.weight", "cpu.max", "memory.high")}
    assert said == {"cpu.weight": "100", "cpu.max": "100000 100000", "memory.high": str(64 << 20)}
    assert lab.report(attempt).phase is Phase.RUNNING
    lab.engine.set_share(attempt, [NodeShare(cpus=4, memory_mib=512)])
    said = {name: (lab.cgroup() / name).read_text().strip() for name in ("cpu.weight", "cpu.max", "memory.high")}
    assert said == {"cpu.weight": "400", "cpu.max": "400000 100000", "memory.high": "max"}


def test_the_most_memory_of_a_job_is_what_its_cgroup_holds_without_caches(lab: CgroupLab) -> None:
    """Of some 30 MiB of files that it reads; those of a tmpfs, as its folder is in this kernel, would count."""
    opened = "[open(name, 'rb') for name in sorted(filter(os.path.isfile, glob.glob('/usr/lib/*/*.so*')))[:40]]"
    reads = f"import glob, os; sum(len(file.read(1 << 16)) for file in {opened} for _ in range(16))"
    attempt = lab.launch(python(f"{reads}; {HOLD.format(mib=48)}"), limits_memory=True)
    until(lambda: lab.report(attempt).peak_memory_mib >= 48)
    assert lab.report(attempt).peak_memory_mib < 75


def test_an_attempt_that_has_gone_is_lowered_no_more(lab: CgroupLab) -> None:
    attempt = lab.run("true", tasks=tasks(cpus=4), limits_cpus=CpuLimit.SHARE)
    lab.end_of(attempt)
    lab.engine.set_share(attempt, [NodeShare(cpus=1)])
    assert lab.cgroups() == []


def test_a_fork_bomb_is_bounded_and_a_job_of_the_same_account_goes_on(lab: CgroupLab) -> None:
    bomb = lab.launch(["python3", "-ESc", FORK_BOMB.replace("break", "os.wait()")], most_processes=100)
    lab.wait_for_output(bomb, b"refused after")
    other = lab.run("for n in 1 2 3; do (true) || exit 9; done; sleep 0", most_processes=100)
    assert (lab.end_of(other).exit_code, lab.report(bomb).phase) == (0, Phase.RUNNING)


@pytest.mark.parametrize("lab", [Isolation.NAMESPACE, Isolation.SUBREAPER], indirect=True)
def test_nothing_is_left_when_supervisor_and_first_process_are_killed_at_once(lab: CgroupLab) -> None:
    """Without a namespace, only the cgroup knows a process that has neither the mark nor its parents any more."""
    attempt = lab.launch(ESCAPES)
    lab.wait_for_output(attempt, b"up")
    until(lambda: running("sleep", "3600.77"))
    supervisor = lab.supervisor(attempt)
    marked = lab.processes(attempt)
    for pid in (supervisor, *marked):
        os.kill(pid, signal.SIGSTOP)
    kill([supervisor, *marked])  # those that die with their parents are skipped
    assert lab.loss_of(attempt).phase is Phase.LOST
    assert (running("sleep", "3600.77"), lab.cgroups()) == ([], [])


def test_a_session_is_in_the_cgroup_of_its_rank(lab: CgroupLab) -> None:
    attempt = lab.launch("echo up; sleep 3600")
    lab.wait_for_output(attempt, b"up")
    out, _, code = run(lab, attempt, "cat", "/proc/self/cgroup")
    assert (out, code) == (f"0::/motley/{lab.cgroup().name}\n".encode(), 0)


def test_a_job_cannot_change_its_limits(lab: CgroupLab) -> None:
    attempt = lab.run("echo max >/sys/fs/cgroup/motley/*/pids.max", most_processes=100)
    assert lab.end_of(attempt).exit_code != 0


OPEN = """
for n in 0 1 7 254 255; do
    { : <>/tmp/nvidia$n; } 2>&1 | grep -o "Operation not permitted\\|No such device"
done
"""


@pytest.fixture
def gpus() -> Iterator[None]:
    """Device files as of NVIDIA's driver, which is not here: a file that may be opened leads to no device."""
    paths = [Path(f"/tmp/nvidia{minor}") for minor in (0, 1, 7, 254, 255)]
    for path in paths:
        os.mknod(path, 0o20666, os.makedev(195, int(path.name.removeprefix("nvidia"))))
        path.chmod(0o666)
    yield
    for path in paths:
        path.unlink()


def test_a_job_can_open_no_gpu_but_its_own(lab: CgroupLab, gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.supervision.cgroup_subtree.gpu_minors", lambda _: [1, 7])  # of the driver
    own = [NodeLaunch("n1", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, gpus=2)]
    attempt = lab.run(OPEN, tasks=own)
    lab.end_of(attempt)
    closed, there = b"Operation not permitted\n", b"No such device\n"
    assert lab.output(attempt) == closed + 4 * there


def test_a_job_with_emulated_gpus_can_open_no_real_one(lab: CgroupLab, gpus: None) -> None:
    emulated = [NodeLaunch("n1", {"CUDA_VISIBLE_DEVICES": "0"}, gpus=1)]
    attempt = lab.run(OPEN, tasks=emulated, env={"MOTLEY_EMULATED": "1"})
    closed, there = b"Operation not permitted\n", b"No such device\n"
    assert lab.output(attempt) == 3 * closed + 2 * there


def test_other_devices_stay_open_to_it(lab: CgroupLab) -> None:
    attempt = lab.run("echo x >/dev/null && head -c 1 /dev/zero | wc -c")
    assert lab.output(attempt) == b"1\n"


def test_a_controller_that_is_missing_is_replaced(lab: CgroupLab, subtree: Path) -> None:
    subtree.rmdir()
    (ROOT / "cgroup.subtree_control").write_text("-memory")
    subtree.mkdir()
    lab.engine = lab.another_engine()
    words = {report.limits for report in lab.engine.nodes()}
    attempt = lab.run(python(HOLD.format(mib=128)), tasks=tasks(memory_mib=64), limits_memory=True)
    by_kernel = "The kernel limits CPU time and processes of each job (cgroup v2)"
    assert words == {f"{by_kernel}; a job's memory is added up once a second; the GPUs of others are closed to it."}
    assert "0.1 GiB of memory on n1 and had asked for 0.1 GiB" in lab.end_of(attempt).message


def test_a_node_says_that_the_kernel_limits_all(lab: CgroupLab) -> None:
    assert {report.limits for report in lab.engine.nodes()} == {
        "The kernel limits memory, CPU time and processes of each job (cgroup v2); the GPUs of others are closed to it."
    }


def test_a_subtree_that_systemd_has_delegated_is_found(subtree: Path) -> None:
    os.setxattr(subtree, "trusted.delegate", b"1")
    service = subtree / "service"
    service.mkdir()
    (service / "cgroup.procs").write_text(str(os.getpid()))
    try:
        found = CgroupSubtree.find("auto")
    finally:
        (ROOT / "cgroup.procs").write_text(str(os.getpid()))
        until(lambda: not (service / "cgroup.procs").read_text())
        service.rmdir()
    assert (found.path, found.controllers) == (subtree, {"memory", "cpu", "pids"})


def test_without_a_delegation_no_cgroup_is_made() -> None:
    assert CgroupSubtree.find("auto").path is None
