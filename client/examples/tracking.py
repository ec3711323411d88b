"""One run in Weights & Biases or MLflow for all attempts of a job. For rank 0."""

import os
from collections.abc import Callable

from motley_client.training import job_id, once_per_job

Log = Callable[[int, float], None]


def name_run(tracker: str | None) -> None:
    """Set the variables by which the trackers, and frameworks that use them, find the run of this job."""
    if tracker == "wandb" and (job := job_id()):
        os.environ |= {"WANDB_RUN_ID": job, "WANDB_RESUME": "allow"}
    if tracker == "mlflow":
        os.environ["MLFLOW_RUN_ID"] = once_per_job("mlflow_run_id", _new_mlflow_run)


def start(tracker: str | None) -> Log:
    """Open the run of this job; the function returned logs the loss of a step."""
    name_run(tracker)
    if tracker == "wandb":
        import wandb

        run = wandb.init(project=os.environ.get("WANDB_PROJECT", "motley"))
        return lambda step, loss: run.log({"loss": loss}, step=step)
    if tracker == "mlflow":
        import mlflow

        mlflow.start_run(run_id=os.environ["MLFLOW_RUN_ID"])
        return lambda step, loss: mlflow.log_metric("loss", loss, step=step)
    return nothing


def nothing(step: int, loss: float) -> None:
    """Log nothing: another rank, or no tracker."""


def _new_mlflow_run() -> str:
    """A run in the experiment that MLFLOW_EXPERIMENT_NAME names."""
    from mlflow import MlflowClient, set_experiment

    experiment = set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "motley"))
    tags = {"motley.job": job_id() or ""}
    return MlflowClient().create_run(experiment.experiment_id, tags=tags).info.run_id
