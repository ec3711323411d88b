"""Job files of SkyPilot, dstack, Determined and W&B: recognised, and converted to jobs that the service takes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs_app.submission.conversion import parse_spec
from motley_client.spec import SpecError, read_specs
from motley_command.convert import format_of
from scheduler_app.sweeps.parameters import space_of
from sweeps.space import Choice, Range
from tests.motley_command import Motley

SKYPILOT = """
name: train
num_nodes: 2
resources:
  accelerators: A100:8
  cloud: aws
  cpus: 32+
  memory: 256
  use_spot: true
envs: {MODEL: bert, HF_TOKEN: null}
workdir: .
setup: pip install -r requirements.txt
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --node_rank ${SKYPILOT_NODE_RANK} train.py
"""
DSTACK = """
type: task
name: train
nodes: 2
env: [MODEL=bert, HF_TOKEN]
commands:
  - pip install -r requirements.txt
  - torchrun --node-rank $DSTACK_NODE_RANK --master-addr $DSTACK_MASTER_NODE_IP train.py
resources: {gpu: "A100:40GB:4", cpu: 16.., memory: 64GB.., shm_size: 8GB}
image: pytorch/pytorch
max_duration: 2h
spot_policy: auto
"""
DETERMINED = """
name: mnist
entrypoint: [python3, train.py]
hyperparameters: {lr: 0.1, width: {type: const, val: 64}}
searcher: {name: single, metric: loss, max_length: {batches: 100}}
resources: {slots_per_trial: 4, resource_pool: a100}
environment: {environment_variables: [A=1], image: {cuda: determinedai/torch}}
max_restarts: 2
"""
WANDB = """
program: train.py
method: grid
metric: {name: loss, goal: minimize}
parameters: {lr: {values: [0.1, 0.01, 0.001]}, width: {values: [32, 64]}}
"""
FILES = {"SkyPilot": SKYPILOT, "dstack": DSTACK, "Determined": DETERMINED, "W&B": WANDB}


def converted(text: str) -> tuple[dict[str, Any], list[str]]:
    document = yaml.safe_load(text)
    kind = format_of(document)
    assert kind is not None
    made = kind.translated(document)
    return made.spec, made.notes


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            SKYPILOT,
            {
                "name": "train",
                "gpus": 16,
                "gpu_types": ["a100"],
                "cpus_per_gpu": 4,
                "memory_per_gpu": "32768MiB",
                "env": {"MODEL": "bert"},
                "code": ".",
            },
        ),
        (
            DSTACK,
            {
                "name": "train",
                "gpus": 8,
                "gpu_types": ["a100"],
                "gpu_memory": "40960MiB",
                "cpus_per_gpu": 4,
                "memory_per_gpu": "16384MiB",
                "env": {"MODEL": "bert"},
                "image": "docker.io/pytorch/pytorch",
                "time_limit": "2h",
            },
        ),
        (
            DETERMINED,
            {
                "name": "mnist",
                "command": ["python3", "train.py"],
                "gpus": 4,
                "env": {"LR": "0.1", "WIDTH": "64", "A": "1"},
                "image": "docker.io/determinedai/torch",
                "retries": 2,
            },
        ),
        (WANDB, {"name": "train", "array": "0-5", "gpus": 1, "secrets": ["WANDB_API_KEY"]}),
    ],
    ids=[*FILES],
)
def test_fields_are_translated(text: str, fields: dict[str, Any]) -> None:
    spec, _ = converted(text)
    assert {name: spec.get(name) for name in fields} == fields
    parse_spec({name: value for name, value in spec.items() if name != "code"})


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("run: a\nresources: {accelerators: A100}", {"gpus": 1, "gpu_types": ["a100"]}),
        ("run: a\nresources: {accelerators: [T4:2, V100:2]}", {"gpus": 2, "gpu_types": ["t4", "v100"]}),
        ("run: a\nresources: {accelerators: {A100-80GB: 4}}", {"gpus": 4, "gpu_types": ["a100-80gb"]}),
        ("run: a\nresources: {accelerators: null}", {"gpus": 1}),
        ("type: task\ncommands: [a]\nresources: {gpu: A100}", {"gpus": 1, "gpu_types": ["a100"]}),
        ("type: task\ncommands: [a]\nresources: {gpu: 'A100:80GB'}", {"gpus": 1, "gpu_memory": "81920MiB"}),
        ("type: task\ncommands: [a]\nresources: {gpu: '24GB:2'}", {"gpus": 2, "gpu_memory": "24576MiB"}),
        ("type: task\ncommands: [a]\nresources: {gpu: {count: {min: 2}}}", {"gpus": 2}),
        ("method: grid\nparameters: {a: {parameters: {b: {values: [1, 2]}}}}", {"array": "0-1"}),
        ("method: grid\nparameters: {a: {values: [1, 2]}}\nrun_cap: 100", {"array": "0-1"}),
    ],
)
def test_sizes_are_counted_right(text: str, fields: dict[str, Any]) -> None:
    spec, _ = converted(text)
    assert {name: spec.get(name) for name in fields} == fields


SEARCH = """
name: mnist
entrypoint: python train.py --lr {lr}
searcher: {name: adaptive_asha, metric: accuracy, smaller_is_better: false, max_trials: 64, max_length: {batches: 2048}}
hyperparameters:
  lr: {type: log, minval: -4, maxval: -1}
  width: {type: categorical, vals: [64, 128]}
  optimizer: {name: adam, momentum: {type: double, minval: 0.5, maxval: 0.9}}
  layers: {type: int, minval: 1, maxval: 4}
