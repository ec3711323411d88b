"""What only a Slurm cluster does: its devices, its reasons, its stops, and its faults."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from engines.local.host_setup import SYSTEM_PYTHON
from engines.protocol import (
    EngineError,
    EngineUnreachable,
    NodeLaunch,
    NodeState,
    Phase,
    SiteReason,
    StopReason,
    WatchedGpu,
)
from engines.slurm.engine import SlurmEngine
from engines.slurm.files import SlurmFiles
from engines.slurm.parsing import parse_node
from engines.slurm.runtime import install_runtime
from operations.private_slurm import PrivateCluster
from tests.engines.conftest import WANTED
from tests.engines.engine_lab import SlurmLab, python, running, until
from tests.engines.slurm_cluster import opened_by
from tests.nvml_driver import compiled_driver

pytestmark = pytest.mark.xdist_group("slurm")
SAVES = python(
    "import signal, sys, time\n"
    "def save(*_):\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # scancel and Motley both send it\n"
    "    print('saved', flush=True)\n"
    "    sys.exit(75)\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "print('up', flush=True)\n"
    "time.sleep(3600)\n"
)
STAYS = python(
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(3600)"
)
WAITS = "echo up; sleep 3600"


def gang(*shape: tuple[str, int]) -> list[NodeLaunch]:
    return [NodeLaunch(node, {"RANK_HERE": str(rank)}, gpus=gpus) for rank, (node, gpus) in enumerate(shape)]


def first_job_of(lab: SlurmLab, attempt: int) -> str:
    return str(SlurmFiles(lab.folder(attempt)).read_submitted())


def node(lab: SlurmLab, name: str):
    return next(report for report in lab.engine.nodes() if report.name == name)


@pytest.fixture
def foreign(lab: SlurmLab):
    """Submit a job that is not Motley's and wait until it runs."""

    def submit(*options: str) -> str:
        number = lab.cluster.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", "sleep 3600").strip()
        until(lambda: lab.cluster.run("squeue", "-h", "-j", number, "-o", "%T").strip() == "RUNNING")
        return number

    return submit


def test_the_inventory_is_slurms(lab: SlurmLab) -> None:
    found = {report.name: (report.gpu_type, len(report.gpus), report.state) for report in lab.engine.nodes()}
    assert found == {name: (kind, 4, NodeState.OK) for name, kind in (("n1", "a100"), ("n2", "a100"), ("n3", "v100"))}


def test_the_job_sees_the_devices_that_slurm_chose(lab: SlurmLab, foreign) -> None:
    foreign("-w", "n1", "--gres=gpu:a100:1")
    attempt = lab.run("echo $CUDA_VISIBLE_DEVICES", tasks=gang(("n1", 2)))
    assert lab.output(attempt) == b"1,2\n"
    assert lab.report(attempt).devices == {"n1": "1,2"}


def test_the_devices_that_slurm_chose_are_read_on_their_node_until_the_job_ends(
    lab: SlurmLab, foreign, place: Path
) -> None:
    foreign("-w", "n1", "--gres=gpu:a100:1")
    python_there = place / "python"  # with a driver library that answers for two GPUs, as NVIDIA's would
    library = f"LD_LIBRARY_PATH={compiled_driver(place)} GPU_COUNT=2 SECOND_GPU_IS_LOST_WITH=/none"
    python_there.write_text(f'#!/bin/sh\n{library} exec {lab.options.python} "$@"\n')
    python_there.chmod(0o755)
    lab.options = replace(lab.options, python=python_there)
    lab.engine = lab.another_engine()
    attempt = lab.launch(WAITS, tasks=gang(("n1", 2)))
    seats = [WatchedGpu(10 + n, "n1", n, attempt=attempt if n < 2 else None) for n in range(4)]
    found = until(lambda: lab.engine.read_gpus(seats))
    assert {(one.gpu, one.attempt, one.utilization) for one in found} == {(11, attempt, 37.0), (12, attempt, 37.0)}
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(seconds=1))
    assert lab.end_of(attempt).proven_gone
    assert not running("engines.slurm.sampler", str(lab.folder(attempt).path))


