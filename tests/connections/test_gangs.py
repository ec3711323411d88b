"""Gangs over servers: what a pass decides, and the one report of an attempt. Pure, but for the tests on rows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from connections_app.agents.gang_report import RankReport, gang_report
from connections_app.agents.gangs import Cause, EndOfGang, Gang, Go, Member, Terms, next_step
from engines.protocol import AttemptReport, Phase, Progress, SiteReason

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
TERMS = Terms(lease_s=240.0, ready_within_s=300.0)
RUNS = AttemptReport(7, Phase.RUNNING, started_at=NOW - timedelta(minutes=9))
EARLIER = NOW - timedelta(seconds=2)
ENDED = replace(RUNS, phase=Phase.ENDED, proven_gone=True, exit_code=0, ended_at=NOW)
LOST = replace(ENDED, phase=Phase.LOST, exit_code=None, message="its supervisor was killed")
PREPARES = AttemptReport(7, Phase.LAUNCHING)


def member(
    rank: int,
    report: AttemptReport | None = RUNS,
    *,
    ready_s: float | None = 0,
    silent_s: float = 0,
    is_heard: bool = True,
) -> Member:
    """A rank that has been ready for so long."""
    return Member(
        rank,
        f"gpu{rank}",
        report,
        delivered=True,
        withdrawn=False,
        ready_s=ready_s,
        lost_s=0.0 if report is not None and report.phase is Phase.LOST else None,
        silent_s=silent_s,
        is_heard=is_heard,
    )


def step_of(*members: Member, begun: bool = True, grace_s: float = 30) -> Go | EndOfGang | None:
    return next_step(Gang(members, has_begun=begun, grace_s=grace_s), TERMS)


def test_a_gang_starts_when_all_are_ready_and_not_before() -> None:
    assert step_of(member(0, ready_s=1), member(1, ready_s=None), begun=False) is None
    assert step_of(member(0, ready_s=1), member(1, ready_s=2), begun=False) == Go()
    assert step_of(member(0), member(1)) is None


def test_the_last_to_be_ready_is_named_first_one_that_has_not_fetched_its_rank() -> None:
    ready, slow = member(0, ready_s=300), member(1, ready_s=None)
    away = slow._replace(rank=2, server="gpu2", delivered=False, report=None)
    end = step_of(ready, slow, away, begun=False)
    assert end == EndOfGang(2, Cause.NOT_READY, "gpu2 had not fetched its rank 300 s after the first was ready.")
    end = step_of(ready, slow, begun=False)
    assert end == EndOfGang(1, Cause.NOT_READY, "gpu1 was still preparing its rank 300 s after the first was ready.")
    assert step_of(ready._replace(ready_s=299), slow, begun=False) is None


def test_a_gang_does_not_start_without_a_server_that_fell_silent_when_it_was_ready() -> None:
    gone = member(1, ready_s=20, silent_s=11, is_heard=False)
    assert step_of(member(0, ready_s=20), gone, begun=False) is None
    end = step_of(member(0, ready_s=300), gone, begun=False)
    assert end == EndOfGang(
        1, Cause.NOT_READY, "gpu1 was ready, and not heard any more 300 s after the first was ready."
    )


def test_a_rank_that_ended_badly_ends_the_gang() -> None:
    assert step_of(member(0), member(1, replace(ENDED, exit_code=3))) == EndOfGang(1, Cause.FAILED, "")
    assert step_of(member(0, LOST), member(1)) == EndOfGang(0, Cause.FAILED, "")
    assert step_of(member(0, ENDED), member(1)) is None


@pytest.mark.parametrize("phase", [Phase.LOST, Phase.UNKNOWN])
def test_a_server_that_cannot_start_its_rank_was_not_ready(phase: Phase) -> None:
    end = step_of(member(0), member(1, replace(LOST, phase=phase), ready_s=None), begun=False)
    said = f"gpu1 could not prepare its rank: {LOST.message}"
    assert end == EndOfGang(1, Cause.NOT_READY, said)


def test_what_no_server_can_prepare_is_the_fault_of_the_job() -> None:
    """Its archive cannot be unpacked, say: no server is to blame, and the attempt counts as a loss."""
    first = member(0, LOST, ready_s=None)
    both = [first, member(1, LOST, ready_s=None)]
    assert step_of(*both, begun=False) == EndOfGang(0, Cause.FAILED, "")
    with_one_ready = step_of(*both, member(2), begun=False)
    assert with_one_ready == EndOfGang(0, Cause.NOT_READY, f"gpu0 could not prepare its rank: {LOST.message}")
    forgotten = [one._replace(report=AttemptReport(7, Phase.UNKNOWN)) for one in both]
    assert isinstance(found := step_of(*forgotten, begun=False), EndOfGang)
    assert found.cause == Cause.NOT_READY
    assert report(LOST, LOST, begun=False, cause=(0, Cause.FAILED)).phase is Phase.LOST


def test_whose_fault_it_is_is_said_when_the_others_are_ready_or_have_failed_too() -> None:
    failed, prepares = member(0, LOST, ready_s=None), member(1, PREPARES, ready_s=None)
    assert step_of(failed, prepares, begun=False) is None
    assert step_of(failed, prepares, member(2, ready_s=999), begun=False) is None
    late = failed._replace(lost_s=TERMS.ready_within_s)  # it is not waited for longer
    assert isinstance(end := step_of(late, prepares, begun=False), EndOfGang)
    assert (end.rank, end.cause) == (0, Cause.NOT_READY)
    silent = step_of(failed, prepares._replace(silent_s=210), begun=False)
    assert isinstance(silent, EndOfGang)
    assert silent.cause == Cause.SILENT
    of_job = member(2, replace(ENDED, exit_code=3), ready_s=None)
    assert step_of(failed, prepares, of_job, begun=False) == EndOfGang(2, Cause.FAILED, "")


def test_a_setup_that_fails_is_the_failure_of_the_job() -> None:
    end = step_of(member(0, PREPARES), member(1, replace(ENDED, exit_code=3, message="The setup failed")), begun=False)
    assert end == EndOfGang(1, Cause.FAILED, "")


def test_a_silent_server_ends_its_gang_so_early_that_all_have_ended_with_its_lease() -> None:
    assert step_of(member(0), member(1, silent_s=209)) is None
    assert step_of(member(0), member(1, silent_s=210)) == EndOfGang(
        1, Cause.SILENT, "gpu1 has not been heard for 210 s."
    )
    assert step_of(member(0), member(1, silent_s=119), grace_s=600) is None
    assert step_of(member(0), member(1, silent_s=120), grace_s=600) is not None
    assert step_of(member(0), member(1, ENDED, silent_s=999)) is None


def ranks(*reports: AttemptReport, over: tuple[int, ...] = (), cause: tuple[int, str] = (-1, "")) -> list[RankReport]:
    """Ranks with these reports; the leases of some are over, and one may have ended the gang."""
    known = {rank: (kind, "" if kind == Cause.FAILED else f"note {rank}") for rank, kind in [cause]}
    return [
        RankReport(rank, f"gpu{rank}", report, rank in over, *known.get(rank, ("", "")))
        for rank, report in enumerate(reports)
    ]


def report(*reports: AttemptReport, begun: bool = True, **more: object) -> AttemptReport:
    return gang_report(7, ranks(*reports, **more), NOW - timedelta(minutes=8) if begun else None)  # type: ignore[arg-type]


def test_a_gang_runs_from_go_until_the_last_rank_has_ended() -> None:
    progress = Progress(1, 1, NOW, 5, NOW)
    found = report(RUNS, replace(ENDED, progress=progress, ran_s=9))
    assert (found.phase, found.started_at, found.ran_s) == (Phase.RUNNING, NOW - timedelta(minutes=8), 9)
    assert found.progress == progress
    assert report(RUNS, RUNS, begun=False) == AttemptReport(7, Phase.LAUNCHING)
    found = report(ENDED, ENDED)
    assert (found.phase, found.proven_gone, found.exit_code) == (Phase.ENDED, True, 0)


def test_the_end_is_that_of_the_rank_that_ended_the_gang() -> None:
    stopped = replace(ENDED, exit_code=143)
    found = report(stopped, replace(ENDED, exit_code=3, ended_at=EARLIER), cause=(1, Cause.FAILED))
    assert (found.exit_code, found.message, found.ended_at) == (3, "Rank 1 on gpu1 ended the gang: exit code 3", NOW)
    assert report(ENDED, stopped).exit_code == 143
    no_storage = replace(ENDED, reason=SiteReason.STORAGE_MISSING, exit_code=126, ended_at=EARLIER)
    assert report(stopped, no_storage, cause=(1, Cause.FAILED)).reason is SiteReason.STORAGE_MISSING


def test_the_rank_that_failed_first_is_named_whichever_was_heard_first() -> None:
    """A supervisor that was killed has no end, and is nobody's consequence."""
    heard_first, began = replace(ENDED, exit_code=1), replace(ENDED, exit_code=3, ended_at=EARLIER)
    found = report(heard_first, began, cause=(0, Cause.FAILED))
    assert (found.exit_code, found.message) == (3, "Rank 1 on gpu1 ended the gang: exit code 3")
    found = report(began, heard_first, replace(LOST, ended_at=None), cause=(0, Cause.FAILED))
    assert (found.phase, found.message) == (Phase.LOST, f"Rank 2 on gpu2 ended the gang: {LOST.message}")


