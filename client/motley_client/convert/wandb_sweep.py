"""Sweeps of W&B, each run a task of an array: https://docs.wandb.ai/guides/sweeps/sweep-config-keys."""

from collections.abc import Mapping
from math import prod
from typing import Any

from motley_client.convert.fields import Translation
from motley_client.spec import SpecError

ID = "WANDB_SWEEP_ID"


def is_sweep(document: Mapping[str, Any]) -> bool:
    return {"method", "parameters"} <= document.keys() and document["method"] in ("grid", "random", "bayes")


def translated(document: Mapping[str, Any]) -> Translation:
    """An array in which each task is one run of the sweep; W&B's server chooses its parameters."""
    runs = document.get("run_cap") or _points(document)
    if not runs:
        raise SpecError("run_cap: say how many runs there are to be at most, as a job array has an end.")
    spec = {
        "name": str(document.get("name") or document.get("program") or "sweep").removesuffix(".py"),
        "command": f'wandb agent --count 1 "${ID}"',
        "gpus": 1,
        "array": f"0-{int(runs) - 1}",
        "secrets": ["WANDB_API_KEY"],
    }
    notes = [
        f"make the sweep by `wandb sweep FILE`, and give its id: --env {ID}=ENTITY/PROJECT/ID",
        "the key of W&B is a secret: motley secret set WANDB_API_KEY",
        "each run has 1 GPU: --gpus; its program is uploaded by --code FOLDER",
    ]
    return Translation(spec, notes)


def _points(document: Mapping[str, Any]) -> int:
    """Number of points of a grid; 0 where the search has no end."""
    parameters = document["parameters"]
    if document["method"] != "grid" or not isinstance(parameters, Mapping):
        return 0
    return prod(len(one.get("values") or [0]) for one in parameters.values() if isinstance(one, Mapping))