def test_arrays_and_names_of_the_same_account_do_not_disturb_it(lab: SlurmLab) -> None:
    sbatch = ("sbatch", "--parsable", "-o", "/dev/null", "-w", "n3")
    theirs = [
        lab.cluster.run(*sbatch, "--array=0-9%1", "--wrap", "sleep 3600"),
        lab.cluster.run(*sbatch, "-J", "a|b", "--wrap", "sleep 3600"),
        lab.cluster.run(*sbatch, "--hold", "-J", "two words|", "--wrap", "sleep 3600"),
    ]
    try:
        assert lab.run("true") > 0
        assert node(lab, "n3").state is NodeState.OK
    finally:
        lab.cluster.run("scancel", *(number.strip() for number in theirs))


def test_gpus_of_others_are_told_from_our_own(lab: SlurmLab, foreign) -> None:
    foreign("-w", "n1", "--gres=gpu:a100:1")
    attempt = lab.launch(WAITS, tasks=gang(("n1", 2)))
    lab.wait_for_output(attempt, b"up")
    assert node(lab, "n1").foreign_gpus == 1
    assert node(lab, "n2").foreign_gpus == 0


def test_cpus_and_memory_of_others_are_told_from_our_own(lab: SlurmLab, foreign) -> None:
    foreign("-w", "n1", "-c", "13", "--mem=500M")
    tasks = [replace(task, cpus=2, memory_mib=300) for task in gang(("n1", 1), ("n2", 1))]
    attempt = lab.launch(WAITS, tasks=tasks)
    for rank in (0, 1):
        lab.wait_for_output(attempt, b"up", rank=rank)
    found = {name: node(lab, name) for name in ("n1", "n2")}
    shape = {name: (its.foreign_gpus, its.foreign_cpus, its.foreign_memory_mib) for name, its in found.items()}
    assert shape == {"n1": (1, 13, 500), "n2": (0, 0, 0)}


def test_the_most_memory_that_a_rank_holds_is_reported_of_its_node(lab: SlurmLab) -> None:
    hold = "import os, time; block = bytearray((60 if os.environ['RANK_HERE'] == '1' else 20) << 20); time.sleep(600)"
    attempt = lab.launch(python(hold), tasks=gang(("n1", 1), ("n2", 1)))
    until(lambda: lab.report(attempt).peak_memory_mib >= 60)
    assert lab.report(attempt).peak_memory_mib < 100


def test_a_job_gets_the_cpus_and_the_memory_that_it_asks_for(lab: SlurmLab) -> None:
    tasks = [NodeLaunch("n1", {}, gpus=2, cpus=6, memory_mib=700)]
    attempt = lab.launch(WAITS, tasks=tasks)
    lab.wait_for_output(attempt, b"up")
    (line,) = lab.cluster.run("squeue", "-h", "-o", "%C %m").splitlines()
    assert line == "6 700M"


def test_a_node_that_is_reserved_for_others_takes_no_jobs(lab: SlurmLab) -> None:
    what = ("user=root", "starttime=now", "duration=60", "nodes=n2", "flags=ignore_jobs")
    lab.cluster.run("scontrol", "create", "reservation", "reservationname=exam", *what)
    try:
        assert (node(lab, "n1").state, node(lab, "n2").state) == (NodeState.OK, NodeState.CORDONED)
        assert node(lab, "n2").reason.endswith("(exam)")
        lab.options = replace(lab.options, reservation="exam")
        lab.engine = lab.another_engine()
        assert (node(lab, "n1").state, node(lab, "n2").state) == (NodeState.CORDONED, NodeState.OK)
        attempt = lab.run("echo in it", tasks=gang(("n2", 1)))
        assert lab.output(attempt) == b"in it\n"
    finally:
        lab.cluster.run("scontrol", "delete", "reservationname=exam")


