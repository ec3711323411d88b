"""Attempts from launch to end, as real processes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from engines.protocol import OUTPUT, CheckpointTimes, EngineError, NodeLaunch, Phase, SiteReason, Stream
from tests.engines.engine_lab import Lab, python, until


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_a_job_runs_to_its_end_with_its_exit_code(lab: Lab) -> None:
    report = lab.end_of(lab.launch("exit 3"))
    assert (report.exit_code, report.proven_gone) == (3, True)


def test_the_times_of_an_attempt_are_in_order(lab: Lab) -> None:
    report = lab.end_of(lab.launch("true"))
    assert report.started_at is not None
    assert report.ended_at is not None
    assert report.started_at < report.ended_at


@pytest.mark.on_slurm
def test_what_a_job_prints_is_in_its_two_logs(lab: Lab) -> None:
    attempt = lab.run("echo out; echo err >&2")
    assert [lab.output(attempt, stream) for stream in OUTPUT] == [b"out\n", b"err\n", b""]


def test_an_attempt_that_runs_says_so(lab: Lab) -> None:
    attempt = lab.launch("echo up; sleep 3600")
    lab.wait_for_output(attempt, b"up")
    assert lab.report(attempt).phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("command", "exit_code"), [("exit 75", 75), ("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("true", 0)]
)
def test_exit_codes_are_the_shells(lab: Lab, command: str, exit_code: int) -> None:
    assert lab.end_of(lab.launch(command)).exit_code == exit_code


def test_the_variables_of_the_launch_and_of_the_rank_reach_the_job(lab: Lab) -> None:
    attempt = lab.run("env", env={"ALL": "1", "BOTH": "all"}, tasks=[NodeLaunch("n1", {"ONE": "2", "BOTH": "one"})])
    assert {name: lab.env_of(attempt)[name] for name in ("ALL", "ONE", "BOTH")} == {
        "ALL": "1",
        "ONE": "2",
        "BOTH": "one",
    }


@pytest.mark.local_only
def test_nothing_of_the_services_environment_reaches_the_job(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "a secret of the service")
    attempt = lab.run("env")
    assert set(lab.env_of(attempt)) == {
        *("PATH", "HOME", "LANG", "USER", "LOGNAME", "PWD", "RANK_HERE", "MOTLEY_ATTEMPT_MARK"),
        *("MOTLEY_CHECKPOINT_DIR", "MOTLEY_PROGRESS", "MOTLEY_STOP_REASON_FILE", "MASTER_ADDR", "PET_MASTER_ADDR"),
        "MOTLEY_CHECKPOINT_TIMES_FILE",
    }


def test_the_supervisor_has_nothing_of_the_services_environment(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "a secret of the service")
    attempt = lab.launch("echo up; sleep 3600")
    lab.wait_for_output(attempt, b"up")
    assert b"secret" not in Path(f"/proc/{lab.supervisor(attempt)}/environ").read_bytes()


def test_a_job_that_runs_reads_when_checkpoints_pay(lab: Lab) -> None:
    attempt = lab.launch('echo up; file="$MOTLEY_CHECKPOINT_TIMES_FILE"; until cat "$file"; do sleep 0.02; done')
    lab.wait_for_output(attempt, b"up")
    for _ in range(2):
        lab.engine.set_checkpoint_times(attempt, CheckpointTimes(3600.0, 0.5, 120.0))
    lab.end_of(attempt)
    _, told = lab.output(attempt).splitlines()
    assert json.loads(told) == {"mean_up_s": 3600, "notified": 0.5, "notice_s": 120, "checkpoint_s": None}
    lab.engine.set_checkpoint_times(attempt + 1, CheckpointTimes(3600.0, 0.5, 120.0))  # it is not here


def test_a_command_as_a_list_is_inert(lab: Lab) -> None:
    attempt = lab.run(["echo", "$(id); `id` > x | y && z", "*"])
    assert lab.output(attempt) == b"$(id); `id` > x | y && z *\n"


def test_a_job_starts_in_its_own_folder_and_finds_it_again_in_its_next_attempt(lab: Lab) -> None:
    job = str(uuid4())
    lab.run("echo work > note; echo kept > $MOTLEY_CHECKPOINT_DIR/step", job=job)
    attempt = lab.run("cat note $MOTLEY_CHECKPOINT_DIR/step", job=job)
    assert lab.output(attempt) == b"work\nkept\n"


def test_a_job_starts_in_the_folder_that_it_asks_for(lab: Lab, place: Path) -> None:
    assert lab.output(lab.run("pwd", workdir=place)) == f"{place}\n".encode()


@pytest.mark.on_slurm
def test_a_job_finds_its_storage_as_a_link_in_the_folder_that_the_engine_made(lab: Lab) -> None:
    assert lab.output(lab.run("readlink mounts/data", mounts={"data": "/usr"})) == b"/usr\n"


@pytest.mark.on_slurm
def test_a_job_whose_storage_is_missing_is_not_started(lab: Lab) -> None:
    report = lab.end_of(lab.launch("echo started", mounts={"data": "/usr", "scratch": "/no/such/path"}))
    assert (report.reason, report.missing_storage) == (SiteReason.STORAGE_MISSING, {"n1": "scratch"})
    assert report.message == "The storage scratch is missing on n1: /no/such/path: No such file or directory."
    assert lab.output(report.attempt) == b""


@pytest.mark.parametrize("job", ["../../etc", "", "..", "a/b"])
def test_a_job_id_that_is_no_uuid_is_refused(lab: Lab, job: str) -> None:
    with pytest.raises(EngineError, match="not a UUID"):
        lab.launch("true", job=job)


def test_a_relative_working_folder_is_refused(lab: Lab) -> None:
    with pytest.raises(EngineError, match="absolute"):
        lab.launch("true", workdir=Path("here"))


def test_bytes_that_are_no_text_are_kept(lab: Lab) -> None:
    assert lab.output(lab.run(r"printf '\377\000\376'")) == b"\xff\x00\xfe"


@pytest.mark.on_slurm
def test_a_log_is_read_on_from_its_offset(lab: Lab) -> None:
    attempt = lab.run("printf 0123456789")
    chunk = lab.engine.logs(attempt, Stream.STDOUT, 0, 4, 3)
    assert (chunk.data, chunk.next_offset, chunk.size, chunk.eof) == (b"456", 7, 10, False)


def test_an_offset_beyond_all_files_finds_nothing(lab: Lab) -> None:
    attempt = lab.run("printf 0123456789")
    assert lab.engine.logs(attempt, Stream.STDOUT, 0, 10**30).data == b""


def test_a_log_has_ended_when_its_attempt_has_and_all_is_read(lab: Lab) -> None:
    assert lab.engine.logs(lab.run("printf 0123456789"), Stream.STDOUT, 0, 10).eof


def test_a_log_has_not_ended_while_its_attempt_runs(lab: Lab) -> None:
    attempt = lab.launch("echo up; sleep 3600")
    lab.wait_for_output(attempt, b"up")
    assert not lab.engine.logs(attempt, Stream.STDOUT, 0, 3).eof


def test_a_log_stops_at_its_limit_and_says_so(lab: Lab) -> None:
    attempt = lab.run("head -c 1000000 /dev/zero", log_limit_bytes=1000)
    assert lab.output(attempt) == bytes(1000) + b"\n... truncated by Motley at 1000 bytes\n"


def test_a_job_is_not_held_up_by_a_full_log(lab: Lab) -> None:
    assert lab.end_of(lab.launch("set -e; head -c 1000000 /dev/zero; exit 5", log_limit_bytes=10)).exit_code == 5


@pytest.mark.parametrize(
    ("changes", "exit_code", "advice"),
    [
        ({"command": ["no-such-program"]}, 127, "'no-such-program' was not found"),
        ({"command": "no-such-program"}, 127, "was not found"),
        ({"command": ["/etc/passwd"]}, 126, "could not be started"),
        ({"command": ["true"], "workdir": Path("/no/such/folder")}, 127, "/no/such/folder does not exist"),
        ({"command": ["true", "x" * 200_000]}, 126, "too long"),
        ({"command": ["echo", "a\0b"]}, 126, "NUL"),
    ],
)
def test_a_command_that_cannot_run_says_what_to_do(
    lab: Lab, changes: dict[str, Any], exit_code: int, advice: str
) -> None:
    report = lab.end_of(lab.launch(**changes))
    assert report.exit_code == exit_code
    assert advice in report.message


@pytest.mark.on_slurm
def test_each_rank_has_its_own_variables_and_log(lab: Lab) -> None:
    attempt = lab.run("echo $RANK_HERE", ranks=2)
    assert [lab.output(attempt, rank=rank) for rank in (0, 1)] == [b"0\n", b"1\n"]


def test_an_attempt_lasts_until_its_last_rank_has_ended(lab: Lab, place: Path) -> None:
    go_on = place / "go"
    attempt = lab.launch(f"[ $RANK_HERE = 0 ] && echo done || while [ ! -e {go_on} ]; do sleep 0.05; done", ranks=2)
    lab.wait_for_output(attempt, b"done")
    assert lab.report(attempt).phase is Phase.RUNNING
    go_on.touch()
    assert lab.end_of(attempt).exit_code == 0


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_a_rank_that_fails_takes_the_others_with_it_and_gives_the_exit_code(lab: Lab) -> None:
    attempt = lab.launch("[ $RANK_HERE = 1 ] && exit 9; exec sleep 3600", ranks=2)
    assert lab.end_of(attempt).exit_code == 9


@pytest.mark.on_slurm
def test_an_attempt_that_was_never_launched_is_unknown_and_gone(lab: Lab) -> None:
    report = lab.report(4711)
    assert (report.phase, report.proven_gone) == (Phase.UNKNOWN, True)


@pytest.mark.local_only
def test_a_launch_whose_supervisor_never_began_is_unknown_and_may_be_sent_again(lab: Lab) -> None:
    launch = lab.order("echo once")
    folder = lab.folder(launch.attempt)
    folder.path.mkdir()
    folder.launch.write_text("{}")
    folder.lock.touch()
    assert lab.report(launch.attempt).phase is Phase.UNKNOWN
    lab.engine.launch(launch)
    assert lab.end_of(launch.attempt).exit_code == 0


@pytest.mark.on_slurm
def test_the_same_launch_again_does_nothing(lab: Lab, place: Path) -> None:
    launch = lab.order(f"echo run >> {place}/runs; sleep 0.3")
    for _ in range(3):
        lab.engine.launch(launch)
    lab.end_of(launch.attempt)
    lab.engine.launch(launch)
    assert (place / "runs").read_text() == "run\n"


@pytest.mark.local_only
def test_a_launch_from_several_processes_at_once_runs_once(lab: Lab, place: Path) -> None:
    launch = lab.order(f"echo run >> {place}/runs")
    script = (
        "import sys; from pathlib import Path\n"
        "from engines.local.engine import LocalEngine; from engines.protocol import *\n"
        f"engine = LocalEngine(Path({str(place)!r}), isolation={str(lab.isolation)!r}); sys.stdin.readline()\n"
        f"engine.launch(Launch(1, {launch.job!r}, {launch.command!r}, [NodeLaunch('n1', {{}})]))"
    )
    services = [service(script) for _ in range(4)]
    for each in services:
        each.communicate("go\n")
    lab.end_of(1)
    assert (place / "runs").read_text() == "run\n"


@pytest.mark.local_only
def test_a_service_that_is_killed_takes_no_job_with_it(lab: Lab, place: Path) -> None:
    go_on = place / "go"
    launch = lab.order(f"echo up; while [ ! -e {go_on} ]; do sleep 0.05; done; exit 4")
    script = (
        "import sys; from pathlib import Path\n"
        "from engines.local.engine import LocalEngine; from engines.protocol import *\n"
        f"engine = LocalEngine(Path({str(place)!r}), isolation={str(lab.isolation)!r})\n"
        f"engine.launch(Launch({launch.attempt}, {launch.job!r}, {launch.command!r}, [NodeLaunch('n1', {{}})]))\n"
        "sys.stdin.readline()"
    )
    doomed = service(script)
    lab.wait_for_output(launch.attempt, b"up")
    os.killpg(doomed.pid, 9)
    doomed.communicate()
    assert lab.another_engine().poll([launch.attempt])[0].phase is Phase.RUNNING
    go_on.touch()
    assert lab.end_of(launch.attempt).exit_code == 4


def test_a_launch_that_cannot_be_written_says_what_to_do(lab: Lab, place: Path) -> None:
    launch = lab.order("true")
    lab.folder(launch.attempt).path.touch()
    with pytest.raises(EngineError, match="check that the disk is not full"):
        lab.engine.launch(launch)
    lab.folder(launch.attempt).path.unlink()


def test_a_launch_leaves_no_child_in_the_service(lab: Lab) -> None:
    before = children()
    lab.run("true")
    assert children() <= before


def children() -> set[str]:
    """Process numbers of this process's children. Tests before may have left some, as the workers of a pool."""
    return {
        child for thread in Path("/proc/self/task").iterdir() for child in (thread / "children").read_text().split()
    }


