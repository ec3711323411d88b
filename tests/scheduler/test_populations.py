"""Populations: members are compared at marks, and copies of better ones take the places of the worst, once."""

import json
import sys
import tarfile
from datetime import timedelta
from typing import Any

import pytest

from connections_app.agents.uploads import checkpoints_of
from jobs_app.errors import InvalidSpec
from jobs_app.lifecycle.commands import hold_job
from jobs_app.models import Attempt, Job, ProgressCurve, Sweep, SweepTrial
from scheduler_app.sweeps import advance
from scheduler_app.sweeps.admission import admitted_sweep
from scheduler_app.sweeps.editing import stop_sweep
from scheduler_app.sweeps.weights import PATIENCE
from tests.scheduler.sweep_turns import begun, job_of, trials, turn
from tests.service_lab import Lab

TrialState = SweepTrial.State
POPULATION: dict[str, Any] = {
    "name": "pbt",
    "method": "population",
    "metric": {"name": "val_loss"},
    "parameters": {"lr": {"min": 0.001, "max": 0.1, "distribution": "log_uniform_values"}, "width": {"values": [1, 2]}},
    "population": {"size": 4, "interval": 100, "max_iter": 300, "keep": ["width"]},
    "seed": 1,
    "spec": {"command": "train --lr {lr}", "gpus": 1},
}
VALUES = (0.3, 0.1, 0.9, 0.2)
"""Of the members at the first mark: the second is the best, the third the worst."""


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=4)
    return lab


def started(lab: Lab, **changes: Any) -> Sweep:
    return begun(lab, {**POPULATION, **changes})


def reports(lab: Lab, trial: SweepTrial, value: float | None, *, step: int) -> None:
    """As progress reports are stored."""
    curve, _ = ProgressCurve.objects.get_or_create(job_id=trial.job_id, defaults={"spacing_s": 2, "last_at": lab.now})
    passed = {str(mark): value for mark in (100, 200) if mark <= step}
    curve.milestones = {**passed, **curve.milestones, "last": value}
    curve.save()
    Job.objects.filter(pk=trial.job_id).update(step=step)


def saves(lab: Lab, trial: SweepTrial) -> None:
    """As after an attempt that was stopped: a checkpoint, and no process."""
    job = job_of(trial)
    if not job.attempts.exists():
        ended = {"state": Attempt.State.ENDED, "outcome": "requeued", "ended_at": lab.now, "gone_at": lab.now}
        lab.attempt(job, launched_at=lab.now, **ended)
    folder = lab.root / "jobs" / str(job.pk) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step-{job.step}").write_text(f"weights of trial {trial.number}")


def at_the_first_mark(lab: Lab, **changes: Any) -> Sweep:
    sweep = started(lab, **changes)
    for trial, value in zip(trials(), VALUES, strict=True):
        reports(lab, trial, value, step=110)
        saves(lab, trial)
    return sweep


def test_the_worst_is_replaced_by_a_copy_of_the_best_with_its_weights(cluster: Lab) -> None:
    at_the_first_mark(cluster)
    turn(cluster)
    best = trials()[1]
    assert (best.state, job_of(best).held) == (TrialState.RESTING, True), "it saves"
    assert best.message == "Its weights are copied: they take the place of trial 2."
    turn(cluster)
    worst, copy = trials()[2], trials()[4]
    assert worst.state == TrialState.REPLACED
    assert worst.message == "In the lowest quarter after 100 steps: val_loss 0.9; trial 4 took its place."
    assert job_of(worst).state == Job.State.CANCELLED
    assert (copy.source, copy.source_step, copy.replaces, copy.values) == (1, 110, 2, [0.1])
    lr, width = copy.params["lr"], copy.params["width"]
    assert (lr != best.params["lr"], width) == (True, best.params["width"]), "width is kept"
    assert copy.changes == {"lr": best.params["lr"]}
    job = job_of(copy)
    assert (job.name, job.continues, job.continues_step, job.step) == ("pbt-4", best.job_id, 110, 110)
    assert json.loads(job.env["MOTLEY_PARAMS"]) == copy.params
    with tarfile.open(checkpoints_of(job.pk)) as archive:
        (file,) = archive.getmembers()
        content = archive.extractfile(file)
        assert content is not None
        assert content.read() == b"weights of trial 1"
    turn(cluster)
    assert (trials()[1].state, job_of(best).held) == (TrialState.RUNNING, False), "it trains on"
    assert trials()[4].message == ""
    turn(cluster, 3)
    assert len(trials()) == 5
    assert Sweep.objects.get().generation == 1


