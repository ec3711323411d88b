"""client/README.md names every verb of the command and every method of the Python client."""

import re
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from motley_client import Client
from motley_command.cli import app

README = Path("client/README.md").read_text()
MOTLEY: Any = typer.main.get_command(app)
GROUP = re.compile(r"^\| `motley ([\w-]+)` \| (.*?) \|", re.MULTILINE)
METHODS = README.split("`Client` has a method for every route")[1].split("Responses are")[0]


def test_every_verb_is_named():
    assert [verb for verb in _verbs(MOTLEY) if not re.search(rf"\bmotley {verb}\b", README)] == []


def test_the_table_has_the_verbs_of_each_group_and_no_other():
    table = {group: set(re.findall(r"`([\w-]+)`", verbs)) for group, verbs in GROUP.findall(README)}
    groups = {name: group for name, group in MOTLEY.commands.items() if isinstance(group, TyperGroup)}
    assert table == {name: set(_verbs(group)) for name, group in groups.items()}


def test_every_method_of_the_client_is_named_and_no_other():
    methods = {name for name in dir(Client) if not name.startswith("_")} - {"close"}
    assert set(re.findall(r"`(\w+)`", METHODS)) == methods


def _verbs(group: Any) -> list[str]:
    """Those that its help lists."""
    return [name for name, command in group.commands.items() if not command.hidden]
