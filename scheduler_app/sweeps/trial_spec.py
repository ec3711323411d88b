"""Spec of a trial's job: the sweep's spec with the values of its hyperparameters. Pure."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from shlex import quote
from typing import Any

from jobs_app.errors import InvalidSpec
from jobs_app.models import Sweep
from jobs_app.submission.shell_quotes import first_within_quotes
from sweeps.population import marks
from sweeps.space import Params, Value
from sweeps.successive_halving import Halving, halving

ARGS, PLAIN_ARGS = "${args}", "${args_no_hyphens}"
"""All values as --lr=0.1, or as lr=0.1, which Hydra takes."""
SWEEP_TAG = "sweep"
USUAL_COMMAND = ["${interpreter}", "${program}", ARGS]
"""Where a file has a program and no command."""
WANDB_WORD = re.compile(r"\$\{([a-z_]+)(:[^}]*)?\}")
NEEDS_PROGRAM = "The command has ${program}: give program, as train.py, or write it in the command."


def spec_of_trial(sweep: Sweep, number: int, params: Params, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with command, name, tag and environment of this trial."""
    tags, env = spec.get("tags"), spec.get("env")
    own = {
        "MOTLEY_PARAMS": json.dumps(params),
        "MOTLEY_MILESTONES": f"{sweep.metric}:{','.join(map(str, compared_at(sweep)))}",
    }
    command = {"command": rendered(spec["command"], params)} if "command" in spec else {}
    return {
        **spec,
        **command,
        "name": f"{sweep.name}-{number}",
        "tags": {**tags, SWEEP_TAG: sweep.name} if isinstance(tags, Mapping) else tags or {SWEEP_TAG: sweep.name},
        "env": {**env, **own} if isinstance(env, Mapping) else env or own,
    }


def rule_of(sweep: Sweep) -> Halving | None:
    """Rungs of the sweep; None: every trial runs to its end."""
    given = sweep.early_terminate
    return halving(given["min_iter"], given["max_iter"], given["eta"], sweep.run_cap) if given else None


def compared_at(sweep: Sweep) -> Sequence[int]:
    """Steps at which trials are compared: its rungs, or the marks of its population; none: each runs to its end."""
    if given := sweep.population:
        return marks(given["interval"], given["max_iter"])
    rule = rule_of(sweep)
    return rule.rungs if rule else ()


def rendered(command: Any, params: Params) -> Any:
    """The command with `{lr}` replaced by the value of lr, and `${args}` by all as --lr=0.1; in a shell line quoted."""
    if isinstance(command, str):
        line = _replaced(command, params, quote)
        for written, before in ((ARGS, "--"), (PLAIN_ARGS, "")):
            line = line.replace(written, " ".join(_args(params, quote, before)))
        return line
    if isinstance(command, Sequence):
        return [word for one in command for word in _in_words(one, params)]
    return command


def _in_words(word: Any, params: Params) -> list[Any]:
    if word in (ARGS, PLAIN_ARGS):
        return _args(params, str, "--" if word == ARGS else "")
    return [_replaced(word, params, str) if isinstance(word, str) else word]


def quoted_twice(command: Any, names: Collection[str]) -> str:
    """The first place of a parameter within quotes of a shell line, as it is written there; empty: there is none."""
    places = re.compile(
        rf"(?<!\$)\{{(?:{'|'.join(map(re.escape, names))})\}}|{re.escape(ARGS)}|{re.escape(PLAIN_ARGS)}"
    )
    found = first_within_quotes(command, places) if isinstance(command, str) else None
    return found[0] if found else ""


def _replaced(text: str, params: Params, written: Callable[[str], str]) -> str:
    """Of other braces, as of the shell's ${VARIABLE} or awk's {print}, nothing is changed."""
    names = "|".join(map(re.escape, params))
    return re.sub(rf"(?<!\$)\{{({names})\}}", lambda found: written(value_text(params[found[1]])), text)


def _args(params: Params, written: Callable[[str], str], before: str) -> list[str]:
    return [f"{before}{name}={written(value_text(value))}" for name, value in sorted(params.items())]


def value_text(value: Value) -> str:
    """The value as a command has it: numbers as Python writes them, true and false as JSON does."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def short_text(value: Value) -> str:
    """The value for people: numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else value_text(value)


def with_program(spec: Mapping[str, Any], program: str | None) -> dict[str, Any]:
    """The spec with the words of W&B's sweep files filled in; raises `InvalidSpec` for a word that is not filled in.

    A command in a shell line is left as it is: there ${program} is a variable of the shell.
    """
    command = spec.get("command", USUAL_COMMAND if program else None)
    if not isinstance(command, list):
        return dict(spec)
    words = {"interpreter": "python", "env": "/usr/bin/env", **({"program": program} if program else {})}
    return {**spec, "command": [_filled(word, words) for word in command]}


def _filled(word: Any, words: Mapping[str, str]) -> Any:
    if not isinstance(word, str) or word in (ARGS, PLAIN_ARGS) or not (found := WANDB_WORD.fullmatch(word)):
        return word
    if found[1] in words and not found[2]:
        return words[found[1]]
    if found[1] == "program":
        raise InvalidSpec.at("/program", "required", NEEDS_PROGRAM)
    text = f"{word} is not filled in: write {ARGS}, {PLAIN_ARGS} or {{lr}}, or read $MOTLEY_PARAMS, which has JSON."
    raise InvalidSpec.at("/spec/command", "invalid", text)
