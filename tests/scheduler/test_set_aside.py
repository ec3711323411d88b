"""What raises an unforeseen error is set aside, and shown; everything else goes on."""

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from cluster_app.models import Engine, GpuType, Node
from connections_app import engine_registry as fleet
from engines.attempt_files import AttemptFolder
from engines.local.engine import LocalEngine
from engines.protocol import NodeReport
from jobs_app.models import Attempt, Job, Reason, Team, TeamQuota
from operations.health import scheduler_health
from operations.metrics import exposition
from scheduler_app.models import PolicySetting, Round, SetAside
from scheduler_app.round.run_round import take_snapshot
from scheduler_app.round.set_aside import LONGEST_PAUSE, Kind, isolate, pause_after, set_aside
from tests.service_lab import UNTIL_LET_GO, Lab


def test_what_raises_is_found_among_many_and_all_others_are_done() -> None:
    done: set[int] = set()

    def act(part: list[int]) -> None:
        assert not {*part} & {3, 77}, "poison"
        done.update(part)

    found = isolate(list(range(100)), act)
    assert (sorted(found), len(done)) == ([3, 77], 98)


def test_a_database_that_is_away_is_nobodys_fault() -> None:
    def act(part: list[int]) -> None:
        raise OperationalError("the server closed the connection")

    with pytest.raises(OperationalError):
        isolate([1, 2, 3], act)


def test_pauses_double_up_to_a_limit() -> None:
    pauses = [pause_after(times).total_seconds() for times in (1, 2, 3, 50)]
    assert pauses == [10, 20, 40, LONGEST_PAUSE.total_seconds()]


@pytest.mark.parametrize("column", [{"rates": "nonsense"}, {"batch_size": {"initial": 8}}], ids=["unread", "undecided"])
def test_a_job_that_no_round_can_decide_on_keeps_no_other_waiting(lab: Lab, column: dict[str, object]) -> None:
    lab.node("n1")
    bad, good = lab.submit(), lab.submit(UNTIL_LET_GO)
    Job.objects.filter(pk=bad.pk).update(**column)
    lab.running(good)
    lab.until(lambda: Job.objects.filter(pk=bad.pk, reason=Reason.SET_ASIDE).exists())
    bad.refresh_from_db()
    assert (bad.state, "Error: " in bad.message) == (Job.State.QUEUED, True)
    assert SetAside.objects.get().key == str(bad.pk)
    assert b'motley_set_aside{kind="job"} 1.0' in exposition()
    assert scheduler_health(lab.now).set_aside == 1

    Job.objects.filter(pk=bad.pk).update(rates={}, batch_size={})
    SetAside.objects.all().delete()  # as an administrator does
    lab.until_state(bad, Job.State.SUCCEEDED)


def test_a_running_job_that_no_round_can_decide_on_runs_on(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    Job.objects.filter(pk=job.pk).update(rates="nonsense")
    waiting = lab.submit()
    lab.until(SetAside.objects.exists)
    lab.round()
    assert lab.gpus_held(job) == {"n1/0"}
    lab.let_go(job)
    lab.until_state(job, Job.State.SUCCEEDED)
    lab.until_state(waiting, Job.State.SUCCEEDED)


@pytest.mark.parametrize("unreadable", [False, True], ids=["raised", "unreadable"])
def test_a_running_job_that_is_set_aside_keeps_its_cpus_its_memory_and_its_quota(lab: Lab, unreadable: bool) -> None:
    lab.node("n1", gpus=4, cpus=12, memory_gib=40)
    TeamQuota.objects.create(team=lab.team(), gpu_type=GpuType.objects.get(), gpus=2, borrowing_limit=0)
    running = lab.submit(cpus_per_gpu=8, memory_per_gpu="30GiB")
    Team.objects.filter(name="vision").update(max_gpus=3, max_gpus_per_member=2)
    lab.recorded_as_running(running)
    lab.submit()
    if unreadable:
        Job.objects.filter(pk=running.pk).update(rates="nonsense", gpus_per_replica="nonsense")
    else:
        set_aside(Kind.JOB, {str(running.pk): ValueError("a fault that nobody foresaw")}, lab.now)
    snapshot, left_out, _, _ = take_snapshot(lab.now, PolicySetting.objects.current())
    assert [*left_out.set_aside] == [running.pk]
    assert snapshot.inventory.node_cpus.tolist() == [4]
    assert snapshot.inventory.node_memory_mib.tolist() == [10 * 1024]
    assert (snapshot.quotas.most_gpus.tolist(), snapshot.quotas.used_gpus.tolist()) == ([3, 2], [1, 1])
    assert snapshot.quotas.by_type is not None
    assert snapshot.quotas.by_type.used.tolist() == [[1]]


def test_an_attempt_whose_files_are_broken_keeps_no_other_from_being_heard(lab: Lab) -> None:
    lab.node("n1")
    broken, fine = lab.submit(UNTIL_LET_GO), lab.submit(UNTIL_LET_GO)
    lab.running(broken, fine)
    report = AttemptFolder(lab.root / "attempts" / str(broken.attempts.get().pk)).exit
    report.write_text("{}")
    lab.let_go(fine)
    lab.until_state(fine, Job.State.SUCCEEDED)
    assert SetAside.objects.get().key == str(broken.attempts.get().pk)
    assert broken.attempts.get().state == Attempt.State.RUNNING

    report.unlink()
    SetAside.objects.all().delete()
    lab.let_go(broken)
    lab.until_state(broken, Job.State.SUCCEEDED)


class BrokenEngine(LocalEngine):
    def nodes(self) -> list[NodeReport]:
        raise ZeroDivisionError("a fault that nobody foresaw")


def test_an_engine_that_raises_keeps_no_other_from_being_heard(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.node("n1")
    Engine.objects.create(name="bad", kind=Engine.Kind.LOCAL)
    engines = {"bad": BrokenEngine(lab.root / "bad"), "local": LocalEngine(lab.root, declared=["n1"])}
    monkeypatch.setitem(fleet.FACTORIES, Engine.Kind.LOCAL.value, lambda setup: engines[setup.name])
    fleet.engine_over.cache_clear()
    lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    assert "ZeroDivisionError: a fault" in Engine.objects.get(name="bad").fault


def test_an_error_after_the_commit_leaves_the_round_committed(lab: Lab) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("the trigger is written for SQLite")
    lab.node("n1", gpus=1)
    lab.submit(UNTIL_LET_GO)
    lab.submit()  # has a reason to wait
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER locked BEFORE UPDATE OF reasons ON jobs_app_job WHEN NEW.reasons LIKE '%insufficient%' "
            "BEGIN SELECT RAISE(ABORT, 'database is locked'); END"
        )
    lab.round()
    record = Round.objects.latest("number")
    assert (record.result, record.starts) == (Round.Result.COMMITTED, 1)
    assert "After the commit" in record.message
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER locked")


def test_that_nothing_speaks_with_the_engines_is_noticed(lab: Lab) -> None:
    lab.tick()
    assert scheduler_health(timezone.now()).healthy
    later = timezone.now() + 3 * LONGEST_PAUSE
    assert scheduler_health(later).engines_silent_for is not None
    assert Node.objects.count() == 0