"""


def test_a_search_of_determined_is_a_sweep_that_motley_takes() -> None:
    sweep, notes = converted(SEARCH)
    assert {name: sweep[name] for name in ("method", "metric", "early_terminate", "run_cap", "at_a_time")} == {
        "method": "random",
        "metric": {"name": "accuracy", "goal": "maximize"},
        "early_terminate": {"min_iter": 8, "max_iter": 2048, "eta": 4},
        "run_cap": 64,
        "at_a_time": 16,
    }
    assert space_of(sweep["parameters"]) == {
        "lr": Range(1e-4, 1e-1, log=True),
        "width": Choice((64, 128)),
        "optimizer.name": Choice(("adam",)),
        "optimizer.momentum": Range(0.5, 0.9),
        "layers": Range(1, 4, is_integer=True),
    }
    assert any("there is one bracket" in note for note in notes)


def test_a_grid_of_determined_has_its_points() -> None:
    axes = "a: {type: log, minval: -2, maxval: 0, count: 3}, b: {type: int, minval: 1, maxval: 3}, c: 7"
    sweep, _ = converted(f"entrypoint: a\nsearcher: {{name: grid, metric: loss}}\nhyperparameters: {{{axes}}}")
    parameters = sweep["parameters"]
    assert parameters["a"]["values"] == pytest.approx([0.01, 0.1, 1])
    assert (parameters["b"], parameters["c"]) == ({"values": [1, 2, 3]}, {"value": 7})
    assert "run_cap" not in sweep


def test_variables_of_the_other_system_are_set_from_motleys() -> None:
    assert converted(SKYPILOT)[0]["command"].splitlines()[:3] == [
        'export SKYPILOT_NODE_RANK="$MOTLEY_NODE_RANK"',
        'export SKYPILOT_NUM_NODES="$MOTLEY_NUM_NODES"',
        "pip install -r requirements.txt",
    ]
    assert 'export DSTACK_MASTER_NODE_IP="$MASTER_ADDR"' in converted(DSTACK)[0]["command"]


def test_what_is_not_honoured_is_named_with_its_replacement() -> None:
    notes = converted(SKYPILOT)[1]
    assert "resources.cloud is not honoured: Motley chooses the nodes; for GPU types: gpu_types" in notes
    assert any(note.startswith("envs: HF_TOKEN has no value") for note in notes)
    assert any(note.startswith("resources.use_spot is not honoured") for note in notes)
    assert any(note.startswith("resources.shm_size is not honoured") for note in converted(DSTACK)[1])
    assert any(note.startswith("resources.resource_pool is not honoured") for note in converted(DETERMINED)[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run: a\nresources: {accelerators: {A100: 1, V100: 2}}", "same number of GPUs on each type"),
        ("run: echo $SKYPILOT_NODE_IPS", "MASTER_ADDR"),
        ("run: echo $SKYPILOT_CLUSTER_INFO", "SKYPILOT_CLUSTER_INFO"),
        ("run: a\nservice: {readiness_probe: /}", "serves no model"),
        ("run: a\nresources: {cpus: many}", "is not a number of CPUs"),
        ("type: dev-environment\nide: vscode", "Motley runs tasks"),
        ("type: task\nimage: a", "a job needs a command"),
        ("entrypoint: a\nsearcher: {name: random, max_trials: 3}", "searcher.metric"),
        ("entrypoint: a\nsearcher: {name: random, metric: loss}", "searcher.max_trials"),
        ("entrypoint: a\nsearcher: {name: custom, metric: loss}", "searcher.name: 'custom' is none of single, random"),
        ("entrypoint: a\nsearcher: {name: adaptive_asha, metric: loss, max_trials: 3}", "searcher.max_length"),
        (
            "entrypoint: a\nsearcher: {name: grid, metric: a}\nhyperparameters: {b: {type: log, minval: 1, maxval: 2}}",
            "hyperparameters.b.count",
        ),
        ("entrypoint: a\nsearcher: {name: grid, metric: a}\nhyperparameters: {b: {type: int, minval: 1}}", "b.maxval"),
        ("entrypoint: a\nhyperparameters: {lr: {type: log, minval: 1}}", "write its value"),
        ("method: bayes\nparameters: {lr: {min: 0}}", "run_cap"),
        ("method: random\nparameters: {lr: {min: 0}}\nrun_cap: -1", "run_cap"),
        ("method: grid\nparameters: {lr: {min: 1, max: 5}}", "run_cap"),
        ("method: grid\nparameters: [a]", "parameters"),
        ("run: a\nresources: {any_of: [{accelerators: A100:8}]}", "any_of"),
        ("run: a\nresources: {accelerators: tpu-v3-8}", "resources.accelerators"),
        ("run: a\nresources: {accelerators: true}", "resources.accelerators"),
        ("run: a\nresources: {accelerators: []}", "resources.accelerators"),
        ("run: a\nresources: {accelerators: {A100: 0}}", "resources.accelerators"),
        ("run: a\nresources: {labels: [a]}", "resources.labels"),
        ("run: a\nresources: [a]", "resources"),
        ("run: a\nnum_nodes: -2", "num_nodes"),
        ("run: a\nnum_nodes: 1.5", "num_nodes"),
        ("run: a\nenvs: 5", "envs"),
        ("run: null", "run"),
        ("run: [a, b]", "run"),
        ("type: task\ncommands: python x.py", "commands"),
        ("type: task\ncommands: 5", "commands"),
        ("type: task\ncommands: [a]\nnodes: x", "nodes"),
        ("type: task\ncommands: [a]\nresources: {gpu: {name: 5, count: x}}", "resources.gpu.count"),
        ("entrypoint: null", "entrypoint"),
        ("entrypoint: a\nsearcher: single", "searcher"),
        ("entrypoint: a\nresources: {slots_per_trial: -1}", "resources.slots_per_trial"),
        ("entrypoint: a\nresources: {weight: x}", "resources.weight"),
        ("entrypoint: a\nmax_restarts: x", "max_restarts"),
        ("entrypoint: a\nlabels: 5", "labels"),
        ("entrypoint: a\nhyperparameters: [a]", "hyperparameters"),
        ("entrypoint: a\nenvironment: {image: {cpu: a}}", "environment.image"),
    ],
)
def test_what_would_be_another_job_is_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=r".") as refused:
        converted(text)
    assert words in str(refused.value)


@pytest.mark.parametrize("document", [{"name": "a", "command": "b", "gpus": 1}, {"x": 1}, [1], None, {1: 2}, "run"])
def test_other_documents_are_not_taken_for_one(document: Any) -> None:
    assert format_of(document) is None


@pytest.mark.parametrize("name", FILES)
def test_submit_recognises_the_file_and_names_the_command(motley: Motley, tmp_path: Path, name: str) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(FILES[name])
    refused = motley("submit", str(file))
    assert (refused.exit_code, f"motley convert {file}" in refused.stderr, name in refused.stderr) == (2, True, True)
    made = motley("convert", str(file))
    assert (made.exit_code, yaml.safe_load(made.stdout)["name"]) == (0, {"Determined": "mnist"}.get(name, "train"))


def test_a_batch_script_is_converted_as_well(motley: Motley, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text("#!/bin/sh\n#SBATCH --gres=gpu:2\npython train.py\n")
    spec = yaml.safe_load(motley("convert", str(file)).stdout)
    assert (spec["gpus"], spec["command"][2]) == (2, file.read_text())
    file.write_text("name: a\n")
    assert "is neither a SkyPilot task" in motley("convert", str(file)).stderr


def test_job_files_may_have_anchors_and_have_slashes_in_paths(motley: Motley, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("x-base: &base {gpus: 1, command: 'true'}\njobs:\n- {<<: *base, name: a}\n- {<<: *base, name: b}\n")
    assert [spec["name"] for spec in read_specs(file.read_text(), "job.yaml")] == ["a", "b"]
    file.write_text("name: a\ncommand: 'true'\ngpus: 1\ncode: .\\src\n")
    refused = motley("submit", str(file))
    assert (refused.exit_code, "paths are written with /" in refused.stderr) == (2, True)
