"""Places of a shell text within quotes."""

import re

import pytest

from jobs_app.submission.shell_quotes import first_within_quotes

PLACE = re.compile(r"\{x\}")


@pytest.mark.parametrize("text", ["'{x}'", '"{x}"', '--out "runs/{x}"', "bash -c 'a {x}'", 'a "b\\" {x}"', "'{x}"])
def test_it_is_within(text: str) -> None:
    assert first_within_quotes(text, PLACE)


@pytest.mark.parametrize("text", ["{x}", "'a' {x} 'b'", '\\"{x}', "\\'{x}", '"a"{x}"b"', "no place", "it\\'s {x}"])
def test_it_is_not(text: str) -> None:
    assert first_within_quotes(text, PLACE) is None
