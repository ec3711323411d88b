"""Sweeps: trials are ordinary jobs, advanced once whatever stops or doubles the scheduler."""

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from accounting_app.models import DailyUsage
from cluster_app.models import GpuType
from jobs_app.errors import InvalidSpec
from jobs_app.lifecycle.commands import cancel_job, hold_job, release_job
from jobs_app.models import Attempt, Budget, Job, ProgressCurve, Reason, Sweep, SweepTrial, Team, TeamQuota
from jobs_app.secrets import set_secret
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.submit import cloned_spec, submit_job
from scheduler_app.sweeps import advance
from scheduler_app.sweeps.admission import admitted_sweep
from scheduler_app.sweeps.advance import advance_sweeps
from scheduler_app.sweeps.editing import delete_sweep, start_sweep, stop_sweep
from tests.scheduler.sweep_turns import begun, job_of, trials, turn
from tests.service_lab import Lab

TrialState = SweepTrial.State
SWEEP = {
    "name": "search",
    "method": "random",
    "metric": {"name": "val_loss"},
    "parameters": {
        "lr": {"min": 0.001, "max": 0.1, "distribution": "log_uniform_values"},
        "width": {"values": [64, 128]},
    },
    "run_cap": 9,
    "at_a_time": 3,
    "seed": 1,
    "spec": {"command": "train --lr {lr} --width {width}", "gpus": 1},
}
ARGS = ["--lr=0.01", "--name=a b"]
ASHA = {"min_iter": 10, "max_iter": 90, "eta": 3}


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=4)
    return lab


def started(lab: Lab, **changes: Any) -> Sweep:
    return begun(lab, {**SWEEP, **changes})


def reports(lab: Lab, trial: SweepTrial, value: float | None, *, step: int) -> None:
    """As progress reports are stored: the metric's value at each milestone up to this step."""
    job = job_of(trial)
    rungs = [int(text) for text in job.env["MOTLEY_MILESTONES"].partition(":")[2].split(",") if text]
    curve, _ = ProgressCurve.objects.get_or_create(job=job, defaults={"spacing_s": 2, "last_at": lab.now})
    curve.milestones = {**{str(rung): value for rung in rungs if rung <= step}, **curve.milestones, "last": value}
    curve.save()


def ends(trial: SweepTrial, lab: Lab, state: Job.State = Job.State.SUCCEEDED) -> None:
    Job.objects.filter(pk=trial.job_id).update(state=state, held=False, finished_at=lab.now, message="it ended")


def a100() -> GpuType:
    return GpuType.objects.get()


def used_up_budget(lab: Lab) -> None:
    """Of one GPU-hour a week."""
    Budget.objects.create(team=lab.team(), gpu_hours=1, period="week", kind="hard")
    amounts = {"gpu_s": 7200, "work_gpu_s": 7200}
    DailyUsage.objects.create(team=lab.team(), gpu_type=a100(), day=lab.now.date(), **amounts)


# -- trials are jobs ---------------------------------------------------------------------------------------------


def test_trials_are_jobs_with_their_hyper_parameters(cluster: Lab) -> None:
    started(cluster)
    assert [trial.number for trial in trials()] == [0, 1, 2]
    for trial in trials():
        job = job_of(trial)
        assert job.name == f"search-{trial.number}"
        assert job.command == f"train --lr {trial.params['lr']} --width {trial.params['width']}"
        assert json.loads(job.env["MOTLEY_PARAMS"]) == trial.params
        assert job.tags == {"sweep": "search"}
        assert (job.owner, job.team.name) == (cluster.user(), "vision")


def test_a_copy_of_a_trial_has_its_hyper_parameters(cluster: Lab) -> None:
    started(cluster)
    job = job_of(trials()[0])
    assert submit_job(cloned_spec(spec_of(job)), owner=cluster.user()).env == job.env


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train ${args} --out $HOME/{x} ${lr} {print}", "train --lr=0.01 --name='a b' --out $HOME/{x} ${lr} {print}"),
        ("train --name {name}", "train --name 'a b'"),
        (["train", "${args}", "{name}"], ["train", "--lr=0.01", "--name=a b", "a b"]),
        (["${env}", "${interpreter}", "train.py", "${args}"], ["/usr/bin/env", "python", "train.py", *ARGS]),
        (["train", "${args_no_hyphens}"], ["train", "lr=0.01", "name=a b"]),
        ("train ${args_no_hyphens}", "train lr=0.01 name='a b'"),
    ],
)
def test_values_stand_in_the_command_as_they_are(cluster: Lab, command: Any, expected: Any) -> None:
    parameters = {"lr": {"value": 0.01}, "name": {"value": "a b"}}
    started(cluster, parameters=parameters, run_cap=1, spec={"command": command, "gpus": 1})
    assert job_of(trials()[0]).command == expected


