"""A sweep on a live service whose scheduler is killed again and again: no trial is lost or run twice."""

import sys
from typing import Any

import pytest

from motley_client.client import Client
from tests.deployment import kill_all, wait_for
from tests.service.running_service import Service

TRAINING = """
import os, sys
from motley_client.training import EXIT_REQUEUE, checkpoint_dir, progress, save_atomically, should_stop, trial_params
saved = checkpoint_dir() / "step"
step, lr = int(saved.read_text()) if saved.exists() else 0, trial_params()["lr"]
while step < 90 and not should_stop():
    step += 1
    with open("trace.txt", "a") as file:
        file.write(f"{step}\\n")
    progress(step, metrics={"error": abs(lr - 0.3) + 1 / step})
    save_atomically(saved, lambda file: file.write(str(step).encode()))
sys.exit(0 if step == 90 else EXIT_REQUEUE)
"""
DIGITS = """
import json, sys, warnings
from motley_client.training import EXIT_REQUEUE, checkpoint_dir, progress, save_atomically, should_stop, trial_params
import joblib, numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
X, y = load_digits(return_X_y=True)
X, held_X, y, held_y = X[:1200] / 16, X[1200:] / 16, y[:1200], y[1200:]
saved = checkpoint_dir() / "model"
lr, alpha = trial_params()["lr"], trial_params()["alpha"]
fresh = SGDClassifier(learning_rate="constant", eta0=lr, alpha=alpha, random_state=0)
step, model = joblib.load(saved) if saved.exists() else (0, fresh)
while step < 90 and not should_stop():
    batch = np.arange(step * 60, step * 60 + 60) % len(X)
    model.partial_fit(X[batch], y[batch], classes=np.arange(10))
    step += 1
    with open("trace.txt", "a") as file:
        file.write(f"{step}\\n")
    progress(step, metrics={"error": 1 - model.score(held_X, held_y)})
    save_atomically(saved, lambda file: joblib.dump((step, model), file))
sys.exit(0 if step == 90 else EXIT_REQUEUE)
"""
LR = {"lr": {"min": 0.0001, "max": 1.0, "distribution": "log_uniform_values"}}
DEEP = {**LR, "alpha": {"min": 1e-6, "max": 1e-2, "distribution": "log_uniform_values"}}


@pytest.mark.parametrize(
    ("training", "parameters", "trials"),
    [pytest.param(TRAINING, LR, 5, id="5"), pytest.param(DIGITS, DEEP, 12, id="12", marks=pytest.mark.thorough)],
)
def test_trials_run_once_and_come_to_the_same_results_though_the_scheduler_is_killed(
    four_gpus: Service, training: str, parameters: dict[str, Any], trials: int
) -> None:
    sweep = {
        "method": "random",
        "metric": {"name": "error"},
        "parameters": parameters,
        "run_cap": trials,
        "at_a_time": 4,
        "seed": 7,
        "spec": {"command": [sys.executable, "-c", training], "gpus": 1, "team": "vision"},
    }
    undisturbed = four_gpus.client.start_sweep(sweep | {"name": f"undisturbed-{trials}"})["id"]
    wait_for("it has finished", lambda: _state(four_gpus.client, undisturbed) == "finished")

    disturbed = four_gpus.client.start_sweep(
        sweep | {"name": f"disturbed-{trials}", "early_terminate": {"min_iter": 10, "max_iter": 90, "eta": 3}}
    )["id"]
    for share in (0.2, 0.5, 0.8):
        wait_for("trials have started", lambda n=share * trials: _started(four_gpus.client, disturbed) >= n)
        kill_all(wait_for("a scheduler works", four_gpus.schedulers))
    wait_for("it has finished", lambda: _state(four_gpus.client, disturbed) == "finished")

    expected = {row["number"]: row for row in four_gpus.client.trials(undisturbed)}
    found = list(four_gpus.client.trials(disturbed))
    assert [row["number"] for row in found] == sorted(expected) == list(range(trials))
    assert len({row["job"] for row in found}) == trials
    assert four_gpus.overlaps() == 0
    for row in found:
        assert row["params"] == expected[row["number"]]["params"]
        if row["state"] == "succeeded":
            assert row["value"] == expected[row["number"]]["value"]
            assert four_gpus.trace(row["job"]) == list(range(1, 91)), "no step is lost or repeated"
    best = four_gpus.client.sweep(disturbed)["best"]
    assert best is not None
    assert best["value"] == min(row["value"] or 0 for row in found if row["state"] == "succeeded")


@pytest.mark.thorough
def test_a_population_loses_and_repeats_nothing_though_the_scheduler_is_killed(four_gpus: Service) -> None:
    slow = TRAINING.replace("    step += 1\n", "    step += 1\n    time.sleep(0.1)\n").replace(
        "import os", "import time, os"
    )
    sweep = four_gpus.client.start_sweep(
        {
            "name": "population",
            "method": "population",
            "metric": {"name": "error"},
            "parameters": LR,
            "population": {"size": 4, "interval": 30, "max_iter": 90},
            "seed": 7,
            "spec": {"command": [sys.executable, "-c", slow], "gpus": 1, "team": "vision"},
        }
    )["id"]
    for trials in (4, 5):
        wait_for("trials have started", lambda n=trials: _started(four_gpus.client, sweep) >= n)
        kill_all(wait_for("a scheduler works", four_gpus.schedulers))
    wait_for("it has finished", lambda: _state(four_gpus.client, sweep) == "finished")
    found = list(four_gpus.client.trials(sweep))
    assert four_gpus.overlaps() == 0
    assert len({row["job"] for row in found}) == len(found) > 4
    copies = [row for row in found if row["source"] is not None]
    assert len({row["replaces"] for row in copies}) == len(copies) == len(found) - 4
    assert {row["state"] for row in found} <= {"succeeded", "replaced"}
    for row in found:
        trace = four_gpus.trace(row["job"])
        last = 90 if row["state"] == "succeeded" else trace[-1]
        assert trace == list(range(trace[0], last + 1)), "no step is lost or repeated"
        assert (trace[0] > 30) == (row["source"] is not None), "it goes on from where its source was"


def _started(client: Client, sweep: int) -> int:
    return sum(client.sweep(sweep)["trials"].values())


def _state(client: Client, sweep: int) -> str:
    return client.sweep(sweep)["state"]
