"""The name under which jobs share measured rates, for those who gave none."""

import re
import shlex

PLAIN_FIRST_WORD = re.compile(r"""\s*([^\s'"\\]+)(?:\s|\Z)""")


def default_workload(name: str, command: str | list[str]) -> str:
    """Jobs share measured rates when their names differ in digits only and they run the same program."""
    return f"{re.sub(r'[0-9]+', '', name)}/{_program(command)}"[:200]


def _program(command: str | list[str]) -> str:
    if isinstance(command, list):
        return command[0]
    if plain := PLAIN_FIRST_WORD.match(command):  # nearly always, and a hundred times as fast
        return plain[1]
    try:
        words = shlex.split(command)
    except ValueError:  # an unbalanced quote: the shell will say so; the workload needs only a name
        words = command.split()
    return words[0] if words else ""