@pytest.mark.local_only
def test_the_values_of_the_environment_are_for_the_service_alone(lab: Lab) -> None:
    attempt = lab.run("true", env={"TOKEN": "secret"})
    assert lab.folder(attempt).launch.stat().st_mode & 0o777 == 0o600


@pytest.mark.local_only
def test_path_prefix_comes_first(place: Path, lab: Lab) -> None:
    engine = type(lab.engine)(place, path_prefix="/opt/tools/bin", isolation=lab.isolation)
    launch = replace(lab.order("echo $PATH"), attempt=77)
    engine.launch(launch)
    lab.end_of(77)
    assert lab.output(77).startswith(b"/opt/tools/bin:/usr")


PROGRESS = """
import os
with open(os.environ["MOTLEY_PROGRESS"], "ab", buffering=0) as lines:
    for line in (
        b'{"step": 10, "loss": 2.5, "epoch": 1, "batch_size": 32, "total_steps": 90}',
        b'not json', b'{"loss": 1}', b'[]', b'\\xff\\xfe',
        b'{"step": true}', b'{"step": 1e3}', b'{"step": -1}',
        b'9' * 70000, b'[' * 60000, b'{"step": ' + b'9' * 5000 + b'}',
        b'{"step": 30, "loss": NaN, "batch_size": 64, "grad_sqr": 0.5, "grad_var": 1e400}',
    ):
        lines.write(line + b"\\n")
"""


