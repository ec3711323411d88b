"""The training helper, in the process of a real training loop: a short script run by Python."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from estimation import checkpoint_plan
from motley_client import training
from motley_client.checkpoint_timing import FIRST_AFTER_S, LOOK_EVERY_S, CheckpointTiming
from tests.client.polling import TIMEOUT_S


class Clock:
    now = 1000.0


def script(body: str, folder: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from motley_client.training import *\nimport time\n" + body],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(body: str, folder: Path, **env: str) -> str:
    process = script(body, folder, **env)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    return out.strip()


def test_the_helper_loads_no_third_party_package_and_the_client_loads_on_first_use(tmp_path: Path) -> None:
    body = """
import sys
def third_party(): return sorted({"httpx", "httpx_retries", "numpy", "rich", "typer", "yaml"} & set(sys.modules))
print(third_party())
from motley_client import Client
print(Client.__module__, "httpx" in third_party())
import motley_client
print(hasattr(motley_client, "Clients"))
"""
    assert output(body, tmp_path).splitlines() == ["[]", "motley_client.client True", "False"]


def test_progress_appends_one_json_line_per_report(tmp_path: Path) -> None:
    output(
        "progress(1, loss=0.5)\nprogress(2, epoch=0.1, batch_size=64, total_steps=9)",
        tmp_path,
        MOTLEY_PROGRESS="p.jsonl",
    )
    first, second = (json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines())
    assert first.pop("at") <= second.pop("at") <= time.time()
    assert (first, second) == ({"step": 1, "loss": 0.5}, {"step": 2, "epoch": 0.1, "batch_size": 64, "total_steps": 9})


def test_the_batch_is_what_motley_chose_or_else_the_loops_own(tmp_path: Path) -> None:
    body = "print(batch_size(128), micro_batches())"
    told = {"MOTLEY_BATCH_SIZE": "512", "MOTLEY_MICRO_BATCHES": "2"}
    assert [output(body, tmp_path), output(body, tmp_path, **told)] == ["128 1", "512 2"]


def test_a_data_loader_has_a_worker_for_each_cpu_that_is_known(tmp_path: Path) -> None:
    body = "from motley_client.training import data_workers\nprint(data_workers(2))"
    assert [output(body, tmp_path), output(body, tmp_path, MOTLEY_CPUS_PER_GPU="6")] == ["2", "6"]


def test_a_hybrid_parallel_job_knows_its_replicas(tmp_path: Path) -> None:
    body = "from motley_client.training import gpus_per_replica, replicas\nprint(replicas(), gpus_per_replica())"
    told = {"MOTLEY_REPLICAS": "2", "MOTLEY_GPUS_PER_REPLICA": "4"}
    assert [output(body, tmp_path), output(body, tmp_path, **told)] == ["1 1", "2 4"]


def test_progress_takes_scalars_of_numpy(tmp_path: Path) -> None:
    body = "import numpy as np\nprogress(np.int64(3), loss=np.float32(0.25), grad_sqr=np.float64(2))"
    output(body, tmp_path, MOTLEY_PROGRESS="p.jsonl")
    report = json.loads((tmp_path / "p.jsonl").read_text())
    assert (report["step"], report["loss"], report["grad_sqr"]) == (3, 0.25, 2.0)


def test_a_diverged_loss_leaves_the_line_readable(tmp_path: Path) -> None:
    output("progress(4, loss=float('nan'), grad_var=float('inf'))", tmp_path, MOTLEY_PROGRESS="p.jsonl")
    report = json.loads((tmp_path / "p.jsonl").read_text(), parse_constant=pytest.fail)
    assert report.keys() == {"step", "at", "metrics"}
    assert report["metrics"] == {"loss": None}


def test_metrics_and_links_go_with_the_report(tmp_path: Path) -> None:
    body = """