def test_a_server_without_contact_is_named_though_another_rank_was_heard_to_fail() -> None:
    """Its supervisor stopped the rank as its lease ended; the other failed of that, which costs no retry."""
    failed = replace(ENDED, exit_code=1, ended_at=EARLIER)
    found = report(failed, RUNS, over=(1,), cause=(0, Cause.FAILED))
    assert found.phase is Phase.LOST
    assert found.message == "Rank 1 on gpu1 ended the gang: gpu1 was not heard, and its lease is over."
    came_back = replace(ENDED, exit_code=143, reason=SiteReason.PREEMPTED)
    found = report(failed, came_back, cause=(0, Cause.FAILED))
    assert (found.phase, found.reason) == (Phase.ENDED, SiteReason.PREEMPTED)
    assert found.message == "Rank 1 on gpu1 ended the gang: gpu1 had no contact to the service until its lease ended."


def test_an_attempt_is_lost_only_when_the_leases_of_all_silent_servers_are_over() -> None:
    stopped = replace(ENDED, exit_code=143)
    assert report(stopped, RUNS, cause=(1, Cause.SILENT)).phase is Phase.RUNNING
    assert report(RUNS, RUNS, over=(1,), cause=(1, Cause.SILENT)).phase is Phase.RUNNING
    found = report(stopped, RUNS, over=(1,), cause=(1, Cause.SILENT))
    assert (found.phase, found.proven_gone, found.silent_nodes) == (Phase.LOST, False, ["gpu1"])
    found = report(stopped, replace(stopped), cause=(1, Cause.SILENT))
    assert (found.phase, found.proven_gone, found.silent_nodes) == (Phase.LOST, True, [])


def test_a_gang_that_was_not_ready_has_not_started() -> None:
    gone = AttemptReport(7, Phase.UNKNOWN, proven_gone=True)
    found = report(replace(ENDED, exit_code=143), gone, begun=False, cause=(1, Cause.NOT_READY))
    assert (found.phase, found.reason, found.started_at) == (Phase.ENDED, SiteReason.NOT_READY, None)
    assert (found.exit_code, found.proven_gone) == (None, True)
    assert report(gone, gone, begun=False) == gone


def test_a_job_on_one_server_is_ended_by_its_lease_alone() -> None:
    assert step_of(member(0, LOST)) is None
    assert report(RUNS).phase is Phase.RUNNING
    found = report(RUNS, over=(0,), cause=(0, Cause.SILENT))
    assert (found.phase, found.message, found.silent_nodes) == (Phase.LOST, "note 0", ["gpu0"])
