"""The lease of an agent: when jobs must stop, by the clock that nobody sets."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from engines.lease_file import Lease, LeaseFile
from engines.linux import seconds_since_boot
from engines.local.engine import LocalEngine
from engines.protocol import AttemptReport, Launch, NodeLaunch, Phase, SiteReason
from tests.engines.engine_lab import until

JOB = "0190c3f0-0000-7000-8000-00000000000a"


def test_a_lease_counts_from_the_moment_before_the_service_was_asked(tmp_path: Path) -> None:
    lease = LeaseFile(tmp_path / "lease")
    lease.renew(seconds_since_boot() - 50, 60)
    assert 0 < lease.left_s() <= 10


def test_a_lease_is_written_again_when_a_fiftieth_of_it_is_over_or_it_has_another_length(tmp_path: Path) -> None:
    """Not for each answer; what stands in the file never ends later than what the service said."""
    lease, now_s = LeaseFile(tmp_path / "lease"), seconds_since_boot()
    ends = []
    for asked_at_s, length_s in ((now_s, 100), (now_s + 1.9, 100), (now_s + 2.1, 100), (now_s + 2.2, 60)):
        lease.renew(asked_at_s, length_s)
        ends.append(round(json.loads(lease.path.read_text())[0] - now_s, 1))
    assert ends == [100, 100, 102.1, 62.2]


def test_a_lease_of_an_earlier_boot_is_over() -> None:
    assert Lease(until_s=1e9, length_s=60, boot="before").left_s(now_s=10, boot="now") < 0


def test_grace_takes_half_of_a_lease_at_most() -> None:
    lease = Lease(until_s=0, length_s=60, boot="")
    assert (lease.grace_s(10), lease.grace_s(600)) == (10, 30)


@pytest.mark.parametrize(("ago_s", "within_s"), [(0, None), (95, pytest.approx(5, abs=4)), (200, 0.0)])
def test_a_job_stops_within_its_grace_before_the_end(tmp_path: Path, ago_s: float, within_s: float | None) -> None:
    lease = LeaseFile(tmp_path / "lease")
    lease.renew(seconds_since_boot() - ago_s, 100)
    assert lease.must_stop_within_s(10) == within_s


def test_without_a_lease_nothing_starts(tmp_path: Path) -> None:
    report = end_of(engine_with_lease(tmp_path), "touch begun")
    assert (report.started_at, report.reason) == (None, SiteReason.PREEMPTED)


def test_a_job_ends_by_itself_when_its_lease_is_over(tmp_path: Path) -> None:
    """It is told why, and that is not its failure."""
    engine, lease = engine_with_lease(tmp_path), LeaseFile(tmp_path / "lease")
    lease.renew(seconds_since_boot(), 6000)
    says_why = 'trap \'cat "$MOTLEY_STOP_REASON_FILE" > "$MOTLEY_CHECKPOINT_DIR/why"; exit 3\' TERM'
    engine.launch(launch(f"{says_why}; touch begun; while :; do sleep 0.05; done"))
    until((tmp_path / "engine" / "jobs" / JOB / "work" / "begun").exists)
    lease.renew(seconds_since_boot() - 90, 100)
    report = until(lambda: ended(engine))
    assert (report.exit_code, report.reason) == (3, SiteReason.PREEMPTED)
    assert (tmp_path / "engine" / "jobs" / JOB / "checkpoints" / "why").read_text() == "drain"


def engine_with_lease(folder: Path) -> LocalEngine:
    return LocalEngine(folder / "engine", declared=["n1"], lease=folder / "lease")


def launch(command: str) -> Launch:
    return Launch(1, JOB, command, [NodeLaunch("n1", {})], grace=timedelta(seconds=20))


def end_of(engine: LocalEngine, command: str) -> AttemptReport:
    engine.launch(launch(command))
    return until(lambda: ended(engine))


def ended(engine: LocalEngine) -> AttemptReport | None:
    report = engine.poll([1])[0]
    return report if report.phase is Phase.ENDED and report.proven_gone else None
