"""`python -m simulation compare`: several policies and seeds, and the report of it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev

import pytest
from playwright.sync_api import sync_playwright

from simulation.__main__ import main
from tests.chromium import CHROMIUM

ROOT = Path(__file__).parents[2]
EVIL = "<img src=x onerror=document.title='owned'>"
MEASURED = {"wall_s", "decision_ms", "decision_ms.p50", "decision_ms.p95"}
PATIENCE_S = 300
POLICIES = ("fifo", "srtf")
ON = ("--format", "csv", "--cluster", "v100=1x4,t4=1x4")


def jobs(count: int, *, every_s: int = 97, seconds: int = 600) -> str:
    lines = [f'"{EVIL}-{i}",{every_s * i},{1 + i % 4},{seconds + 31 * (i % 50)},{"ab"[i % 2]}' for i in range(count)]
    return "\n".join(["name,arrival_s,gpus,duration_s,team", *lines, ""])


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(jobs(40))
    return path


@pytest.fixture
def call(capsys, tmp_path):
    def called(path, *words, policies=POLICIES, out="out"):
        named = [word for policy in policies for word in ("--policy", policy)]
        with pytest.raises(SystemExit) as left:
            main(["compare", str(path), *ON, *named, "--out", str(tmp_path / out), *words])
        return left.value.code or 0, *capsys.readouterr()

    return called


def figures(folder: Path) -> dict:
    return json.loads((folder / "figures.json").read_text())


def unmeasured(run: dict) -> dict:
    return {name: value for name, value in run.items() if name not in MEASURED}


def test_policies_and_seeds_are_told_as_json_csv_jobs_and_a_table(call, trace, tmp_path):
    code, out, err = call(trace, "--seeds", "3-4", "--failures", "1:0.2", "--checkpoint", "900")
    assert (code, err) == (0, "")
    told = figures(tmp_path / "out")
    assert [(run["policy"], run["seed"]) for run in told["runs"]] == [
        ("fifo", 3),
        ("fifo", 4),
        ("srtf", 3),
        ("srtf", 4),
    ]
    assert told["failed"] == []
    with (tmp_path / "out" / "figures.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["rho.mean"]) for line in lines] == [run["rho"]["mean"] for run in told["runs"]]
    with (tmp_path / "out" / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 40
    first = [float(row["jct_s"]) for row in rows[:40]]
    assert sum(first) / 40 / 3600 == pytest.approx(told["runs"][0]["avg_jct_h"])
    assert re.search(r"Average JCT, h +│ \S+ ± \S+ +│ \S+ ± \S+ +│", out)
    assert "Means of 2 seeds" in out


def test_a_run_of_a_comparison_is_the_run_by_itself(call, capsys, trace, tmp_path):
    words = ("--failures", "1:0.2", "--restart", "20")
    call(trace, "--seeds", "7", *words)
    with pytest.raises(SystemExit):
        main(["run", str(trace), *ON, "--policy", "srtf", "--seed", "7", *words, "--json"])
    alone = json.loads(capsys.readouterr().out)
    assert alone.pop("notes") == []  # of a comparison they are about all runs
    compared = figures(tmp_path / "out")["runs"][1]
    assert unmeasured(compared) == {"policy": "srtf", "seed": 7, **unmeasured(alone)}


def test_the_same_seeds_give_the_same_jobs(call, trace, tmp_path):
    for out in ("one", "two"):
        call(trace, "--seeds", "0,1", "--failures", "1:0.2", out=out)
    assert (tmp_path / "one" / "jobs.csv").read_bytes() == (tmp_path / "two" / "jobs.csv").read_bytes()


def test_where_nothing_is_left_to_chance_one_seed_stands_for_all(call, trace, tmp_path):
    _, out, _ = call(trace, "--seeds", "0-4")
    assert len(figures(tmp_path / "out")["runs"]) == 2
    assert "Nothing here is random: only seed 0 of 5" in out


def test_seeds_that_draw_the_pilots_of_arrays_are_all_run(call, tmp_path):
    for name, array in (("arrays", "sweep"), ("jobs", "")):
        lines = [f"t{i},{60 * i},1,{600 + 60 * i},{array}" for i in range(20)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["name,arrival_s,gpus,duration_s,array", *lines, ""]))
        _, out, _ = call(tmp_path / f"{name}.csv", "--seeds", "0-1", "--estimate-lengths", out=name)
        assert ("Nothing here is random" in out) == (name == "jobs")
        assert len(figures(tmp_path / name)["runs"]) == (2 if name == "jobs" else 4)


def test_each_seed_may_have_a_trace_of_its_own(call, tmp_path):
    for seed, count in ((1, 20), (2, 30)):
        (tmp_path / f"made-{seed}.csv").write_text(jobs(count))
    code, out, _ = call(tmp_path / "made-{seed}.csv", "--seeds", "1,2", "--json")
    assert code == 0
    assert [(run["seed"], run["jobs"]) for run in json.loads(out)["runs"]] == [(1, 20), (2, 30), (1, 20), (2, 30)]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--policy", "best"], "unknown policy 'best'; choose from"),
        (["--policy", "sia:speed=1"], "policy sia:speed=1: speed: unknown; this policy has"),
        (["--seeds", "0-x"], "'0-x' is not SEED or FIRST-LAST"),
        (["--seeds", "3-1"], "'3-1' is not SEED or FIRST-LAST"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_runs(call, trace, tmp_path, words, reason):
    code, out, err = call(trace, *words)
    assert (code, out) == (2, "")
    assert err.startswith(reason)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [[], ["--seeds", "0-1", "--estimate-lengths"]])
def test_a_trace_that_is_not_there_or_cannot_be_read_is_named(call, trace, tmp_path, words):
    assert call(tmp_path / "none-{seed}.csv", *words)[2] == f"there is no file {tmp_path}/none-0.csv\n"
    trace.write_text("name,arrival_s,gpus,duration_s\na,soon,1,60\n")
    assert call(trace, *words)[::2] == (2, f"{trace}: line 2, column 2: arrival_s 'soon' is not a number\n")


def test_a_folder_that_cannot_be_made_is_named(call, trace, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call(trace, out="file/out")
    assert (code, err) == (2, f"{tmp_path}/file/out: Not a directory\n")


def test_the_difference_from_the_first_policy_is_taken_seed_by_seed(call, tmp_path):
    for seed, count in ((1, 20), (2, 60)):
        (tmp_path / f"made-{seed}.csv").write_text(jobs(count))
    call(tmp_path / "made-{seed}.csv", "--seeds", "1,2")
    of_fifo, of_srtf = (
        [r["avg_jct_h"] for r in figures(tmp_path / "out")["runs"] if r["policy"] == p] for p in POLICIES
    )
    percents = [100 * (mine / its - 1) for mine, its in zip(of_srtf, of_fifo, strict=True)]
    words = f"{mean(percents):+.0f} ± {stdev(percents):.0f} %"
    assert f"<small class=change>{words}</small>" in (tmp_path / "out" / "report.html").read_text()


# -- the report ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None and os.environ.get("CI") != "true", reason="no Chromium: install chromium")
def test_the_report_draws_everything_asks_for_nothing_and_takes_no_name_for_markup(call, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(jobs(130))
    call(path, "--seeds", "0-1", "--failures", "1:0.2")
    asked, faults = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((tmp_path / "out" / "report.html").as_uri())
        page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 6")
        assert page.title() == "Comparison of 2 policies on trace.csv"
        assert page.get_by_role("row", name="Average JCT, h").first.is_visible()
        assert "120 of 130 jobs are shown" in page.inner_text("body")
        page.get_by_role("tab", name="srtf").click()
        assert page.locator("#gantt-1").is_visible()
        assert not page.locator("#gantt-0").is_visible()
        names = page.evaluate("document.querySelector('#gantt-1 .js-plotly-plot').data[0].customdata")
        assert "<b>&lt;img src=x onerror=document.title=&#x27;owned&#x27;&gt;-0</b>" in names[0][0]
        wide = page.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert faults == []
    assert len(asked) == 1
    assert wide == 1280


@pytest.mark.thorough
def test_the_report_of_many_jobs_stays_small(call, tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(jobs(600, every_s=360, seconds=60))
    call(path, policies=("fifo",))
    assert "120 of 600 jobs are shown, evenly spaced by arrival." in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "report.html").stat().st_size < 6e6


# -- what goes wrong on the way ------------------------------------------------------------------------------------


@pytest.fixture
def comparing(tmp_path):
    """A comparison that takes a while, as a process of its own; and its workers, once there are some."""
    path = tmp_path / "trace.csv"
    path.write_text(jobs(400, every_s=60))
    words = [str(path), "--format", "csv", "--cluster", "v100=2x4", "--policy", "fifo", "--policy", "max_min_fairness"]
    command = [sys.executable, "-m", "simulation", "compare", *words, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*command, "--processes", "2"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process, workers_of(process)
    process.kill()
    process.communicate()


def workers_of(process: subprocess.Popen) -> list[int]:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if len(found := [worker for server in children(process.pid) for worker in children(server)]) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError("no workers were started")


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def gone(pids: list[int]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


STOPS = [signal.SIGINT, *(pytest.param(how, marks=pytest.mark.thorough) for how in (signal.SIGTERM, signal.SIGKILL))]


@pytest.mark.parametrize("how", STOPS)
def test_stopping_it_leaves_no_process_behind(comparing, how):
    process, workers = comparing
    process.send_signal(how)
    process.wait(PATIENCE_S)
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    assert gone(workers)


def test_a_run_that_is_killed_is_named_and_the_others_are_reported(comparing, tmp_path):
    process, workers = comparing
    os.kill(workers[1], signal.SIGKILL)
    _, err = process.communicate(timeout=10 * PATIENCE_S)
    assert process.returncode == 1
    told = figures(tmp_path / "out")
    assert len(told["runs"]) == 1
    (failed,) = told["failed"]
    assert "its process was killed" in failed["reason"]
    assert f"Not finished: {failed['policy']}, seed 0: its process was killed" in err
    assert "its process was killed" in (tmp_path / "out" / "report.html").read_text()
