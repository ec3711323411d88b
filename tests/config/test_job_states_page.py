"""docs/job-states.md is what the code does: its states, its reasons, and what becomes of a job when an attempt ends."""

import re
from pathlib import Path

import pytest
from django.conf import settings

from jobs_app.lifecycle.attempt_outcome import EX_TEMPFAIL, MOST_LOSSES, MOST_REQUEUES, Ending, judge
from jobs_app.models import Attempt, Job, Reason

PAGE = (Path(settings.BASE_DIR) / "docs" / "job-states.md").read_text()
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")}


def rows(section: str) -> list[list[str]]:
    """The cells of its tables, without the heads."""
    lines = re.findall(r"^\| (.*) \|$", SECTIONS[section], re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("---")]
    return [row for row in cells if row[0] not in {"state", "from", "the attempt", "reason"}]


def names(section: str, width: int) -> list[str]:
    """What the first cells name, in rows of that many cells."""
    return [row[0].strip("`") for row in rows(section) if len(row) == width]


def test_the_page_lists_the_states_in_their_order():
    assert names("Job", 3) == Job.State.values
    assert names("Attempt", 2) == Attempt.State.values


def test_the_page_says_which_states_of_a_job_are_final():
    assert {row[0].strip("`") for row in rows("Job") if row[-1] == "yes"} == set(Job.FINAL)


def test_every_state_is_reached_and_only_final_ones_are_not_left():
    moves = [row for row in rows("Job") if len(row) == 4 and "Ends" not in row[1]]
    ends = {cell for row in rows("Ends") for cell in re.findall(r"`(\w+)`", row[3])}
    reached = {state for row in moves for state in re.findall(r"`(\w+)`", row[1])} | ends
    left = {state for row in rows("Job") if len(row) == 4 for state in re.findall(r"`(\w+)`", row[0])}
    assert reached == set(Job.State.values)
    assert left == set(Job.State.values) - set(Job.FINAL)


def test_the_modules_that_the_page_names_are_there():
    named = [row[3].strip("`") for row in rows("Job") if len(row) == 4]
    assert [path for path in named if not (Path(settings.BASE_DIR) / path).exists()] == []


@pytest.mark.parametrize(("how", "stop", "outcome", "state"), [tuple(row) for row in rows("Ends")])
def test_an_end_is_judged_as_the_page_says(how, stop, outcome, state):
    verdict = judge(ending(how, "" if stop == "none" else stop.strip("`")))
    assert (f"`{verdict.outcome}`", f"`{verdict.state}`") == (outcome, state)


def test_the_page_has_every_stop_reason_and_outcome():
    stops = {row[1].strip("`") for row in rows("Ends")} - {"none"}
    assert stops == set(Attempt.StopReason.values)
    assert {row[2].strip("`") for row in rows("Ends")} == set(Attempt.Outcome.values)


def test_the_limits_that_the_page_names_are_those_of_the_code():
    assert (EX_TEMPFAIL, MOST_REQUEUES, MOST_LOSSES) == (75, 100, 3)


def test_the_page_lists_every_reason_with_its_words():
    assert [(row[0].strip("`"), row[1]) for row in rows("Reasons")] == Reason.choices


def ending(how: str, stop_reason: str) -> Ending:
    """The end that a row describes."""
    codes = {"exits with 0": 0, "exits with 75": EX_TEMPFAIL}
    return Ending(
        exit_code=None if "lost" in how else codes.get(how, 1),
        stop_reason=stop_reason,
        lost="lost" in how,
        no_storage="storage" in how,
        node_fault="by its node" in how,
        not_ready="not ready" in how,
        losses=MOST_LOSSES if "fourth" in how else 0,
        retries=1 if "retries left" in how else 0,
    )