def test_nobody_is_replaced_before_all_have_passed_the_mark_and_who_is_ahead_waits(cluster: Lab) -> None:
    started(cluster)
    for trial, value in zip(trials()[:3], VALUES, strict=False):
        reports(cluster, trial, value, step=100)
    turn(cluster, 2)
    assert {trial.state for trial in trials()} == {TrialState.RUNNING}
    reports(cluster, trials()[0], 0.05, step=200)
    turn(cluster)
    assert (trials()[0].state, job_of(trials()[0]).held) == (TrialState.RESTING, True)
    assert trials()[0].message == "It is ahead: it goes on when all members have passed 100 steps."
    reports(cluster, trials()[3], 0.2, step=100)
    for trial in trials():
        saves(cluster, trial)
    turn(cluster, 3)
    assert trials()[0].state == TrialState.RUNNING
    assert [(copy.replaces, copy.source) for copy in trials()[4:]] == [(2, 1)]


def test_a_failed_member_is_replaced_and_one_that_diverged(cluster: Lab) -> None:
    started(cluster)
    for trial, value in zip(trials(), (0.3, 0.1, None, 0.2), strict=True):
        reports(cluster, trial, value, step=110)
        saves(cluster, trial)
    Job.objects.filter(pk=trials()[0].job_id).update(state="failed", finished_at=cluster.now, message="no memory")
    turn(cluster, 2)
    assert [(copy.replaces, copy.source) for copy in trials()[4:]] == [(2, 1)]
    assert trials()[0].state == TrialState.FAILED
    reports(cluster, trials()[1], 0.1, step=210)
    for trial in (trials()[1], *trials()[3:]):
        reports(cluster, trial, 0.1 + trial.number / 100, step=210)
        saves(cluster, trial)
    turn(cluster, 4)
    assert [(copy.replaces, copy.source) for copy in trials()[5:]] == [(0, 1)], "it is the worst at the next mark"


def test_a_population_ends_when_its_members_have(cluster: Lab) -> None:
    sweep = at_the_first_mark(cluster)
    turn(cluster, 3)
    for trial in (trials()[0], trials()[1], *trials()[3:]):
        reports(cluster, trial, 0.05, step=300)
        Job.objects.filter(pk=trial.job_id).update(state="succeeded", finished_at=cluster.now)
    turn(cluster)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.FINISHED
    assert [trial.state for trial in trials()] == ["succeeded", "succeeded", "replaced", "succeeded", "succeeded"]


def test_explore_none_keeps_all_hyper_parameters(cluster: Lab) -> None:
    given = {"size": 4, "interval": 100, "max_iter": 300, "explore": "none"}
    at_the_first_mark(cluster, population=given)
    turn(cluster, 2)
    assert (trials()[4].params, trials()[4].changes) == (trials()[1].params, {})