def test_progress_is_summed_up_whatever_the_lines_hold(lab: Lab) -> None:
    report = lab.end_of(lab.launch(python(PROGRESS)))
    progress = report.progress
    assert progress is not None
    assert (progress.reports, progress.first_step, progress.step) == (2, 10, 30)
    assert (progress.loss, progress.batch_size, report.invalid_lines) == (None, 64, 10)
    assert progress.total_steps == 90  # as the job said it last
    assert (progress.grad_sqr, progress.grad_var) == (0.5, None)


@pytest.mark.local_only
def test_epochs_tell_how_many_steps_a_job_has(lab: Lab) -> None:
    lines = [{"step": 10, "epoch": 0, "epochs": 90}, {"step": 30, "epoch": 1.5, "epochs": 90}, {"step": 31}]
    write = "\n".join(f"echo '{json.dumps(line)}' >> $MOTLEY_PROGRESS" for line in lines)
    progress = lab.end_of(lab.launch(write)).progress
    assert progress is not None
    assert progress.total_steps == 1800


def test_lines_that_are_no_reports_are_counted_even_where_none_is_one(lab: Lab) -> None:
    report = lab.end_of(lab.launch("seq 12 >> $MOTLEY_PROGRESS"))
    assert (report.progress, report.invalid_lines) == (None, 12)


