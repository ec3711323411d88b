"""Experiments of Determined: https://docs.determined.ai/latest/reference/training/experiment-config-reference.html."""

from collections.abc import Mapping
from typing import Any

from motley_client.spec import SpecError
from motley_command.convert.determined_search import SINGLE, sweep_of
from motley_command.convert.fields import Fields, Translation, env_of, image_of, number, of_gpus, text_of, whole

REMEDIES = {
    "resources.resource_pool": "Motley chooses the nodes; for GPU types: gpu_types",
    "resources.priority": "the order of jobs is that of the policy; see weight",
    "resources.max_slots": "the tasks of an array that run at a time: array: 0-99%10",
    "checkpoint_storage": "checkpoints are files in $MOTLEY_CHECKPOINT_DIR, which every attempt finds",
    "bind_mounts": "an administrator adds storage, and the job names it: mounts",
    "workspace": "the team of the job: team",
    "project": "tags",
    "description": "motley comment JOB writes a note on the job",
    "records_per_epoch": "",
    "min_validation_period": "the training itself says when it validates",
    "min_checkpoint_period": "the training itself says when it saves",
    "data": "pass it in the command",
    "profiling": "GPU use and progress are measured: motley show JOB",
    "environment.force_pull_image": "",
}


def is_experiment(document: Mapping[str, Any]) -> bool:
    return "command" not in document and "entrypoint" in document


def translated(document: Mapping[str, Any]) -> Translation:
    """The job of an experiment with one trial, whose hyperparameters become variables; with several it is a sweep."""
    experiment = Fields(document, REMEDIES)
    notes = ["code that reads its context from Determined's master (det.core, Trial classes) runs on Determined alone"]
    searcher, hyperparameters = (experiment.within(name) for name in ("searcher", "hyperparameters"))
    entrypoint = experiment.take("entrypoint")
    is_list = isinstance(entrypoint, list) and entrypoint
    command = [str(word) for word in entrypoint] if is_list else text_of(entrypoint, "entrypoint")
    resources, environment = experiment.within("resources"), experiment.within("environment")
    spec: dict[str, Any] = {"name": str(experiment.take("name", "experiment")), "command": command}
    spec |= of_gpus(whole(resources.take("slots_per_trial", 1), "resources.slots_per_trial", least=0), [], notes)
    if is_search := searcher.get("name", SINGLE) != SINGLE:
        spec |= sweep_of(searcher, hyperparameters.rest(), notes)
    spec |= _environment(environment, {} if is_search else hyperparameters.rest(), notes)
    if image := environment.take("image"):
        chosen = image.get("cuda") or image.get("gpu") if isinstance(image, Mapping) else image
        spec["image"] = image_of(text_of(chosen, "environment.image.cuda"))
    spec["retries"] = whole(experiment.take("max_restarts", 5), "max_restarts", least=0)
    if labels := experiment.take("labels"):
        spec["tags"] = {text_of(label, "labels"): "" for label in (labels if isinstance(labels, list) else [labels])}
    if weight := resources.take("weight"):
        spec["weight"] = number(weight, "resources.weight")
    rest = (fields.not_honoured() for fields in (resources, environment, experiment))
    return Translation(spec, [*notes, *(note for fields in rest for note in fields)])


def _environment(environment: Fields, hyperparameters: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    given = environment.take("environment_variables", {})
    if isinstance(given, Mapping) and given.keys() & {"cuda", "cpu", "rocm"}:
        given = given.get("cuda") or []
    env, unset = env_of(given, "environment.environment_variables")
    if unset:
        notes.append(f"environment_variables: {', '.join(unset)} has no value: give it by --env NAME=VALUE")
    constants = {str(name).upper(): _constant(name, value) for name, value in hyperparameters.items()}
    if constants:
        notes.append(f"hyperparameters are in the variables {', '.join(constants)}")
    env = {name: str(value) for name, value in constants.items()} | env
    return {"env": env} if env else {}


def _constant(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("type") == "const":
        return value.get("val")
    if isinstance(value, Mapping | list):
        raise SpecError(f"hyperparameters.{name}: an experiment with one trial has constants: write its value.")
    return value
