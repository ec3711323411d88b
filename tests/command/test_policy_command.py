"""`motley policy` and `motley lab apply`: previewed, applied, watched and undone as the command shows it."""

import json
from datetime import timedelta

import pytest

from insight_app.models import LabRun, PolicyGuard
from scheduler_app.models import PolicySetting
from tests.live_service import Live
from tests.motley_command import Motley

FIGURES = {"avg_jct_h": 2.0, "queueing_h": 1.0, "restarts_per_job": 0.0, "utilization": 0.5, "makespan_h": 10.0}
POLICY = "sia:power=-0.25"
EFFECT = {
    "measure": "avg_jct_h",
    "meaning": "mean job completion time",
    "state": "worse",
    "value": 5.0,
    "jobs": 40,
    "predicted": 2.0,
    "low": 1.5,
    "high": 3.1,
}


@pytest.fixture
def run(service: Live) -> LabRun:
    row = {"policy": POLICY, "failed": "", "figures": FIGURES, "teams": []}
    present = {"policy": "max_min_fairness", "figures": FIGURES, "errors": {"avg_jct_h": 0.0}}
    result = {
        "jobs": 100,
        "cluster": "a100=1x4",
        "actual": FIGURES,
        "present": present,
        "policies": [row],
        "summary": "",
    }
    owner, then = service.lab.user("root", staff=True), service.lab.now - timedelta(days=3)
    return LabRun.objects.create(owner=owner, days=7, policies=[POLICY], state="done", result=result, finished_at=then)


def test_a_policy_is_previewed_and_nothing_is_changed(service: Live, staff: Motley) -> None:
    service.add("one", gpus=4)
    service.lab.tick()
    service.add("other", gpus=1)
    shown = staff("policy", "set", "fifo", "--min-run", "60", "--dry-run")
    assert (shown.exit_code, shown.stdout.splitlines()[0].split()[:3]) == (0, ["NEXT", "ROUND", "START"])
    assert json.loads(staff("policy", "set", "srtf", "--dry-run", "-o", "json").stdout)["jobs"] == 2
    assert PolicySetting.objects.current().policy == "max_min_fairness"


def test_members_may_not_preview(motley: Motley) -> None:
    assert motley("policy", "set", "fifo", "--dry-run").exit_code == motley("policy", "undo").exit_code != 0


def test_a_policy_of_a_run_is_previewed_applied_watched_and_undone(staff: Motley, run: LabRun) -> None:
    number = str(run.pk)
    shown = staff("lab", "apply", number, POLICY, "--dry-run").stdout
    assert "max_min_fairness simulated" in shown
    assert "3 days old" in shown
    applied = staff("lab", "apply", number, POLICY, "--note", "less waiting", "--watch-hours", "2").stdout
    assert f"from run {number} of the lab; less waiting" in applied
    assert "3 days old" in applied
    PolicyGuard.objects.update(state="worse", message="Outside the lab's prediction.", effects=[EFFECT])
    shown = " ".join(staff("policy", "show").stdout.split())
    assert "mean job completion time 40 5 h 2 h 1.5 h to 3.1 h worse" in shown
    assert "Outside the lab's prediction." in shown
    assert json.loads(staff("policy", "show", "-o", "json").stdout)["guard"]["recommends_undo"] is True
    assert staff("policy", "undo", "--note", "too slow", "-o", "name").stdout == "max_min_fairness\n"
    assert PolicySetting.objects.current().note.endswith("; too slow")


def test_predictions_have_the_units_that_the_run_has(staff: Motley, run: LabRun) -> None:
    short = {**FIGURES, "avg_jct_h": 0.0296, "queueing_h": 0.00562, "makespan_h": 0.16}
    run.result |= {"present": {"policy": "max_min_fairness", "figures": short, "errors": {}}}
    run.save()
    of_run = cells_of(staff("lab", "show", str(run.pk)).stdout)
    previewed = cells_of(staff("lab", "apply", str(run.pk), POLICY, "--dry-run").stdout)
    assert previewed == of_run == ["1.78m", "20.2s", "9.6m", "0.5", "0"]


def cells_of(shown: str) -> list[str]:
    """Figures of the current policy, simulated."""
    (line,) = (line for line in shown.splitlines() if line.startswith("max_min_fairness simulated"))
    return line.split()[2:]


def test_without_a_choice_there_is_nothing_to_undo(staff: Motley, service: Live) -> None:
    PolicySetting.objects.all().delete()
    refused = staff("policy", "undo")
    assert (refused.exit_code, "nothing to undo" in refused.stderr) == (2, True)
    refused = staff("policy", "undo", "3", "--note", "x")
    assert (refused.exit_code, "leave out ID" in refused.stderr) == (2, True)