def test_of_two_schedulers_one_makes_the_copy_that_counts(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = at_the_first_mark(cluster)
    turn(cluster)
    read = [advance._read(sweep.pk) for _ in range(2)]
    cluster.ahead += timedelta(seconds=2)
    with monkeypatch.context() as stale:
        stale.setattr(advance, "_read", lambda _: read.pop())
        for _ in range(2):
            advance._advance(sweep.pk, cluster.now)
    assert [trial.number for trial in trials()] == [0, 1, 2, 3, 4]
    copies = checkpoints_of(trials()[4].job_id).parent
    assert [path.name for path in copies.iterdir()] == [checkpoints_of(trials()[4].job_id).name]


def test_weights_that_cannot_be_copied_are_told_and_stop_it_at_last(cluster: Lab) -> None:
    sweep = started(cluster)
    for trial, value in zip(trials(), VALUES, strict=True):
        reports(cluster, trial, value, step=110)
    turn(cluster, 3)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.RUNNING
    assert sweep.message.startswith("The weights of trial 1 cannot be copied: pbt-1 has saved no checkpoint")
    assert sweep.message.endswith("exit with 75. The others wait; after 10 minutes the sweep is stopped.")
    cluster.ahead += PATIENCE
    turn(cluster, 2)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.STOPPED
    assert "save in $MOTLEY_CHECKPOINT_DIR at SIGTERM" in sweep.message
    assert not Job.objects.unfinished().exists()


def test_a_program_that_ends_well_when_it_is_held_has_failed(cluster: Lab) -> None:
    at_the_first_mark(cluster)
    turn(cluster)
    Job.objects.filter(pk=trials()[1].job_id).update(state="succeeded", held=False, finished_at=cluster.now)
    turn(cluster)
    assert trials()[1].state == TrialState.FAILED
    assert "Why it was held: Its weights are copied: they take the place of trial 2." in trials()[1].message
    assert trials()[3].message == "Its weights are copied: they take the place of trial 1.", "the next best"


def test_stop_ends_a_population(cluster: Lab) -> None:
    sweep = at_the_first_mark(cluster)
    turn(cluster)
    stop_sweep(sweep, actor=cluster.user())
    turn(cluster, 2)
    assert Sweep.objects.get().state == Sweep.State.STOPPED
    assert not Job.objects.unfinished().exists()


def test_one_copy_that_fails_does_not_stop_a_population_whose_source_was_held_for_long(cluster: Lab) -> None:
    sweep = started(cluster)
    for trial, value in zip(trials()[:3], VALUES, strict=False):
        reports(cluster, trial, value, step=110)
    reports(cluster, trials()[1], 0.1, step=210)
    turn(cluster, 2)
    assert trials()[1].message.startswith("It is ahead")
    cluster.ahead += PATIENCE
    reports(cluster, trials()[3], 0.2, step=110)
    turn(cluster)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.RUNNING
    assert "cannot be copied" in sweep.message
    assert trials()[1].copies_fail_since == sweep.advanced_at
    saves(cluster, trials()[1])
    turn(cluster)
    assert (len(trials()), trials()[1].copies_fail_since) == (5, None)


def test_a_copy_is_not_compared_at_marks_for_which_it_never_trained(cluster: Lab) -> None:
    started(cluster)
    for trial, value in zip(trials(), VALUES, strict=True):
        reports(cluster, trial, value, step=110)
        saves(cluster, trial)
    reports(cluster, trials()[1], 0.1, step=210)
    saves(cluster, trials()[1])
    turn(cluster, 3)
    copy = trials()[4]
    assert (copy.source_step, copy.values) == (210, [0.1])
    reports(cluster, copy, 0.95, step=211)
    for trial in (trials()[0], trials()[3]):
        reports(cluster, trial, 0.3 + trial.number / 100, step=210)
        saves(cluster, trial)
    turn(cluster, 4)
    assert trials()[4].is_open, "its value at 200 steps is that of the weights of trial 1"
    assert [(one.replaces, one.source) for one in trials()[5:]] == [(3, 1)]


def test_a_member_that_fails_while_copies_are_made_takes_no_place_of_a_later_mark(cluster: Lab) -> None:
    at_the_first_mark(cluster)
    turn(cluster, 2)
    assert [one.replaces for one in trials()[4:]] == [2]
    Job.objects.filter(pk=trials()[0].job_id).update(state="failed", finished_at=cluster.now, message="no memory")
    turn(cluster, 4)
    assert [one.replaces for one in trials()[4:]] == [2], "it is replaced at the next mark"


def test_a_job_that_its_owner_holds_gives_its_weights_and_stays_held(cluster: Lab) -> None:
    at_the_first_mark(cluster)
    hold_job(job_of(trials()[1]), actor=cluster.user())
    turn(cluster, 4)
    assert [(one.replaces, one.source) for one in trials()[4:]] == [(2, 1)]
    best = job_of(trials()[1])
    assert (best.held, trials()[1].state) == (True, TrialState.RUNNING)
    assert "by the sweep" not in best.message


def test_a_member_held_because_it_is_ahead_that_exits_is_told_why_it_was_held(cluster: Lab) -> None:
    started(cluster)
    reports(cluster, trials()[0], 0.05, step=200)
    turn(cluster, 2)
    Job.objects.filter(pk=trials()[0].job_id).update(state="succeeded", held=False, finished_at=cluster.now)
    turn(cluster)
    assert trials()[0].state == TrialState.FAILED
    assert trials()[0].message == (
        "It exited with 0 when it was held: a program that saves at SIGTERM and has work left exits with 75. "
        "Why it was held: It is ahead: it goes on when all members have passed 100 steps."
    )


def test_a_source_that_counts_steps_from_0_has_trained_to_its_end(cluster: Lab) -> None:
    at_the_first_mark(cluster)
    turn(cluster)
    Job.objects.filter(pk=trials()[1].job_id).update(state="succeeded", held=False, step=299, finished_at=cluster.now)
    turn(cluster)
    assert (trials()[1].state, trials()[1].value) == (TrialState.SUCCEEDED, 0.1)


def test_a_copy_that_never_reported_has_no_value_of_its_source(cluster: Lab) -> None:
    at_the_first_mark(cluster)
    turn(cluster, 2)
    Job.objects.filter(pk=trials()[4].job_id).update(state="failed", finished_at=cluster.now)
    turn(cluster)
    assert (trials()[4].state, trials()[4].values, trials()[4].value) == (TrialState.FAILED, [0.1], None)


def test_of_many_unknown_names_to_keep_the_list_is_refused_and_one_is_guessed(cluster: Lab) -> None:
    def fault_of(keep: list[str]) -> str:
        population = {**POPULATION["population"], "keep": keep}
        with pytest.raises(InvalidSpec) as refused:
            admitted_sweep({**POPULATION, "population": population}, owner=cluster.user(), now=cluster.now)
        (fault,) = refused.value.faults
        assert fault["pointer"] == "/population/keep"
        return fault["detail"]

    assert "no more than 50 elements" in fault_of([f"widht{n}" for n in range(51)])
    assert fault_of(["widht", *(f"widht{n}" for n in range(49))]).endswith("Did you mean 'width'?")


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"population": None}, "/population", "needs it"),
        ({"method": "bayes"}, "/population", "write method: population, or leave it out"),
        ({"early_terminate": {"min_iter": 1, "max_iter": 9}}, "/early_terminate", "leave early_terminate out"),
        ({"population": {"size": 1, "interval": 1, "max_iter": 9}}, "/population/size", "greater than or equal to 2"),
        ({"population": {"size": 4, "interval": 9, "max_iter": 9}}, "/population/interval", "less than max_iter"),
        ({"population": {"size": 4, "interval": 1, "max_iter": 999}}, "/population/interval", "give at least 17."),
        ({"population": {"size": 4, "interval": 1}}, "/population/max_iter", "required"),
        ({"population": {"size": 4, "intervall": 1, "max_iter": 9}}, "/population/intervall", "Did you mean"),
        (
            {"population": {"size": 4, "interval": 1, "max_iter": 9, "keep": ["widht"]}},
            "/population/keep",
            "Did you mean 'width'?",
        ),
        (
            {"population": {"size": 4, "interval": 1, "max_iter": 9, "explore": "all"}},
            "/population/explore",
            "is not one of perturb, none",
        ),
        ({"run_cap": 3}, "/run_cap", "at least population.size, 4"),
        ({"at_a_time": 3}, "/at_a_time", "at least population.size, 4"),
    ],
)
def test_bad_input_names_the_field_and_the_remedy(
    cluster: Lab, changes: dict[str, Any], pointer: str, words: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        admitted_sweep({**POPULATION, **changes}, owner=cluster.user(), now=cluster.now)
    faults = {fault["pointer"]: fault["detail"] for fault in refused.value.faults}
    assert pointer in faults, faults
    assert words in faults[pointer]


def test_its_numbers_follow_from_its_size(cluster: Lab) -> None:
    sweep = admitted_sweep(POPULATION, owner=cluster.user(), now=cluster.now)
    assert (sweep.at_a_time, sweep.run_cap) == (4, 4 + 2)


# -- on a real engine --------------------------------------------------------------------------------------------

TRAINING = """
import json, os, signal, sys, time
from pathlib import Path
rate = json.loads(os.environ["MOTLEY_PARAMS"])["rate"]
saved = Path(os.environ["MOTLEY_CHECKPOINT_DIR"]) / "state"
step, weight = json.loads(saved.read_text()) if saved.exists() else (0, 0.0)
with open("begun.txt", "a") as file:
    file.write(json.dumps([step, weight]) + "\\n")
def stop(*_):
    saved.write_text(json.dumps([step, weight]))
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
while step < 90:
    step, weight = step + 1, weight + rate
    with open(os.environ["MOTLEY_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step, "metrics": {"distance": abs(100 - weight)}}) + "\\n")
    time.sleep(0.1)
"""


@pytest.mark.thorough
def test_weights_of_the_better_one_come_over(cluster: Lab) -> None:
    """Real processes. The weight grows by the rate each step: only with the weight of the fast one is it near 100."""
    cluster.policy(round_s=1)
    sweep = started(
        cluster,
        metric={"name": "distance"},
        parameters={"rate": {"min": 0.1, "max": 1.0}},
        population={"size": 4, "interval": 30, "max_iter": 90},
        spec={"command": [sys.executable, "-c", TRAINING], "gpus": 1, "checkpoint": {"restore_seconds": 0}},
    )

    def finished() -> bool:
        sweep.refresh_from_db()
        return sweep.state == Sweep.State.FINISHED

    cluster.until(finished)
    copies = [trial for trial in trials() if trial.source is not None]
    assert 1 <= len(copies) <= 2, "on a busy machine members may have ended before the second mark is decided"
    for copy in copies:
        source = trials()[copy.source or 0]
        assert copy.state in (TrialState.SUCCEEDED, TrialState.REPLACED)
        assert copy.source_step is not None
        begun, weight = begun_with(cluster, copy)
        assert 30 <= begun < 90
        assert weight == pytest.approx(weight_at(cluster, source, begun)), "that of the source, at a step of its own"


@pytest.mark.thorough
def test_stop_leaves_no_process(cluster: Lab) -> None:
    cluster.policy(round_s=1)
    sweep = started(cluster, spec={"command": [sys.executable, "-c", TRAINING.replace("rate", "lr")], "gpus": 1})
    cluster.running(*Job.objects.all())
    assert cluster.processes()
    stop_sweep(sweep, actor=cluster.user())

    def stopped() -> bool:
        sweep.refresh_from_db()
        return sweep.state == Sweep.State.STOPPED and not cluster.processes()

    cluster.until(stopped)
    assert {trial.state for trial in trials()} == {TrialState.CANCELLED}


def begun_with(lab: Lab, trial: SweepTrial) -> tuple[int, float]:
    """Step and weight with which its first attempt began."""
    file = lab.root / "jobs" / str(trial.job_id) / "work" / "begun.txt"
    step, weight = json.loads(file.read_text().splitlines()[0])
    return step, weight


def weight_at(lab: Lab, trial: SweepTrial, step: int) -> float:
    """The weight of a trial at a step: what it began with, and its rate for each step since."""
    begun, weight = begun_with(lab, trial)
    grown: float = (step - begun) * trial.params["rate"]
    return weight + grown