link("wandb", "https://wandb.ai/a/b")
progress(1, metrics={"val/acc": 0.5, "nan": float("nan")})
"""
    output(body, tmp_path, MOTLEY_PROGRESS="p.jsonl")
    report = json.loads((tmp_path / "p.jsonl").read_text())
    assert (report["metrics"], report["links"]) == ({"val/acc": 0.5, "nan": None}, {"wandb": "https://wandb.ai/a/b"})


def test_a_link_that_is_none_is_refused_with_the_form(tmp_path: Path) -> None:
    process = script('link("wandb", "javascript:alert(1)")', tmp_path)
    assert "begins with http:// or https://" in process.communicate(timeout=TIMEOUT_S)[1]


def test_a_metric_without_a_proper_name_is_warned_of(tmp_path: Path) -> None:
    process = script("progress(1, metrics={'val acc': 1})", tmp_path, MOTLEY_PROGRESS="p.jsonl")
    assert "The metric 'val acc' is not reported" in process.communicate(timeout=TIMEOUT_S)[1]


def test_lines_of_processes_that_report_at_once_never_mix(tmp_path: Path) -> None:
    body = "for step in range(500): progress(step, loss=1 / 3)"
    processes = [script(body, tmp_path, MOTLEY_PROGRESS="p.jsonl") for _ in range(3)]
    assert [process.communicate(timeout=TIMEOUT_S)[1] for process in processes] == ["", "", ""]
    steps = [json.loads(line)["step"] for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert sorted(steps) == sorted(list(range(500)) * 3)


def test_outside_motley_the_helper_changes_nothing(tmp_path: Path) -> None:
    answers = output("progress(1)\nprint(should_stop(), stop_reason(), resume())", tmp_path)
    assert (answers, list(tmp_path.iterdir())) == ("False None False", [])


def test_outside_motley_checkpoints_go_to_the_working_folder(tmp_path: Path) -> None:
    output("save_atomically(checkpoint_dir() / 'last', lambda file: file.write(b'weights'))", tmp_path)
    assert (tmp_path / "checkpoints" / "last").read_bytes() == b"weights"


@pytest.mark.parametrize("path", ["missing/p.jsonl", "/dev/full"])
def test_reports_that_cannot_be_written_are_said_once_and_end_nothing(tmp_path: Path, path: str) -> None:
    process = script("for step in range(3): progress(step)\nprint('trained')", tmp_path, MOTLEY_PROGRESS=path)
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, errors.count("named by MOTLEY_PROGRESS")) == (0, "trained\n", 1)


def test_a_save_now_and_then_that_fails_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    body = "print([try_to_save(Path('file') / 'last', lambda file: file.write(b'x')) for _ in range(2)])"
    process = script(f"from pathlib import Path\n{body}", tmp_path)
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert (out, errors.count("Cannot write the checkpoint")) == ("[False, False]\n", 1)


def test_a_save_now_and_then_that_succeeds_says_so(tmp_path: Path) -> None:
    assert training.try_to_save(tmp_path / "last", lambda file: file.write(b"weights")) is True
    assert (tmp_path / "last").read_bytes() == b"weights"


def test_an_unwritable_checkpoint_folder_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MOTLEY_CHECKPOINT_DIR", str(tmp_path / "file" / "checkpoints"))
    with pytest.raises(training.TrainingError, match="Point MOTLEY_CHECKPOINT_DIR to"):
        training.checkpoint_dir()


LOOP = """
should_stop()
print("ready", flush=True)
while not should_stop(): time.sleep(0.01)
print("saved", stop_reason(), flush=True)
raise SystemExit(EXIT_REQUEUE)
"""


def test_sigterm_lets_the_loop_save_and_ask_to_be_requeued(tmp_path: Path) -> None:
    (tmp_path / "reason").write_text("preempt\n")
    process = script(LOOP, tmp_path, MOTLEY_STOP_REASON_FILE=str(tmp_path / "reason"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=TIMEOUT_S)[0] == "saved preempt\n"
    assert process.returncode == 75


def test_a_handler_that_was_there_before_still_runs(tmp_path: Path) -> None:
    chained = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os.write(1, b'mine\\n'))\n"
    process = script(chained + LOOP, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=TIMEOUT_S)[0] == "mine\nsaved None\n"


def test_should_stop_first_asked_in_a_thread_says_where_to_ask(tmp_path: Path) -> None:
    body = "import threading\nt = threading.Thread(target=should_stop)\nt.start()\nt.join()"
    assert "in the main thread" in script(body, tmp_path).communicate(timeout=TIMEOUT_S)[1]


def test_without_a_reason_file_there_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTLEY_STOP_REASON_FILE", str(tmp_path / "not yet"))
    assert training.stop_reason() is None


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False)])
def test_resume_says_whether_an_attempt_came_before(
    value: str, *, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTLEY_RESUME", value)
    assert training.resume() is expected


def test_a_save_that_fails_leaves_the_old_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "last"
    path.write_bytes(b"old")

    def fail(file: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        training.save_atomically(path, fail)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_process_killed_while_it_saves_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "last").write_bytes(b"old")
    body = """
