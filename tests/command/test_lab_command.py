"""`motley lab`: runs of the policy lab, as the command asks for them and shows them."""

from io import StringIO
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from insight_app.models import LabRun
from motley_client import Client
from motley_client.responses import NodeSavings
from motley_command.tables.lab import node_savings_table
from tests.live_service import Live
from tests.motley_command import Motley

FIGURES = {"avg_jct_h": 1.5, "p99_jct_h": 4.0}
RESULT = {
    "actual": FIGURES,
    "present": {"policy": "fifo", "figures": FIGURES, "errors": {}},
    "policies": [
        {
            "policy": "srtf",
            "failed": "",
            "figures": {"avg_jct_h": 0.75},
            "teams": [{"team": "vision", "jobs": 3, "avg_jct_h": 0.75, "change": -0.5}],
            "sizes": [{"size": "5 to 8", "jobs": 3, "avg_jct_h": 0.75, "change": 0.25}],
        }
    ],
    "summary": "srtf has the least mean job completion time.",
}


def test_a_run_is_asked_for_listed_and_cancelled(service: Live, motley: Motley) -> None:
    asked = motley("lab", "run", "--policy", "srtf", "--policy", "fifo", "--days", "3", "--nodes", "a100=1")
    run = LabRun.objects.get()
    assert (asked.exit_code, asked.stdout) == (0, f"Run {run.pk} is queued (-).\n")
    assert (run.policies, run.days, run.nodes, run.owner) == (["srtf", "fifo"], 3, {"a100": 1}, service.ada)
    assert motley("lab", "list").stdout.splitlines()[1].split()[:5] == [str(run.pk), "queued", "-", "3", "srtf,"]
    assert motley("lab", "cancel", str(run.pk)).stdout.startswith(f"Run {run.pk} is cancelled")
    assert motley("lab", "cancel", str(run.pk)).exit_code == 5


def test_a_watched_run_ends_with_its_result(
    service: Live, motley: Motley, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: float) -> None:
        LabRun.objects.update(state="done", result=RESULT, teams=[], done=8, total=8, finished_at=service.lab.now)

    monkeypatch.setattr("motley_command.commands.lab.time.sleep", end)
    shown = motley("lab", "run", "--policy", "srtf", "--watch").stdout
    for words in (
        "really",
        "fifo simulated",
        "srtf",
        "vision",
        "-50%",
        "5 to 8",
        "+25%",
        "least mean job completion time",
    ):
        assert words in shown


def test_assertions_decide_the_exit_code(
    service: Live, motley: Motley, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: float) -> None:
        LabRun.objects.update(state="done", result=RESULT, teams=[], done=8, total=8, finished_at=service.lab.now)

    monkeypatch.setattr("motley_command.commands.lab.time.sleep", end)
    held = motley("lab", "run", "--policy", "srtf", "--assert", "team:*.jct <= 1.05", "--assert", "jct <= 0.5")
    assert held.exit_code == 0, held.stderr
    number = str(LabRun.objects.get().pk)
    refuted = motley("lab", "show", number, "--assert", "jct <= 0.4")
    assert (refuted.exit_code, "srtf: jct <= 0.4 does not hold: jct is 0.500 of now" in refuted.stderr) == (1, True)
    assert motley("lab", "show", number, "--assert", "fast").exit_code == 2


def test_a_trace_and_weights_of_its_teams_are_sent(motley: Motley, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("name,arrival_s,gpus,duration_s,team\none,0,1,60,speech\n")
    options = ("--policy", "fifo", "--weight", "speech=2")
    assert motley("lab", "run", *options, "--trace", str(trace)).exit_code == 0
    run = LabRun.objects.get()
    assert (run.days, run.trace_format, run.team_weights) == (None, "csv", {"speech": 2.0})
    assert motley("lab", "list").stdout.splitlines()[1].split()[3] == "trace"
    refused = motley("lab", "run", *options, "--trace", str(trace), "--format", "philly")
    assert (refused.exit_code, "the header has no column timestamp" in refused.stderr) == (2, True)


def test_quotas_and_budgets_are_sent(motley: Motley, service: Live) -> None:
    options = ("--quota", "vision:a100=4:2", "--budget", "vision=500/week:hard")
    assert motley("lab", "run", "--policy", "fifo", *options).exit_code == 0
    assert (
        motley("lab", "run", "--policy", "fifo", "--quota", "vision:a100=none", "--budget", "vision=none").exit_code
        == 0
    )
    without, limited = LabRun.objects.all()
    assert limited.quota_words == ["vision 4 a100 (2 borrowed at most)"]
    assert limited.budget_words == ["vision 500 reference GPU-hours a week (hard)"]
    assert (without.quota_words, without.budget_words) == (["vision none on a100"], ["vision none"])


@pytest.mark.parametrize(
    ("option", "words", "form"),
    [
        ("--quota", "vision=8", "write TEAM:TYPE=GPUS"),
        ("--quota", "vision:a100=many", "write TEAM:TYPE=GPUS"),
        ("--budget", "vision=500", "write TEAM=GPU-HOURS/PERIOD"),
        ("--budget", "vision=all/week", "write TEAM=GPU-HOURS/PERIOD"),
    ],
)
def test_limits_that_cannot_be_read_are_refused(motley: Motley, option: str, words: str, form: str) -> None:
    refused = motley("lab", "run", "--policy", "fifo", option, words)
    assert (refused.exit_code, form in refused.stderr) == (2, True), refused.stderr


def test_nodes_that_cannot_be_read_are_refused(motley: Motley) -> None:
    refused = motley("lab", "run", "--policy", "fifo", "--nodes", "a100")
    assert (refused.exit_code, "write TYPE=NODES" in refused.stderr) == (2, True)


def test_nodes_are_told_with_what_they_would_save(service: Live, motley: Motley) -> None:
    service.lab.policy("fifo", round_s=60)
    assert motley("lab", "nodes").stdout.startswith("Prices of the policy fifo are no hours of waiting")


def test_a_line_of_a_node_has_prices_and_simulated_figures() -> None:
    one = {"gpu_type": "t4", "gpus": 8, "node_gpus": 4, "price": 0.5, "saved_h": 40.0, "cost_h": None, "words": ""}
    simulated = {
        "simulated_more": {"lab_run": 3, "saved_h": 38.0},
        "simulated_less": {"lab_run": 4, "saved_h": -9.0, "only_teams_of": "ada"},
    }
    shown = StringIO()
    found = {"since": None, "types": [one | simulated], "why_none": ""}
    Console(file=shown, width=120).print(node_savings_table(cast("NodeSavings", found)))
    assert shown.getvalue().splitlines()[1].split() == [
        "4",
        "t4",
        "8",
        "0.50",
        "40.0",
        "h",
        "38.0",
        "h",
        "(run",
        "3)",
        "9.0",
        "h",
        "(run",
        "4,",
        "teams",
        "of",
        "ada)",
    ]