def test_a_progress_file_without_an_end_keeps_no_gpu(lab: Lab) -> None:
    report = lab.end_of(lab.launch("truncate -s 100G $MOTLEY_PROGRESS"))
    assert (report.exit_code, report.invalid_lines) == (0, 1)


def test_a_progress_file_that_becomes_a_link_is_read_no_further(lab: Lab) -> None:
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    order = lab.order(f"""echo '{{"step": 7}}' > $MOTLEY_PROGRESS; {wait}; ln -sf $PWD/go $MOTLEY_PROGRESS""")
    lab.engine.launch(order)
    until(lambda: lab.report(order.attempt).progress)
    (lab.root / "jobs" / order.job / "work" / "go").write_text('{"step": 7}\n{"step": 8}\n')
    progress = lab.end_of(order.attempt).progress
    assert progress is not None
    assert progress.step == 7


def test_progress_is_there_while_the_job_runs(lab: Lab) -> None:
    attempt = lab.launch("""echo '{"step": 7}' >> $MOTLEY_PROGRESS; sleep 3600""")
    progress = until(lambda: lab.report(attempt).progress)
    assert progress.step == 7


@pytest.mark.on_slurm
def test_progress_of_a_gang_is_that_of_the_rank_that_reports(lab: Lab) -> None:
    attempt = lab.launch("""[ $RANK_HERE = 0 ] || echo '{"step": 7}' >> $MOTLEY_PROGRESS""", ranks=2)
    progress = lab.end_of(attempt).progress
    assert progress is not None
    assert progress.step == 7