def test_a_file_of_wandb_is_a_sweep_after_gpus_are_added(cluster: Lab) -> None:
    given = {"program": "train.py", "spec": {"gpus": 1}}
    assert admitted_sweep(SWEEP | given, owner=cluster.user(), now=cluster.now).spec["command"] == [
        *("python", "train.py", "${args}"),
    ]


def test_a_place_that_is_free_gets_the_next_trial_until_all_have_run(cluster: Lab) -> None:
    sweep = started(cluster)
    while open_trials := trials(TrialState.RUNNING):
        assert len(open_trials) <= 3
        reports(cluster, open_trials[0], 1 / (1 + open_trials[0].number), step=5)
        ends(open_trials[0], cluster)
        turn(cluster)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.FINISHED
    assert sweep.ended_at is not None
    assert [trial.value for trial in trials()] == [1 / (1 + number) for number in range(9)]


def test_a_grid_ends_with_its_points(cluster: Lab) -> None:
    parameters = {"width": {"values": [64, 128]}, "depth": {"min": 1, "max": 2}}
    sweep = started(cluster, method="grid", parameters=parameters, run_cap=100, at_a_time=10)
    assert sweep.run_cap == 4
    assert [trial.params for trial in trials()] == [{"depth": d, "width": w} for d in (1, 2) for w in (64, 128)]


def test_a_turn_without_sweeps_costs_one_query(cluster: Lab) -> None:
    with CaptureQueriesContext(connection) as queries:
        advance_sweeps(cluster.now)
    assert len(queries) == 1


def test_queries_of_a_turn_do_not_grow_with_trials(cluster: Lab) -> None:
    counts = []
    for name, run_cap in (("few", 3), ("many", 40)):
        started(cluster, name=name, run_cap=run_cap, at_a_time=40)
        turn(cluster, 15)
        Sweep.objects.exclude(name=name).update(state="stopped", ended_at=cluster.now)
        cluster.ahead += timedelta(seconds=2)
        with CaptureQueriesContext(connection) as queries:
            advance_sweeps(cluster.now)
        counts.append(len(queries))
    assert counts[0] == counts[1]


# -- rungs -------------------------------------------------------------------------------------------------------


