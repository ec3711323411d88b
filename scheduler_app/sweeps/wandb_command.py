"""Commands of W&B's sweep files, whose words ${program}, ${interpreter} and ${env} are filled in once. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from jobs_app.errors import InvalidSpec
from scheduler_app.sweeps.trial_spec import ARGS, PLAIN_ARGS

USUAL = ["${interpreter}", "${program}", ARGS]
"""Where a file has a program and no command."""
WORD = re.compile(r"\$\{([a-z_]+)(:[^}]*)?\}")
NEEDS_PROGRAM = "The command has ${program}: give program, as train.py, or write it in the command."


def with_program(spec: Mapping[str, Any], program: str | None) -> dict[str, Any]:
    """The spec with its command as it is for all trials; raises `InvalidSpec` for a word that is not filled in.

    A command in a shell line is left as it is: there ${program} is a variable of the shell.
    """
    command = spec.get("command", USUAL if program else None)
    if not isinstance(command, list):
        return dict(spec)
    words = {"interpreter": "python", "env": "/usr/bin/env", **({"program": program} if program else {})}
    return {**spec, "command": [_filled(word, words) for word in command]}


def _filled(word: Any, words: Mapping[str, str]) -> Any:
    if not isinstance(word, str) or word in (ARGS, PLAIN_ARGS) or not (found := WORD.fullmatch(word)):
        return word
    if found[1] in words and not found[2]:
        return words[found[1]]
    if found[1] == "program":
        raise InvalidSpec.at("/program", "required", NEEDS_PROGRAM)
    text = f"{word} is not filled in: write {ARGS}, {PLAIN_ARGS} or {{lr}}, or read $MOTLEY_PARAMS, which has JSON."
    raise InvalidSpec.at("/spec/command", "invalid", text)