@pytest.mark.parametrize("make", ["mkfifo", "mkdir", "ln -s /etc/passwd"])
def test_a_progress_file_that_is_none_stops_nothing(lab: Lab, make: str) -> None:
    report = lab.end_of(lab.launch(f"{make} $MOTLEY_PROGRESS"))
    assert (report.exit_code, report.progress) == (0, None)


def service(script: str) -> "subprocess.Popen[str]":
    """Another process that uses the engine, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )


ROOT = Path(sys.modules["engines"].__file__ or "").parent.parent


@pytest.mark.on_slurm
def test_files_that_are_discarded_go_whatever_the_job_has_made_of_them(lab: Lab) -> None:
    """A folder that its owner may not write, and a link to what is not the job's."""
    kept = lab.root / "kept"
    kept.mkdir(mode=0o777)
    (kept / "file").touch()
    launch = lab.order(f"cd $MOTLEY_CHECKPOINT_DIR; mkdir -p a/b; touch a/b/c; ln -s {kept} a/link; chmod 555 a")
    lab.engine.launch(launch)
    lab.end_of(launch.attempt)
    for _ in range(2):
        lab.another_engine().discard({launch.job: [launch.attempt]})
    assert not lab.folder(launch.attempt).path.exists()
    assert not (lab.root / "jobs" / launch.job).exists()
    until(lambda: [path.name for path in (lab.root / "discarded").iterdir()] == ["lock"])
    assert (kept / "file").exists()


@pytest.mark.on_slurm
def test_no_stream_of_a_job_is_a_terminal(lab: Lab) -> None:
    """Or programs would write colours and progress bars into the log."""
    attempt = lab.run("for stream in 0 1 2; do test -t $stream && echo $stream; done; printf unfinished")
    assert lab.output(attempt) == b"unfinished"


@pytest.mark.every_isolation
@pytest.mark.on_slurm
def test_secrets_reach_the_job_are_masked_in_its_log_and_stay_in_no_file(lab: Lab) -> None:
    attempt = lab.run('echo "it is $KEY"; test ${#KEY} = 16', secrets={"KEY": "value-of-the-key"})
    assert (lab.end_of(attempt).exit_code, lab.output(attempt)) == (0, b"it is ***\n")
    files = [path for path in lab.root.rglob("*") if path.is_file()]
    assert not [path for path in files if b"value-of-the-key" in _content(path)]


def _content(path: Path) -> bytes:
    """Content of the file; empty if a supervisor that ends has deleted it meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