def test_at_a_rung_the_best_goes_on_and_the_others_are_held(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    for trial, value in zip(trials(), (0.3, 0.1, 0.2), strict=True):
        reports(cluster, trial, value, step=10)
    turn(cluster)
    third, best, second = trials()[:3]
    assert (best.state, best.target, job_of(best).held) == (TrialState.RUNNING, 1, False)
    for trial in (third, second):
        assert trial.state == TrialState.RESTING
        assert job_of(trial).held
        assert job_of(trial).reason == Reason.HELD
        assert trial.message == f"Not among the best 1/3 after 10 steps: val_loss {trial.values[0]:g}."
    assert job_of(third).message == (
        "Held by the sweep search: not among the best 1/3 after 10 steps: val_loss 0.3; "
        "release it with `motley release search-0`, or on its page."
    )
    assert [trial.number for trial in trials(TrialState.RUNNING)] == [1, 3, 4], "two new ones take the places"


def test_a_held_trial_goes_on_when_later_ones_are_worse(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    for trial, value in zip(trials(), (0.3, 0.1, 0.2), strict=True):
        reports(cluster, trial, value, step=10)
    turn(cluster)
    for trial in trials(TrialState.RUNNING)[1:]:
        reports(cluster, trial, 0.9, step=10)
    turn(cluster)
    for trial in trials(TrialState.RUNNING)[1:]:
        reports(cluster, trial, 0.8, step=10)
    turn(cluster)
    promoted = trials()[2]
    assert (promoted.state, promoted.target, job_of(promoted).held) == (TrialState.RUNNING, 1, False)


def test_a_search_with_rungs_ends_with_the_best_trained_to_the_end(cluster: Lab) -> None:
    sweep = started(cluster, early_terminate=ASHA)
    quality = [0.5, 0.1, 0.9, 0.3, 0.7, 0.2, 0.8, 0.4, 0.6]
    rungs = (10, 30, 90)
    for _ in range(40):
        for trial in trials(TrialState.RUNNING):
            reports(cluster, trial, quality[trial.number], step=rungs[trial.target])
            if trial.target == 2:
                ends(trial, cluster)
        turn(cluster)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.FINISHED
    ended = {trial.number: trial.state for trial in trials()}
    assert ended[1] == TrialState.SUCCEEDED
    assert min(trial.value for trial in trials(TrialState.SUCCEEDED) if trial.value is not None) == 0.1
    assert set(ended.values()) == {TrialState.SUCCEEDED, TrialState.STOPPED_EARLY}
    assert Job.objects.unfinished().count() == 0
    assert "Not among the best 1/3 after 10 steps: val_loss 0.9." in [trial.message for trial in trials()]


def test_a_trial_that_somebody_releases_goes_on(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    reports(cluster, trials()[0], 0.5, step=10)
    turn(cluster)
    assert trials()[0].state == TrialState.RESTING
    release_job(job_of(trials()[0]), actor=cluster.user())
    turn(cluster, 2)
    assert (trials()[0].state, trials()[0].target) == (TrialState.RUNNING, 1)
    assert not job_of(trials()[0]).held


def test_a_trial_that_its_owner_holds_at_a_rung_stays_held_when_it_is_promoted(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    held, *others = trials()
    hold_job(job_of(held), actor=cluster.user())
    for trial, value in zip((held, *others[:2]), (0.2, 0.3, 0.4), strict=True):
        reports(cluster, trial, value, step=10)
        turn(cluster)
    promoted = trials()[0]
    assert (promoted.state, promoted.target, job_of(promoted).held) == (TrialState.RUNNING, 1, True)


@pytest.mark.thorough
def test_a_sweep_of_1000_trials_ends_with_the_best_of_all(cluster: Lab) -> None:
    sweep = started(cluster, run_cap=1000, at_a_time=100, early_terminate={"min_iter": 10, "max_iter": 270, "eta": 3})
    while sweep.state == Sweep.State.RUNNING:
        for trial in trials(TrialState.RUNNING):
            reports(cluster, trial, (trial.number * 617 % 1000) / 1000, step=10 * 3**trial.target)
            if trial.target == 3:
                ends(trial, cluster)
        turn(cluster)
        sweep.refresh_from_db()
    assert sweep.state == Sweep.State.FINISHED
    assert SweepTrial.objects.count() == Job.objects.count() == 1000
    assert not Job.objects.unfinished().exists()
    best = SweepTrial.objects.filter(state=TrialState.SUCCEEDED).order_by("value").first()
    assert best is not None
    assert best.value == 0


# -- failures and stops ------------------------------------------------------------------------------------------


def test_a_trial_without_a_value_has_failed_and_says_what_to_do(cluster: Lab) -> None:
    started(cluster)
    ends(trials()[0], cluster)
    turn(cluster)
    assert trials()[0].state == TrialState.FAILED
    assert "ended without a value of val_loss" in trials()[0].message


def test_a_metric_that_does_not_come_is_told_while_the_trial_runs(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    Job.objects.filter(pk=trials()[0].job_id).update(step=10)
    turn(cluster)
    said = (
        'It has passed 10 steps without a value of val_loss: report it with progress(step, metrics={"val_loss": ...}).'
    )
    assert [trial.message for trial in trials()] == [said, "", ""]
    reports(cluster, trials()[0], 0.5, step=9)
    turn(cluster)
    assert trials()[0].message == ""


@pytest.mark.parametrize(
    ("limit", "most"),
    [
        (lambda lab: Team.objects.filter(pk=lab.team().pk).update(max_gpus=1), 1),
        (lambda lab: TeamQuota.objects.create(team=lab.team(), gpu_type=a100(), gpus=2, borrowing_limit=0), 2),
        (used_up_budget, 0),
    ],
    ids=["limit of the team", "quota", "budget"],
)
def test_limits_quotas_and_budgets_hold_for_trials(cluster: Lab, limit: Callable[[Lab], object], most: int) -> None:
    limit(cluster)
    started(cluster)
    cluster.decide()
    assert Attempt.objects.live().count() == most
    assert len(trials(TrialState.RUNNING)) == 3, "those beyond wait"
    waiting = Job.objects.queued()
    assert waiting.count() == 3 - most
    assert not waiting.filter(message="").exists()


def test_too_many_failed_trials_stop_the_sweep(cluster: Lab) -> None:
    sweep = started(cluster, max_failed=1)
    for trial in trials()[:2]:
        ends(trial, cluster, Job.State.FAILED)
    turn(cluster)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.STOPPED
    assert sweep.message == "2 trials failed, and max_failed is 1. Trial 1: it ended"
    assert not Job.objects.unfinished().exists()


def test_stop_cancels_open_trials_and_starts_none(cluster: Lab) -> None:
    sweep = started(cluster)
    for _ in range(2):
        stop_sweep(sweep, actor=cluster.user())
    turn(cluster, 2)
    sweep.refresh_from_db()
    assert (sweep.state, sweep.message) == (Sweep.State.STOPPED, "Stopped by ada.")
    assert {trial.state for trial in trials()} == {TrialState.CANCELLED}
    assert len(trials()) == 3
    assert not Job.objects.unfinished().exists()
    delete_sweep(sweep, actor=cluster.user())
    assert Job.objects.count() == 3, "its jobs stay"


def test_a_cancelled_trial_frees_its_place(cluster: Lab) -> None:
    started(cluster)
    cancel_job(job_of(trials()[0]), actor=cluster.user())
    turn(cluster)
    assert [trial.number for trial in trials(TrialState.RUNNING)] == [1, 2, 3]


def test_an_owner_who_has_left_the_team_submits_nothing(cluster: Lab) -> None:
    sweep = started(cluster)
    sweep.team.members.remove(sweep.owner)
    turn(cluster, 2)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.STOPPED
    assert sweep.message == "Its owner, ada, is no longer in the team vision."


# -- exactly once ------------------------------------------------------------------------------------------------


def test_of_two_schedulers_that_have_read_the_same_one_writes(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = admitted_sweep(SWEEP, owner=cluster.user(), now=cluster.now)
    start_sweep(sweep)
    read = [advance._read(sweep.pk) for _ in range(2)]
    cluster.ahead += timedelta(seconds=2)
    with monkeypatch.context() as stale:
        stale.setattr(advance, "_read", lambda _: read.pop())
        for _ in range(2):
            advance._advance(sweep.pk, cluster.now)
    assert Job.objects.count() == len(trials()) == 3


def test_a_login_of_the_owner_that_ends_during_a_turn_leaves_it_to_the_next(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_secret("HF_TOKEN", "x", team=None, actor=cluster.user())
    spec: Any = SWEEP["spec"]
    asked = {**SWEEP, "spec": {**spec, "secrets": ["HF_TOKEN"]}}
    start_sweep(sweep := admitted_sweep(asked, owner=cluster.user(), now=cluster.now))
    read = advance._read(sweep.pk)
    User.objects.update(password=make_password(None))
    with monkeypatch.context() as stale:
        stale.setattr(advance, "_read", lambda _: read)
        advance._advance(sweep.pk, cluster.now)
    assert not Job.objects.exists()
    turn(cluster)
    assert Job.objects.count() == 3


def test_what_fails_halfway_is_undone_and_done_by_the_next_turn(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = admitted_sweep(SWEEP, owner=cluster.user(), now=cluster.now)
    start_sweep(sweep)

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("the server closed the connection")

    with monkeypatch.context() as broken:
        broken.setattr(SweepTrial.objects, "bulk_create", fail)
        with pytest.raises(OperationalError):
            turn(cluster)
    assert not Job.objects.exists()
    turn(cluster)
    assert Job.objects.count() == len(trials()) == 3


@pytest.mark.parametrize("name", ["lr{a}", "x{}", "100%"])
def test_a_name_may_have_braces(cluster: Lab, name: str) -> None:
    sweep = started(cluster, name=name)
    stop_sweep(sweep, actor=cluster.user())
    turn(cluster, 2)
    sweep.refresh_from_db()
    assert sweep.state == Sweep.State.STOPPED
    assert job_of(trials()[0]).message == f"by the sweep {name}: the sweep was stopped"


def test_a_trial_that_has_diverged_is_the_worst_at_its_rung_and_has_failed_at_its_end(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    for trial, value in zip(trials(), (0.3, None, 0.2), strict=True):
        reports(cluster, trial, value, step=10)
    turn(cluster)
    assert [trial.state for trial in trials()[:3]] == [TrialState.RESTING, TrialState.RESTING, TrialState.RUNNING]
    release_job(job_of(trials()[1]), actor=cluster.user())
    turn(cluster)
    ends(trials()[1], cluster)
    turn(cluster)
    assert trials()[1].state == TrialState.FAILED
    assert trials()[1].message == "Its val_loss was no finite number at its end: the training has diverged."


def test_a_program_that_ends_well_when_it_is_held_cannot_go_on_and_is_told_how(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    reports(cluster, trials()[0], 0.5, step=10)
    turn(cluster)
    ends(trials()[0], cluster)
    turn(cluster)
    assert trials()[0].state == TrialState.STOPPED_EARLY
    assert "exits with 75" in trials()[0].message


def test_a_trial_that_comes_to_its_end_while_it_is_being_held_has_succeeded(cluster: Lab) -> None:
    started(cluster, early_terminate=ASHA)
    reports(cluster, trials()[0], 0.5, step=10)
    turn(cluster)
    assert trials()[0].state == TrialState.RESTING
    reports(cluster, trials()[0], 0.25, step=90)
    Job.objects.filter(pk=trials()[0].job_id).update(step=90)
    ends(trials()[0], cluster)
    turn(cluster)
    assert (trials()[0].state, trials()[0].value) == (TrialState.SUCCEEDED, 0.25)


def test_of_few_points_no_more_trials_are_made_than_there_are(cluster: Lab) -> None:
    few = {"method": "bayes", "parameters": {"width": {"values": [64, 128]}, "depth": {"min": 1, "max": 3}}}
    asked = {name: value for name, value in (SWEEP | few).items() if name != "run_cap"}
    assert admitted_sweep(asked, owner=cluster.user(), now=cluster.now).run_cap == 6


def test_bounds_that_are_whole_numbers_search_between_them_where_the_distribution_says_so(cluster: Lab) -> None:
    started(cluster, parameters={"dropout": {"min": 0, "max": 1, "distribution": "uniform"}}, run_cap=3)
    assert all(trial.params["dropout"] not in (0, 1) for trial in trials())


# -- on a real engine --------------------------------------------------------------------------------------------

TRAINING = """
import json, os, signal, sys, time
from pathlib import Path
sys.stdout.reconfigure(line_buffering=True)
lr = json.loads(os.environ["MOTLEY_PARAMS"])["lr"]
saved = Path(os.environ["MOTLEY_CHECKPOINT_DIR"]) / "step"
step = int(saved.read_text()) if saved.exists() else 0
def stop(*_):
    saved.write_text(str(step))
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
while step < 40:
    step += 1
    with open(os.environ["MOTLEY_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step, "metrics": {"val_loss": lr / step}}) + "\\n")
    time.sleep(0.05 + 2 * (lr - 0.1))  # the worse, the slower: it does not end before it is decided on
"""


def test_trials_train_rest_at_a_rung_and_the_best_ends(cluster: Lab) -> None:
    """Real processes: values at rungs are those of their steps, and a trial that was held goes on where it was."""
    cluster.policy(round_s=1)
    sweep = started(
        cluster,
        method="grid",
        run_cap=4,
        at_a_time=4,
        early_terminate={"min_iter": 10, "max_iter": 40, "eta": 2},
        parameters={"lr": {"values": [0.4, 0.2, 0.1, 0.3]}},
        spec={"command": [sys.executable, "-c", TRAINING], "gpus": 1, "checkpoint": {"restore_seconds": 0}},
    )

    def finished() -> bool:
        sweep.refresh_from_db()
        return sweep.state == Sweep.State.FINISHED

    cluster.until(finished)
    assert trials()[2].state == TrialState.SUCCEEDED
    for trial in trials():
        lr, rungs = trial.params["lr"], (10, 20, 40)
        assert trial.values == [lr / step for step in rungs[: len(trial.values)]]
    assert trials()[2].value == 0.1 / 40
    assert trials(TrialState.STOPPED_EARLY)


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"parameters": {}}, "/parameters", "Give at least one parameter"),
        ({"parameters": {"lr": {"min": 1, "max": 0}}}, "/parameters/lr", "must be less than max"),
        ({"parameters": {"lr": {"min": 0.1}}}, "/parameters/lr", "max is missing"),
        ({"parameters": {"lr": {"min": "a", "max": 1}}}, "/parameters/lr", "min: 'a' is not a number"),
        ({"parameters": {"lr": {"value": 1, "valuess": 2}}}, "/parameters/lr", "Did you mean 'values'?"),
        ({"parameters": {"lr": {"min": 1, "max": 2, "distribution": "normal"}}}, "/parameters/lr", "is not one of"),
        (
            {"parameters": {"lr": {"min": 0, "max": 1, "distribution": "log_uniform_values"}}},
            "/parameters/lr",
            "than 0",
        ),
        ({"parameters": {"lr": {"value": 1, "distribution": ["x"]}}}, "/parameters/lr", "is not one of"),
        ({"parameters": {"lr": {"value": 10**400}}}, "/parameters/lr", "neither a number"),
        ({"parameters": {"lr": {"value": "a\0b"}}}, "/parameters/lr", "neither a number"),
        (
            {"method": "grid", "parameters": {"a": {"min": 0, "max": 1, "q": 1e-9}}},
            "/parameters",
            "choose method: random",
        ),
        ({"method": "bayes", "parameters": {"a": {"values": [*range(400)]}}}, "/parameters", "choose method: random"),
        ({"spec": {"command": "train --lr '{lr}'", "gpus": 1}}, "/spec/command", "outside of quotes"),
        ({"spec": {"command": 'bash -c "train ${args}"', "gpus": 1}}, "/spec/command", "outside of quotes"),
        ({"parameters": {"lr": {"values": []}}}, "/parameters/lr", "at least one value"),
        ({"parameters": {"lr": {"values": [1, 1]}}}, "/parameters/lr", "twice"),
        ({"parameters": {"l r": {"value": 1}}}, "/parameters/l r", "A name is"),
        ({"parameters": {"lr": 3}}, "/parameters/lr", "3 is no parameter"),
        ({"method": "grid"}, "/parameters/lr", "A grid needs its values"),
        ({"method": "hyperband"}, "/method", "is not one of grid, random, bayes, population"),
        ({"metric": {"name": "a:b"}}, "/metric/name", "The name of a metric"),
        ({"metric": {"name": "loss", "goal": "min"}}, "/metric/goal", "is not one of minimize, maximize"),
        ({"early_terminate": {"min_iter": 9, "max_iter": 3}}, "/early_terminate/min_iter", "greater than max_iter"),
        ({"early_terminate": {"min_iter": 1}}, "/early_terminate/max_iter", "required"),
        (
            {"parameters": {"a": {"values": [1, 2]}, "b": {"min": 1, "max": 3}}},
            "/run_cap",
            "only 6 combinations: set run_cap to at most 6",
        ),
        ({"spec": {"command": ["${program}"], "gpus": 1}}, "/program", "give program, as train.py"),
        ({"spec": {"command": ["a", "${args_json}"], "gpus": 1}}, "/spec/command", "${args_json} is not filled in"),
        ({"run_cap": 0}, "/run_cap", "greater than or equal to 1"),
        ({"runcap": 5}, "/runcap", "Did you mean 'run_cap'?"),
        ({"spec": {"command": "x", "gpus": 1, "array": "0-3"}}, "/spec/array", "leave array out"),
        ({"spec": {"gpus": 1}}, "/spec/command", "required"),
        ({"spec": {"command": "x", "gpus": 99}}, "/spec/gpus", ""),
        ({"spec": "train"}, "/spec", "an object"),
    ],
)
def test_bad_input_names_the_field_and_the_remedy(
    cluster: Lab, changes: dict[str, Any], pointer: str, words: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        admitted_sweep({**SWEEP, **changes}, owner=cluster.user(), now=cluster.now)
    faults = {fault["pointer"]: fault["detail"] for fault in refused.value.faults}
    assert pointer in faults, faults
    assert words in faults[pointer]


def test_a_name_is_taken_once_in_a_team(cluster: Lab) -> None:
    started(cluster)
    with pytest.raises(InvalidSpec, match="has a sweep 'search' already"):
        started(cluster)


def test_numbers_as_yaml_writes_them_are_numbers(cluster: Lab) -> None:
    """YAML 1.1 reads 1e-5 as a text."""
    parameters = {"lr": {"min": "1e-5", "max": "1e-1", "distribution": "log_uniform_values"}, "b": {"values": ["1e-3"]}}
    started(cluster, parameters=parameters)
    assert 1e-5 <= trials()[0].params["lr"] <= 1e-1
    assert trials()[0].params["b"] == 0.001
