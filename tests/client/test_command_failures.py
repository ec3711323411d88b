"""What the command says, and exits with, when something is wrong or missing."""

from pathlib import Path

import pytest
from contract_service import Answer, Service, problem
from motley_command import Motley


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (problem(422, "Invalid."), 2),
        (problem(401, "Unknown token."), 3),
        (problem(403, "Not your team."), 3),
        (problem(404, "No such job."), 4),
        (problem(409, "Finished."), 5),
        (problem(500, "Broken."), 6),
        (Answer(502, b""), 6),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(service: Service, motley: Motley, failure: Answer, code: int) -> None:
    service.answers_first = [failure]
    assert motley("ps").exit_code == code


def test_an_unreachable_service_is_exit_code_6_and_says_its_address(motley: Motley) -> None:
    result = motley("--url", "http://127.0.0.1:1", "ps")
    assert (result.exit_code, "No answer from http://127.0.0.1:1" in result.stderr) == (6, True)


def test_faults_of_a_job_are_shown_field_by_field(service: Service, motley: Motley) -> None:
    faults = [
        {"pointer": "/gpus", "code": "min_value", "detail": "At least 1."},
        {"pointer": "/team", "code": "unknown", "detail": "No such team."},
    ]
    service.answers_first = [problem(422, "The job is not valid.", errors=faults)]
    errors = motley("submit", "--name", "a", "--", "true").stderr
    assert errors.splitlines() == ["Error: The job is not valid.", "  /gpus: At least 1.", "  /team: No such team."]


def test_a_failure_of_the_service_names_the_request_to_report(service: Service, motley: Motley) -> None:
    service.answers_first = [problem(500, "Broken.", request_id="r-123")]
    assert "r-123" in motley("ps").stderr


def test_options_go_before_the_environment_and_that_before_the_file(
    service: Service, motley: Motley, tmp_path: Path
) -> None:
    file = tmp_path / "config" / "motley" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"url: {service.url}\ntoken: from-file\n")

    def token_of(*arguments: str, **env: str) -> str:
        motley(*arguments, "ps", MOTLEY_URL="", **env)
        return service.requests[-1].headers["Authorization"].removeprefix("Bearer ")

    assert token_of(MOTLEY_TOKEN="") == "from-file"
    assert token_of(MOTLEY_TOKEN="from-env") == "from-env"
    assert token_of("--token", "from-option", MOTLEY_TOKEN="from-env") == "from-option"


@pytest.mark.parametrize(("missing", "words"), [("MOTLEY_URL", "--url"), ("MOTLEY_TOKEN", "--token")])
def test_what_is_not_configured_says_where_to_put_it(motley: Motley, missing: str, words: str) -> None:
    result = motley("ps", **{missing: ""})
    for place in (words, missing, "config.yaml"):
        assert place in result.stderr
    assert result.exit_code == 2


def test_a_configuration_file_with_a_slip_is_refused(motley: Motley, tmp_path: Path) -> None:
    file = tmp_path / "config" / "motley" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("tokn: x\n")
    result = motley("ps")
    assert (result.exit_code, str(file) in result.stderr) == (2, True)