from pathlib import Path
def write(file):
    file.write(b"half of the new one"); file.flush()
    print("writing", flush=True); time.sleep(60)
save_atomically(Path("last"), write)
"""
    process = script(body, tmp_path, MOTLEY_ATTEMPT="7")
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    assert (tmp_path / "last").read_bytes() == b"old"


def test_a_reader_never_sees_half_a_checkpoint(tmp_path: Path) -> None:
    path, size = tmp_path / "last", 100_000
    path.write_bytes(b"0" * size)
    done = threading.Event()

    def save_many() -> None:
        for digit in b"123456789" * 5:
            training.save_atomically(path, lambda file, digit=digit: file.write(bytes([digit]) * size))
        done.set()

    thread = threading.Thread(target=save_many)
    thread.start()
    seen = set()
    while not done.is_set():
        content = path.read_bytes()
        seen.add((len(content), len(set(content))))
    thread.join()
    assert seen == {(size, 1)}


def test_the_job_has_one_id_for_all_attempts(tmp_path: Path) -> None:
    body = "from motley_client.training import job_id\nprint(job_id())"
    assert [output(body, tmp_path), output(body, tmp_path, MOTLEY_JOB_ID="7f0c")] == ["None", "7f0c"]


def test_what_the_first_attempt_made_later_ones_find(tmp_path: Path) -> None:
    body = "import os\nfrom motley_client.training import *\nprint(once_per_job('run', lambda: os.environ['NEW']))"
    assert [output(body, tmp_path, NEW=new) for new in ("first", "second")] == ["first", "first"]


def test_a_handler_that_a_framework_installed_is_replaced(tmp_path: Path) -> None:
    body = """
