"""What the command says, and exits with, when something is wrong or missing."""

import pytest

from tests.client.scripted_server import Answer, Script, problem
from tests.live_service import Live
from tests.motley_command import Motley


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (problem(422, "Invalid."), 2),
        (problem(401, "Unknown token."), 3),
        (problem(403, "Not your team."), 3),
        (problem(404, "No such job."), 4),
        (problem(409, "Finished."), 5),
        (problem(412, "Stale."), 5),
        (problem(500, "Broken."), 6),
        (Answer(502, b""), 6),
        (problem(429, "Slower.", retry_after=0), 6),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(script: Script, scripted: Motley, failure: Answer, code: int) -> None:
    script.answers = [failure]
    assert scripted("ps").exit_code == code


def test_an_unreachable_service_is_exit_code_6_and_says_its_address(home: dict[str, str]) -> None:
    result = Motley(home)("--url", "http://127.0.0.1:1", "--token", "mt_x", "ps")
    assert (result.exit_code, "Cannot reach http://127.0.0.1:1" in result.stderr) == (6, True)


def test_an_address_without_its_scheme_is_told_what_is_missing(home: dict[str, str]) -> None:
    result = Motley(home)("--url", "localhost:8123", "--token", "mt_x", "ps")
    assert (result.exit_code, "e.g. http://localhost:8123" in result.stderr) == (2, True)


def test_faults_of_a_job_are_said_once_field_by_field(motley: Motley) -> None:
    errors = motley("submit", "--name", "a", "--gpus", "0", "--retries", "-1", "--", "true").stderr.splitlines()
    assert errors[0] == f"Error: the request has {len(errors) - 1} errors."
    assert sorted(line.split(":")[0] for line in errors[1:]) == ["  gpus", "  retries"]


def test_one_fault_is_one_line(motley: Motley) -> None:
    (line,) = motley("submit", "--name", "a", "--gpus", "0", "--", "true").stderr.splitlines()
    assert line.startswith("Error: gpus: ")


def test_a_fault_deep_in_a_job_is_named_as_people_write_it(motley: Motley) -> None:
    jobs = "{jobs: [{name: a, command: 'true', gpus: 1}, {name: b, command: 'true', gpus: 1, rates: {a100: -1}}]}"
    (line,) = motley("submit", "-", typed=jobs).stderr.splitlines()
    assert line.startswith("Error: jobs[1].rates")


def test_a_failure_of_the_service_names_the_request_to_report(script: Script, scripted: Motley) -> None:
    script.answers = [problem(500, "Broken.", request_id="r-123")]
    assert "r-123" in scripted("ps").stderr


def test_a_refusal_of_the_service_is_not_a_traceback(service: Live, motley: Motley) -> None:
    result = motley("show", "nothing")
    assert (result.exit_code, result.stderr) == (4, "Error: No job named nothing.\n")