def test_no_node_takes_jobs_while_the_partition_is_down(lab: SlurmLab) -> None:
    lab.cluster.run("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        assert {node(lab, name).state for name in ("n1", "n2")} == {NodeState.CORDONED}
        assert node(lab, "n1").reason == "Slurm says that the partition gpu is down"
    finally:
        lab.cluster.run("scontrol", "update", "partitionname=gpu", "state=up")
    assert node(lab, "n1").state == NodeState.OK


def test_rank_0_is_where_motley_wants_it(lab: SlurmLab) -> None:
    attempt = lab.run("echo $SLURMD_NODENAME", tasks=gang(("n2", 1), ("n1", 1)))
    assert [lab.output(attempt, rank=rank) for rank in (0, 1)] == [b"n2\n", b"n1\n"]


def test_an_uneven_gang_has_its_gpus_where_it_was_placed(lab: SlurmLab) -> None:
    attempt = lab.launch("echo $CUDA_VISIBLE_DEVICES", tasks=gang(("n1", 1), ("n2", 3)))
    until_late(lambda: lab.report(attempt).proven_gone)
    assert [lab.output(attempt, rank=rank) for rank in (0, 1)] == [b"0\n", b"0,1,2\n"]


def until_late(look):
    """As `until`, for what waits for the backfill scheduler, every 30 s."""
    return until(look, seconds=600)


def test_secrets_of_a_job_are_not_in_slurms_state(lab: SlurmLab) -> None:
    secret = "mot_a-secret-token"
    attempt = lab.launch(WAITS, env={"MOTLEY_JOB_TOKEN": secret})
    lab.wait_for_output(attempt, b"up")
    state = [path for path in (lab.cluster.base / "state").rglob("*") if path.is_file()]
    assert state
    assert not [path for path in state if secret.encode() in path.read_bytes()]


def test_a_job_cancelled_in_slurm_saves_its_work_and_is_not_at_fault(lab: SlurmLab) -> None:
    attempt = lab.launch(SAVES)
    lab.wait_for_output(attempt, b"up")
    lab.cluster.run("scancel", first_job_of(lab, attempt))
    report = lab.end_of(attempt)
    assert (report.exit_code, report.reason) == (75, SiteReason.CANCELLED)
    assert b"saved" in lab.output(attempt)


def test_a_job_cancelled_in_slurm_whose_supervisor_cannot_report_it_is_not_lost(lab: SlurmLab) -> None:
    attempt = lab.launch(STAYS)
    lab.wait_for_output(attempt, b"up")
    lab.cluster.run("scancel", first_job_of(lab, attempt))
    until(lab.folder(attempt).read_stop)  # the supervisor has been told, and is killed before the job ends
    os.kill(lab.supervisor(attempt), signal.SIGKILL)
    report = lab.end_of(attempt)
    assert (report.exit_code, report.reason) == (137, SiteReason.CANCELLED)


def test_a_job_that_slurm_preempts_is_not_at_fault(lab: SlurmLab, foreign) -> None:
    attempt = lab.launch(SAVES, tasks=gang(("n3", 4)), gpu_type="v100")
    lab.wait_for_output(attempt, b"up")
    lab.cluster.run("sbatch", "-p", "urgent", "-w", "n3", "--gres=gpu:v100:4", "-o", "/dev/null", "--wrap", "sleep 60")
    report = lab.end_of(attempt)
    assert (report.exit_code, report.reason) == (75, SiteReason.PREEMPTED)


def test_a_job_that_waits_in_slurm_says_why_and_can_be_withdrawn(lab: SlurmLab, foreign) -> None:
    foreign("-w", "n3", "--gres=gpu:v100:4")
    attempt = lab.launch(WAITS, tasks=gang(("n3", 1)), gpu_type="v100", secrets={"KEY": "value-of-the-key"})
    report = until(lambda: found if (found := lab.report(attempt)).reason else None)
    assert (report.phase, report.reason) == (Phase.LAUNCHING, SiteReason.WAITING_RESOURCES)
    lab.engine.stop(attempt, reason=StopReason.PREEMPT, grace=timedelta(seconds=30))
    report = lab.end_of(attempt)
    assert (report.exit_code, report.started_at) == (143, None)
    assert not lab.folder(attempt).secrets.exists()


def test_an_attempt_that_is_cancelled_in_slurm_before_it_starts_is_not_lost(lab: SlurmLab, foreign) -> None:
    foreign("-w", "n3", "--gres=gpu:v100:4")
    attempt = lab.launch(WAITS, tasks=gang(("n3", 1)), gpu_type="v100")
    until(lambda: lab.report(attempt).reason)
    lab.cluster.run("scancel", first_job_of(lab, attempt))
    report = lab.end_of(attempt)
    assert (report.reason, report.started_at) == (SiteReason.CANCELLED, None)


def test_a_drained_node_takes_no_jobs_and_says_why(lab: SlurmLab) -> None:
    lab.cluster.run("scontrol", "update", "nodename=n2", "state=drain", "reason=bad fan")
    try:
        found = node(lab, "n2")
        assert (found.state, found.reason) == (NodeState.CORDONED, "Slurm says drain: bad fan")
    finally:
        lab.cluster.run("scontrol", "update", "nodename=n2", "state=resume")
        until(lambda: node(lab, "n2").state is NodeState.OK)


@pytest.fixture
def draining(lab: SlurmLab) -> Iterator[SlurmEngine]:
    """An engine that may drain nodes; no node stays drained."""
    lab.options = replace(lab.options, drain=True)
    engine = lab.another_engine()
    yield engine
    for name in ("n1", "n2", "n3"):
        if drain_of(lab, name) is not None:
            lab.cluster.run("scontrol", "update", f"nodename={name}", "state=undrain")
    until(lambda: all(report.state is NodeState.OK for report in engine.nodes()))


def drain_of(lab: SlurmLab, name: str) -> str | None:
    """The reason of the node's drain; None if it is not drained."""
    found = parse_node(lab.cluster.run("scontrol", "show", "node", "-d", "-o", name))
    return found.note if "DRAIN" in found.flags else None


def sync(engine: SlurmEngine, **wanted: str) -> dict[str, str]:
    engine.nodes()
    return engine.sync_drains(wanted)


def test_a_node_that_motley_drains_is_drained_in_slurm_until_it_is_resumed(
    lab: SlurmLab, draining: SlurmEngine
) -> None:
    for _ in range(2):
        assert sync(draining, n1="bad  fan\nState=IDLE", n2="") == {}
        instance = (lab.root / "instance").read_text()
        assert drain_of(lab, "n1") == f"Motley {instance}: bad fan State=IDLE"
    assert drain_of(lab, "n2") is None
    sync(draining, n1="new reason", n2="")
    assert drain_of(lab, "n1") == f"Motley {instance}: new reason"
    for _ in range(2):
        assert sync(draining, n1="", n2="") == {}
        assert drain_of(lab, "n1") is None


def test_an_administrators_own_drain_is_neither_replaced_nor_ended(lab: SlurmLab, draining: SlurmEngine) -> None:
    lab.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=Motley is loud here")
    sync(draining, n1="bad fan")
    assert drain_of(lab, "n1") == "Motley is loud here"
    sync(draining, n1="")
    assert drain_of(lab, "n1") == "Motley is loud here"


def test_a_drain_of_motleys_that_an_administrator_takes_over_is_left_to_him(
    lab: SlurmLab, draining: SlurmEngine
) -> None:
    sync(draining, n1="bad fan")
    lab.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=mine now")
    sync(draining, n1="")
    assert drain_of(lab, "n1") == "mine now"


def test_the_drain_of_another_motley_is_left_alone(lab: SlurmLab, draining: SlurmEngine) -> None:
    lab.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=Motley 0badcafe: theirs")
    sync(draining, n1="")
    assert drain_of(lab, "n1") == "Motley 0badcafe: theirs"


def test_nodes_are_not_drained_in_slurm_unless_the_option_says_so(lab: SlurmLab) -> None:
    assert sync(lab.engine, n1="bad fan") == {}
    assert drain_of(lab, "n1") is None


def test_a_drain_that_finds_no_controller_is_done_later(lab: SlurmLab, draining: SlurmEngine) -> None:
    draining.nodes()
    lab.cluster.stop_daemon("slurmctld")
    try:
        with pytest.raises(EngineUnreachable):
            draining.sync_drains({"n1": "bad fan"})
    finally:
        lab.cluster.start_controller()
    until(lambda: node(lab, "n1").state is NodeState.OK)
    sync(draining, n1="bad fan")
    assert "bad fan" in str(drain_of(lab, "n1"))


def test_a_drain_that_slurm_refuses_is_told_in_its_words(lab: SlurmLab, draining: SlurmEngine, place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can ask as another user")
    root = place / "nobodys"
    root.mkdir()
    shutil.chown(root, "nobody")
    script = (
        "import sys; from pathlib import Path\n"
        "from engines.slurm.engine import SlurmEngine; from engines.slurm.options import SlurmOptions\n"
        "engine = SlurmEngine(SlurmOptions(Path(sys.argv[1]), slurm_conf=Path(sys.argv[2]), drain=True))\n"
        "engine.nodes(); print(engine.sync_drains({'n1': 'bad fan', 'n2': ''}))"
    )
    argv = [str(SYSTEM_PYTHON), "-c", script, str(root), str(lab.cluster.conf)]  # ours may lie in a private folder
    runtime = install_runtime(place)
    for path in (runtime.parent, *runtime.parent.rglob("*")):
        path.chmod(0o755)  # whatever the umask
    done = subprocess.run(argv, user="nobody", cwd=runtime, capture_output=True, text=True, check=False)
    assert "{'n1': 'Slurm refused to drain it: scontrol said" in done.stdout, done.stderr
    assert drain_of(lab, "n1") is None


def test_a_node_that_a_job_of_others_has_is_not_powered_down(lab: SlurmLab, foreign) -> None:
    foreign("-w", "n1", "-c", "1")
    lab.options = replace(lab.options, power_saving=True)
    command = lab.another_engine().power_command("n1", wake=False)
    done = subprocess.run(
        command.argv, cwd=command.folder, env=command.env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (1, "Slurm has given it to a job: it is not powered down.")
    assert node(lab, "n1").state is NodeState.OK


def test_without_the_option_slurm_powers_no_node_down(lab: SlurmLab) -> None:
    assert lab.engine.power_command("n1", wake=False) is None


def test_a_node_of_a_private_cluster_that_is_switched_on_while_it_goes_down_comes_back(lab: SlurmLab) -> None:
    base, leaves, env = lab.cluster.base, lab.cluster.pid_of("slurmd-n3"), {"SLURM_CONF": str(lab.cluster.conf)}
    assert leaves is not None
    os.kill(leaves, signal.SIGSTOP)
    with subprocess.Popen([base / "suspend", "n3"], env=env) as suspend:
        until(lambda: subprocess.run(["flock", "-n", base / "power.lock", "true"], check=False).returncode)
        with subprocess.Popen([base / "resume", "n3"], env=env) as resume:
            os.kill(leaves, signal.SIGCONT)
    assert (suspend.returncode, resume.returncode) == (0, 0)
    until(lambda: lab.cluster.pid_of("slurmd-n3") not in (None, leaves))
    until(lambda: node(lab, "n3").state is NodeState.OK)


def test_a_launch_that_slurm_refuses_says_so_and_leaves_nothing(lab: SlurmLab) -> None:
    order = lab.order(WAITS, tasks=gang(("n1", 9)))
    with pytest.raises(EngineError, match="node configuration is not available"):
        lab.engine.launch(order)
    report = lab.report(order.attempt)
    assert (report.phase, report.proven_gone) == (Phase.UNKNOWN, True)


def test_a_node_that_slurm_does_not_know_is_named(lab: SlurmLab) -> None:
    with pytest.raises(EngineError, match="knows no node n9"):
        lab.engine.launch(lab.order(WAITS, tasks=gang(("n9", 1))))


def test_a_launch_whose_answer_was_lost_is_found_by_its_name(lab: SlurmLab) -> None:
    order = lab.order(WAITS)
    lab.engine.launch(order)
    SlurmFiles(lab.folder(order.attempt)).submitted.unlink()
    assert lab.another_engine().poll([order.attempt])[0].phase in (Phase.LAUNCHING, Phase.RUNNING)
    lab.another_engine().launch(order)
    lab.wait_for_output(order.attempt, b"up")
    assert len(lab.slurm_jobs()) == 1


def test_a_job_that_slurm_starts_twice_runs_once(lab: SlurmLab, place: Path) -> None:
    order = lab.order(f"echo once >> {place}/runs; sleep 3600", tasks=gang(("n1", 1)))
    lab.engine.launch(order)
    until((place / "runs").exists)
    files = SlurmFiles(lab.folder(order.attempt))
    files.submitted.unlink()
    lab.engine._submit(order, files)  # as slurmctld does after a restart that has forgotten the start
    until(lambda: len(lab.slurm_jobs()) == 1)
    assert (place / "runs").read_text() == "once\n"
    assert lab.report(order.attempt).phase is Phase.RUNNING


def test_a_rank_whose_srun_was_killed_ends_the_attempt_on_all_nodes(lab: SlurmLab) -> None:
    attempt = lab.launch(WAITS, tasks=gang(("n1", 1), ("n2", 1)))
    for rank in (0, 1):
        lab.wait_for_output(attempt, b"up", rank=rank)
    os.kill(running("srun", "-J", "rank1", str(lab.folder(attempt).path))[0], signal.SIGKILL)
    report = lab.end_of(attempt)
    assert (report.exit_code, lab.processes(attempt)) == (137, [])


def test_a_controller_that_is_away_concludes_nothing(lab: SlurmLab) -> None:
    attempt = lab.launch(WAITS)
    lab.wait_for_output(attempt, b"up")
    engine = SlurmLab.another_engine(lab)
    lab.cluster.stop_daemon("slurmctld")
    try:
        assert [report.phase for report in engine.poll([attempt, attempt + 1])] == [Phase.RUNNING]
        with pytest.raises(EngineUnreachable):
            engine.nodes()
        with pytest.raises(EngineUnreachable):
            engine.launch(lab.order(WAITS))
        engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(seconds=5))
        until_late(lab.folder(attempt).exit.exists)  # srun tries for a while to tell slurmctld
        report = engine.poll([attempt])[0]
        assert (report.phase, report.proven_gone) == (Phase.ENDED, False)
    finally:
        lab.cluster.start_controller()
    until_late(lambda: lab.report(attempt).proven_gone)


def test_a_report_that_comes_late_over_the_disk_is_waited_for(lab: SlurmLab) -> None:
    attempt = lab.run("exit 4")
    folder = lab.folder(attempt)
    hidden = folder.exit.rename(folder.path / "hidden")
    assert lab.report(attempt).phase is Phase.RUNNING
    until(lambda: lab.report(attempt).phase is Phase.LOST)
    assert lab.report(attempt).proven_gone
    hidden.rename(folder.exit)
    assert lab.report(attempt).exit_code == 4


def test_a_dead_node_holds_its_own_gpus_not_those_of_the_rest(lab: SlurmLab) -> None:
    attempt = lab.launch(WAITS, tasks=gang(("n1", 1), ("n2", 1)))
    for rank in (0, 1):
        lab.wait_for_output(attempt, b"up", rank=rank)
    lab.cluster.stop_daemon("slurmd-n2", signal_number=signal.SIGKILL)
    (daemon,) = [pid for step in ("0", "1") for pid in step_daemon(lab, attempt, step) if is_of_node(pid, "n2")]
    os.kill(daemon, signal.SIGKILL)
    try:
        report = until_late(lambda: report_of_end(lab, attempt))
        assert (report.phase, report.reason) == (Phase.LOST, SiteReason.NODE_FAILED), report
        assert (report.proven_gone, list(report.silent_nodes)) == (False, ["n2"])
    finally:
        lab.cluster.start_node("n2")
    until_late(lambda: lab.report(attempt).proven_gone)
    until(lambda: node(lab, "n2").state is NodeState.OK)


def report_of_end(lab: SlurmLab, attempt: int):
    report = lab.report(attempt)
    return None if report.phase in (Phase.LAUNCHING, Phase.RUNNING) else report


def step_daemon(lab: SlurmLab, attempt: int, step: str) -> list[int]:
    """The slurmstepd of a step of the attempt: `batch`, or the number of a rank's.

    Another cluster of this machine may have a job of the same number.
    """
    found = running(f"slurmstepd: [{first_job_of(lab, attempt)}.{step}]")
    return [pid for pid in found if f"{lab.cluster.base}/" in opened_by(pid)]


@pytest.fixture
def two_ranks(lab: SlurmLab) -> int:
    attempt = lab.launch(WAITS, tasks=gang(("n1", 1), ("n2", 1)))
    for rank in (0, 1):
        lab.wait_for_output(attempt, b"up", rank=rank)
    return attempt


def test_a_rank_whose_step_daemon_was_killed_ends_the_attempt_though_slurm_notices_nothing(
    lab: SlurmLab, two_ranks: int
) -> None:
    os.kill(step_daemon(lab, two_ranks, "0")[0], signal.SIGKILL)
    until_late(lambda: lab.report(two_ranks).proven_gone)
    report = lab.report(two_ranks)
    assert (report.phase, report.exit_code, lab.processes(two_ranks)) == (Phase.ENDED, 137, [])


def test_an_srun_that_nobody_tells_of_the_end_of_its_rank_does_not_wait_for_ever(lab: SlurmLab, two_ranks: int) -> None:
    lab.cluster.stop_daemon("slurmctld")
    try:
        os.kill(step_daemon(lab, two_ranks, "1")[0], signal.SIGKILL)
        os.kill(lab.supervisor(two_ranks), signal.SIGKILL)
        until_late(lambda: not running("srun", str(lab.folder(two_ranks).path)))
    finally:
        lab.cluster.start_controller()
    until_late(lambda: lab.report(two_ranks).proven_gone)


@pytest.mark.skipif(WANTED != "all", reason="Slurm needs more than a minute to notice: make test-slurm")
def test_a_supervisor_whose_step_daemon_was_killed_leaves_nothing_and_is_lost(lab: SlurmLab, two_ranks: int) -> None:
    os.kill(step_daemon(lab, two_ranks, "batch")[0], signal.SIGKILL)
    until(lambda: not lab.processes(two_ranks))
    until_late(lambda: lab.report(two_ranks).proven_gone)
    assert lab.report(two_ranks).phase is Phase.LOST


def is_of_node(pid: int, name: str) -> bool:
    """Whether this slurmstepd was started by the slurmd of that node."""
    return f"slurmd-{name}.log" in opened_by(pid)


def test_a_root_that_the_job_user_cannot_reach_is_refused(lab: SlurmLab, place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run jobs as another user")
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    options = replace(lab.options, root=closed / "engine")
    with pytest.raises(EngineError, match="nobody cannot reach"):
        SlurmEngine(options, job_user="nobody")


def test_a_root_that_the_engine_makes_is_passable_whatever_the_umask(lab: SlurmLab, place: Path) -> None:
    before = os.umask(0o077)
    try:
        SlurmEngine(replace(lab.options, root=place / "made"))
    finally:
        os.umask(before)
    assert (place / "made").stat().st_mode & 0o777 == 0o711


def test_an_attempt_that_slurm_has_forgotten_keeps_its_gpus_as_long_as_it_lives(
    place: Path, slurm_cluster: PrivateCluster
) -> None:
    lab = SlurmLab(place, slurm_cluster, late_disk_s=8)
    attempt = lab.launch(WAITS)
    lab.wait_for_output(attempt, b"up")
    (place / "instance").write_text("anothr")  # Slurm lists no job of this name
    engine = lab.another_engine()
    heartbeat = SlurmFiles(lab.folder(attempt)).heartbeat(0)
    begun_at = int(heartbeat.read_text() or 0)
    until(
        lambda: int(heartbeat.read_text() or 0) >= begun_at + 3 or engine.poll([attempt])[0].phase is not Phase.RUNNING
    )
    assert engine.poll([attempt])[0].phase is Phase.RUNNING
    lab.stop_all()
    until(lambda: engine.poll([attempt])[0].phase is Phase.ENDED)
