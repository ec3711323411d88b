"""`--begin` and `--deadline` take the forms of Slurm's option, in the time zone of this machine."""

from datetime import UTC, datetime, timedelta

import pytest

from jobs_app.models import Job
from motley_client.spec import SpecError
from motley_command.begin_time import begin_time_of
from tests.live_service import Live
from tests.motley_command import Motley

NOW = datetime.fromisoformat("2026-11-24 12:30:15").astimezone()


def read(text: str) -> str:
    """The clock time on this machine."""
    time = begin_time_of(text, NOW)
    assert time is not None
    assert datetime.fromisoformat(time).tzinfo is not None
    return f"{datetime.fromisoformat(time).astimezone():%F %T}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now+1hour", "2026-11-24 13:30:15"),
        ("now+90", "2026-11-24 12:31:45"),
        ("now + 2days", "2026-11-26 12:30:15"),
        ("16:00", "2026-11-24 16:00:00"),
        ("12:00", "2026-11-25 12:00:00"),
        ("4:05:06pm", "2026-11-24 16:05:06"),
        ("12:01 AM", "2026-11-25 00:01:00"),
        ("midnight", "2026-11-25 00:00:00"),
        ("noon", "2026-11-25 12:00:00"),
        ("tomorrow", "2026-11-25 00:00:00"),
        ("2026-12-01", "2026-12-01 00:00:00"),
        ("2026-12-01T08:00", "2026-12-01 08:00:00"),
        ("2026-12-01T08:00:30", "2026-12-01 08:00:30"),
    ],
)
def test_a_time_is_read_as_slurm_reads_it(text: str, expected: str) -> None:
    assert read(text) == expected


def test_a_time_with_an_offset_keeps_it() -> None:
    time = begin_time_of("2026-12-01T08:00:00+09:00", NOW)
    assert time is not None
    assert datetime.fromisoformat(time) == datetime(2026, 11, 30, 23, tzinfo=UTC)


def test_now_is_no_begin_time() -> None:
    assert (begin_time_of("now", NOW), begin_time_of(None, NOW)) == (None, None)


@pytest.mark.parametrize("text", ["soon", "25:00", "13:00pm", "now+1fortnight", "2026-02-30", "now+999999999weeks", ""])
def test_other_text_is_refused_with_the_forms_that_are_taken(text: str) -> None:
    with pytest.raises(SpecError, match=r"--begin .*now\+1hour"):
        begin_time_of(text, NOW)


def test_a_job_is_submitted_with_it_and_changed(service: Live, motley: Motley) -> None:
    assert motley("submit", "--name", "a", "--gpus", "1", "--begin", "now+1hour", "--", "true").exit_code == 0
    (job,) = service.jobs
    assert job.begin_time is not None
    assert job.reason == "begin_time"
    assert motley("change", str(job.pk), "--begin", "now+2hours").exit_code == 0
    later = Job.objects.get(pk=job.pk).begin_time
    assert later is not None
    assert 3590 < (later - job.begin_time).total_seconds() < 3700
    assert motley("change", str(job.pk), "--begin", "none").exit_code == 0
    assert Job.objects.get(pk=job.pk).begin_time is None


def test_a_deadline_is_given_in_the_same_forms_and_removed(service: Live, motley: Motley) -> None:
    assert motley("submit", "--name", "a", "--gpus", "1", "--deadline", "now+3hours", "--", "true").exit_code == 0
    (job,) = service.jobs
    assert job.deadline is not None
    assert timedelta(hours=2.9) < job.deadline - job.created_at < timedelta(hours=3.1)
    refused = motley("change", "a", "--deadline", "3m")
    assert refused.exit_code == 2
    assert "--deadline 3m" in refused.stderr
    assert "now+1hour" in refused.stderr
    assert motley("change", "a", "--deadline", "none").exit_code == 0
    assert Job.objects.get().deadline is None
