"""The job files beside the examples are accepted, and start the scripts that are there."""

from pathlib import Path

import pytest

from jobs_app.submission.conversion import parse_spec
from motley_client.spec import read_specs
from tests.training.training_lab import EXAMPLES

FILES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_the_job_file_is_accepted_and_starts_a_script_that_is_there(path: Path) -> None:
    with path.open() as file:
        (spec,) = read_specs(file.read(), file.name)
    command = parse_spec(spec)["command"]
    (script,) = (word for word in command if word.endswith(".py"))
    assert (EXAMPLES / script).exists()
