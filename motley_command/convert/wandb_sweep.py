"""Sweeps of W&B, each run a task of an array: https://docs.wandb.ai/guides/sweeps/sweep-config-keys."""

from collections.abc import Mapping
from math import prod
from typing import Any

from motley_client.spec import SpecError
from motley_command.convert.fields import Translation, whole

ID = "WANDB_SWEEP_ID"


def is_sweep(document: Mapping[str, Any]) -> bool:
    return {"method", "parameters"} <= document.keys() and document["method"] in ("grid", "random", "bayes")


def translated(document: Mapping[str, Any]) -> Translation:
    """An array in which each task is one run of the sweep; W&B's server chooses its parameters."""
    cap, points = document.get("run_cap"), _points(document["parameters"]) if document["method"] == "grid" else 0
    if cap is None and not points:
        raise SpecError("run_cap: say how many runs there are to be at most, as a job array has an end.")
    most = points if cap is None else whole(cap, "run_cap")
    runs = min(most, points) if points else most
    spec = {
        "name": str(document.get("name") or document.get("program") or "sweep").removesuffix(".py"),
        "command": f'wandb agent --count 1 "${ID}"',
        "gpus": 1,
        "array": f"0-{runs - 1}",
        "secrets": ["WANDB_API_KEY"],
    }
    notes = [
        f"make the sweep by `wandb sweep FILE`, and give its id: --env {ID}=ENTITY/PROJECT/ID",
        "the key of W&B is a secret: motley secret set WANDB_API_KEY",
        "each run has 1 GPU: --gpus; its program is uploaded by --code FOLDER",
    ]
    return Translation(spec, notes)


def _points(parameters: Any) -> int:
    """Number of points of a grid; 0 where it is not a product of lists of values."""
    if not isinstance(parameters, Mapping):
        raise SpecError("parameters: expected a mapping.")
    return prod(_values(one) for one in parameters.values())


def _values(parameter: Any) -> int:
    if not isinstance(parameter, Mapping):
        return 0
    if "parameters" in parameter:
        return _points(parameter["parameters"])
    values = parameter.get("values")
    return len(values) if isinstance(values, list) else int("value" in parameter)