import os, signal
from motley_client.training import take_over_sigterm
should_stop()
signal.signal(signal.SIGTERM, lambda *_: print("framework"))
take_over_sigterm()
os.kill(os.getpid(), signal.SIGTERM)
print(should_stop())
"""
    assert output(body, tmp_path) == "True"


# -- when a checkpoint pays ------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def saved_in(clock: Clock, seconds: float, timing: CheckpointTiming) -> None:
    with timing.measured():
        clock.now += seconds


@pytest.mark.parametrize(("mean_up_s", "cost_s"), [(7200, 60), (14_400, 10), (100, 400), (8e6, 0.01)])
def test_a_checkpoint_is_due_at_the_interval_that_the_service_plans_with(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, mean_up_s: float, cost_s: float
) -> None:
    monkeypatch.setenv("MOTLEY_MEAN_UP_SECONDS", str(mean_up_s))
    timing = CheckpointTiming()
    saved_in(clock, cost_s, timing)
    assert timing.next_checkpoint() == pytest.approx(checkpoint_plan.daly_interval(cost_s, mean_up_s))
    clock.now += timing.next_checkpoint() + 1
    assert timing.next_checkpoint() == 0


def test_a_checkpoint_comes_earlier_where_it_is_cheap_or_the_nodes_go_often(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = CheckpointTiming()
    saved_in(clock, 60, timing)
    usual, cheap = timing.next_checkpoint(), timing.next_checkpoint(cost_s=5)
    monkeypatch.setenv("MOTLEY_MEAN_UP_SECONDS", "3600")
    assert max(cheap, timing.next_checkpoint()) < usual


def test_the_first_checkpoint_measures_what_it_costs_unless_an_earlier_attempt_did(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CheckpointTiming().next_checkpoint() == FIRST_AFTER_S
    monkeypatch.setenv("MOTLEY_CHECKPOINT_SECONDS", "60")
    monkeypatch.setenv("MOTLEY_MEAN_UP_SECONDS", "7200")
    assert CheckpointTiming().next_checkpoint() == pytest.approx(890, abs=1)


def test_announced_losses_do_not_count_where_a_checkpoint_fits_into_the_notice(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay = {"MOTLEY_MEAN_UP_SECONDS": "7200", "MOTLEY_NOTIFIED": "0.75", "MOTLEY_NOTICE_SECONDS": "120"}
    for name, value in stay.items():
        monkeypatch.setenv(name, value)
    timing = CheckpointTiming()
    assert timing.next_checkpoint(90) == pytest.approx(checkpoint_plan.daly_interval(90, 4 * 7200))
    assert timing.next_checkpoint(110) == pytest.approx(checkpoint_plan.daly_interval(110, 7200))


def test_what_the_service_tells_while_the_job_runs_counts_from_the_next_look_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "times.json"
    monkeypatch.setenv("MOTLEY_CHECKPOINT_TIMES_FILE", str(told))
    monkeypatch.setenv("MOTLEY_MEAN_UP_SECONDS", "7200")
    monkeypatch.setenv("MOTLEY_CHECKPOINT_SECONDS", "60")
    timing = CheckpointTiming()

    def due_s(content: str | None = None) -> float:
        """Seconds from the last save to the next one."""
        if content is not None:
            (tmp_path / "new").write_text(content)
            (tmp_path / "new").replace(told)
        clock.now += LOOK_EVERY_S
        return timing.next_checkpoint() + clock.now - began_s

    began_s = clock.now + LOOK_EVERY_S
    assert due_s() == pytest.approx(checkpoint_plan.daly_interval(60, 7200))
    assert due_s('{"mean_up_s": 1800.0, "notified": 0.0, "notice_s": 0.0, "checkpoint_s": null}') == pytest.approx(
        checkpoint_plan.daly_interval(60, 1800)
    )
    assert due_s('{"mean_up_s": 1800.0, "notified": 0.5, "notice_s": 120.0, "checkpoint_s": 90.0}') == pytest.approx(
        checkpoint_plan.daly_interval(90, 3600)
    )
    assert due_s("no JSON") == due_s("[]") == pytest.approx(checkpoint_plan.daly_interval(90, 3600))
    told.unlink()
    assert due_s() == pytest.approx(checkpoint_plan.daly_interval(90, 3600))


def test_a_checkpoint_that_fails_is_tried_again_only_when_the_next_is_due(clock: Clock) -> None:
    timing = CheckpointTiming()
    clock.now += FIRST_AFTER_S
    with pytest.raises(OSError, match="full"), timing.measured():
        raise OSError("full")
    assert timing.next_checkpoint() == FIRST_AFTER_S


def test_the_cost_of_a_checkpoint_is_reported_once_with_the_next_progress(tmp_path: Path) -> None:
    body = """
progress(1)
save_atomically(checkpoint_dir() / "last", lambda file: time.sleep(0.01))
once_per_job("run", lambda: "7")
progress(2)
progress(3)
"""
    output(body, tmp_path, MOTLEY_PROGRESS="p.jsonl")
    reports = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [set(report) & {"checkpoint_s", "checkpoint_at"} for report in reports] == [
        set(),
        {"checkpoint_s", "checkpoint_at"},
        set(),
    ]
    assert reports[1]["checkpoint_s"] >= 0.01


def test_a_restore_is_measured_and_reported_once_with_the_first_progress(tmp_path: Path) -> None:
    body = """
began = time.time()
with restoring():
    time.sleep(0.01)
progress(7)
progress(8)
print(began)
"""
    began = float(output(body, tmp_path, MOTLEY_PROGRESS="p.jsonl"))
    first, second = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert first["restore_s"] >= 0.01
    assert began < first["restored_at"] <= first["at"]
    assert not {"restore_s", "restored_at"} & set(second)


def test_a_restore_that_fails_is_none(tmp_path: Path) -> None:
    body = """
try:
    with restoring():
        raise OSError
except OSError:
    progress(1)
"""
    output(body, tmp_path, MOTLEY_PROGRESS="p.jsonl")
    assert "restore_s" not in (tmp_path / "p.jsonl").read_text()
