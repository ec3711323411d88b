"""`make reproduction`: each table of docs/reproduction.md is made by a command that the document names."""

import importlib
import shlex
from pathlib import Path

import pytest
from django.conf import settings

from benchmarks.reproduction import commands, file_name, sections, without_command

TEXT = (Path(settings.BASE_DIR) / "docs" / "reproduction.md").read_text()


def test_each_table_has_a_command_in_its_section_or_above() -> None:
    assert without_command(sections(TEXT)) == []


@pytest.mark.parametrize("command", commands(TEXT), ids=file_name)
def test_the_commands_name_benchmarks_that_exist(command: str) -> None:
    python, option, module, *_ = shlex.split(command)
    assert (python, option, callable(importlib.import_module(module).main)) == ("python", "-m", True)


def test_a_table_whose_section_names_no_command_is_found() -> None:
    text = "# All\n## One\n`python -m benchmarks.one`\n### Part\n\n| a |\n## Two\n\n| b |\n"
    assert without_command(sections(text)) == ["Two"]
