"""What people type at one door is understood at the others, and what is not is answered with what to write."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from motley_command.begin_time import since_of, times_in_words
from motley_command.units import mib_per, seconds_per
from tests.live_service import Live
from tests.motley_command import Motley

NOW = datetime(2026, 11, 28, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2h", "2026-11-28T07:30:00+00:00"),
        ("90 minutes", "2026-11-28T08:00:00+00:00"),
        ("now-2hours", "2026-11-28T07:30:00+00:00"),
        ("yesterday", "2026-11-27T00:00:00+00:00"),
        ("today", "2026-11-28T00:00:00+00:00"),
        ("08:00", "2026-11-28T08:00:00+00:00"),
        ("16:00", "2026-11-27T16:00:00+00:00"),
        ("2026-11-01", "2026-11-01T00:00:00+00:00"),
    ],
)
def test_a_past_time_is_written_as_a_future_one(text: str, at: str, zone: Callable[[str], None]) -> None:
    zone("UTC")
    assert since_of(text, NOW) == at


def test_times_of_a_file_are_those_of_the_options(zone: Callable[[str], None]) -> None:
    zone("UTC")
    spec = {"name": "a", "begin_time": "tomorrow", "deadline": "now+2days", "gpus": "1-8"}
    expected = {"begin_time": "2026-11-29T00:00:00+00:00", "deadline": "2026-11-30T09:30:00+00:00"}
    assert times_in_words(spec, NOW) == spec | expected
    unreadable = {"deadline": "soon", "begin_time": None}
    assert times_in_words(unreadable, NOW) == unreadable


@pytest.mark.parametrize(
    ("unit", "mib"), [("g", 1024), ("GB", 1024), ("GiB", 1024), ("M", 1), ("k", 1 / 1024), ("T", 1024**2), ("x", None)]
)
def test_memory_has_one_table(unit: str, mib: float | None) -> None:
    assert mib_per(unit) == mib


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("s", 1), ("secs", 1), ("min", 60), ("Hours", 3600), ("d", 86_400), ("weeks", 604_800), ("x", None)],
)
def test_time_has_one_table(unit: str, seconds: int | None) -> None:
    assert seconds_per(unit) == seconds


def test_a_file_says_gpus_deadline_and_array_as_the_options_do(service: Live, motley: Motley, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: a\ncommand: 'true'\ngpus: 1-2\ndeadline: now+2days\nbegin_time: tomorrow\narray: 0-3%2\n")
    done = motley("plan", str(job), "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert '"gpus_max": 2' in done.stdout or '"max": 2' in done.stdout


def test_ps_refuses_a_team_and_a_gpu_type_that_nothing_has(service: Live, motley: Motley) -> None:
    service.add("a")
    for option, what in (("--team", "team"), ("--gpu-type", "GPU type")):
        refused = motley("ps", option, "nope")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert f"{option} nope: there is no such {what}." in refused.stderr
    assert "vision" in motley("ps", "--team", "nope").stderr


def test_a_comment_that_is_not_there_is_named(service: Live, motley: Motley) -> None:
    service.add("a")
    refused = motley("comment", "a", "--delete", "999999")
    assert (refused.exit_code, "The job has no comment 999999" in refused.stderr) == (4, True)


def test_json_is_answered_with_how_it_is_written_here(service: Live, motley: Motley) -> None:
    refused = motley("ps", "--json")
    assert refused.exit_code == 2
    assert "No such option: --json. Write -o json." in refused.stderr
    assert "--since" not in refused.stderr
