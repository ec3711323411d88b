"""Watch of GPUs: readings by the minute, idle GPUs and the rule of a team, GPUs out of service one by one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounting_app.gpu_watch.history import gpus_now, summaries
from accounting_app.gpu_watch.idle import AttemptUse, idle_change, note_idle_gpus
from accounting_app.gpu_watch.minutes import COLUMNS, Minute, merged, store_readings
from accounting_app.models import DailyUsage, GpuMinute
from cluster_app.gpu_faults import (
    STRAY_AFTER,
    UNCONFIRMED_AFTER,
    KnownGpu,
    StrayProcess,
    cordon_gpu,
    return_gpu,
    store_states,
    stray_now,
)
from cluster_app.models import Gpu, Node, NodeEvent
from cluster_app.services import add_node
from connections_app import engine_registry as registry
from engines.protocol import AttemptReport, GpuReading, GpuReport, NodeReport, Throttle, WatchedGpu
from jobs_app.models import Attempt, GpuClaim, Job, JobEvent, Team
from operations.loops import both_turns, engine_turn
from scheduler_app.models import SchedulerLease
from scheduler_app.round import watch_gpus
from scheduler_app.round.watch_gpus import EVERY, number_of_parts
from tests.scheduler.played_engine import PlayedEngine
from tests.service_lab import Lab

A_MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOAD = GpuReading(0, 90.0, 1000.0, 300.0, 60.0, 0, processes=())
IDLE = replace(LOAD, utilization=1.0, power_w=60.0)


@dataclass
class MachineWithGpus(PlayedEngine):
    """The node n1 of eight GPUs with a driver: what it reports, the test says."""

    readings: dict[int, GpuReading] = field(default_factory=dict)
    """By index; else the load of a training."""
    reports: dict[int, GpuReport | None] = field(default_factory=dict)
    """By index; None: the driver does not list it."""

    faulty: dict[int, dict[str, str]] = field(default_factory=dict)
    """Attempt → GPUs on which a hook of the site failed; other processes keep these GPUs busy."""

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        found = super().poll(attempts)
        return [
            replace(one, faulty_gpus=self.faulty[one.attempt], proven_gone=False) if one.attempt in self.faulty else one
            for one in found
        ]

    def nodes(self) -> list[NodeReport]:
        reports = [self.reports.get(n, GpuReport(n, uuid=f"GPU-{n}")) for n in range(8)]
        gpus = tuple(report for report in reports if report is not None)
        return [NodeReport("n1", "a100", gpus, 64, 512 * 1024)]

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        return [replace(self.readings.get(gpu.index, LOAD), gpu=gpu.gpu) for gpu in gpus]


@pytest.fixture
def machine(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> MachineWithGpus:
    played = MachineWithGpus(names=["n1"], now=NOON)
    monkeypatch.setattr(registry, "FACTORIES", dict.fromkeys(registry.FACTORIES, lambda _: played))
    registry.engine_over.cache_clear()
    lab.node("n1", gpus=8)
    Node.objects.update(emulated=False)
    for gpu in Gpu.objects.all():
        Gpu.objects.filter(pk=gpu.pk).update(uuid=f"GPU-{gpu.index}")
    return played


@pytest.fixture
def turns(machine: MachineWithGpus) -> Callable[..., datetime]:
    """Turns of the scheduler, of which the first three decide rounds too; attempts start as they are launched."""

    def pass_time(length: timedelta, *, step: timedelta = EVERY) -> datetime:
        for turn in range(length // step):
            machine.now += step
            assert (both_turns if turn < 3 else engine_turn)("tests", machine.now)
            for number, played in machine.alive().items():
                if played.started_at is None:
                    machine.start(number)
        return machine.now

    return pass_time


def faults() -> dict[int, str]:
    return dict(Gpu.objects.exclude(fault="").values_list("index", "fault"))


def warnings(job: Job) -> list[str]:
    return list(job.events.filter(kind=JobEvent.Kind.WARNING).values_list("message", flat=True))


@pytest.mark.parametrize("note", ["note_idle_gpus", "note_gpu_speeds"])
def test_an_error_of_what_follows_from_readings_keeps_none_from_being_stored(
    turns: Callable[..., datetime], monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    def failing(_: datetime) -> None:
        raise FloatingPointError

    failing.__name__ = note
    monkeypatch.setattr(watch_gpus, note, failing)
    turns(10 * A_MINUTE, step=A_MINUTE)
    assert SchedulerLease.objects.get(pk=SchedulerLease.Loop.ENGINES).watched_at == NOON + 10 * A_MINUTE
    assert GpuMinute.objects.filter(minute=NOON + 10 * A_MINUTE).exists()


# -- by the minute ---------------------------------------------------------------------------------------------------


def test_a_minute_has_the_mean_and_the_highest_of_its_readings() -> None:
    hot = replace(LOAD, utilization=30.0, temperature_c=88.0, throttle=Throttle.HW_THERMAL)
    new, changed = merged({}, [((7, 3), LOAD), ((7, 3), hot), ((7, None), hot)])
    columns = dict(zip(COLUMNS, new[7, 3].columns(), strict=True))
    assert (columns["readings"], columns["utilization"], columns["utilization_max"]) == (2, 60.0, 90.0)
    assert (columns["temperature_max_c"], columns["throttle"]) == (88.0, 0x40)
    assert (new[7, None].readings, changed) == (1, {})


def test_what_the_driver_does_not_say_is_left_out_of_the_mean() -> None:
    minute = Minute().with_reading(GpuReading(1)).with_reading(LOAD)
    assert (minute.readings, minute.utilization.mean, minute.ecc_errors) == (2, 90.0, 0)
    assert Minute().with_reading(GpuReading(1)).utilization.mean is None


def test_readings_without_figures_do_not_weigh_on_the_mean_of_the_others(machine: MachineWithGpus) -> None:
    gpu = Gpu.objects.get(index=0)
    for utilization in (None, None, None, None, 0.0, 100.0):
        store_readings([GpuReading(gpu.pk, utilization)], {}, NOON)
    minute = GpuMinute.objects.get()
    assert (minute.readings, minute.utilization, minute.utilization_max) == (2, 50.0, 100.0)


def test_readings_belong_to_the_attempt_that_holds_the_gpu(lab: Lab, machine: MachineWithGpus, turns: Any) -> None:
    lab.submit(gpus=2)
    turns(timedelta(minutes=3))
    (attempt,) = Attempt.objects.all()
    held = set(GpuClaim.objects.values_list("gpu", flat=True))
    minutes = GpuMinute.objects.filter(attempt=attempt)
    assert (len(held), set(minutes.values_list("gpu", flat=True))) == (2, held)
    assert 6 in minutes.values_list("readings", flat=True)
    assert set(minutes.values_list("utilization", flat=True)) == {90.0}
    assert GpuMinute.objects.filter(attempt=None).values("gpu").distinct().count() >= 6


def test_energy_is_power_times_time(lab: Lab, machine: MachineWithGpus, turns: Any) -> None:
    lab.submit(gpus=2)
    turns(timedelta(minutes=1))
    before = Attempt.objects.get().gpu_energy_j
    turns(timedelta(minutes=2))
    attempt, day = Attempt.objects.get(), DailyUsage.objects.get()
    assert attempt.gpu_energy_j - before == pytest.approx(2 * 300 * 120)
    assert (day.team_id, day.read_energy_j) == (attempt.job.team_id, pytest.approx(attempt.gpu_energy_j))


@pytest.mark.parametrize(("gpus", "parts"), [(0, 1), (8, 1), (1024, 1), (1025, 2), (5000, 5), (100_000, 5)])
def test_many_gpus_are_read_in_parts_but_each_once_a_minute(gpus: int, parts: int) -> None:
    assert number_of_parts(gpus) == parts


@pytest.mark.thorough
def test_parts_together_read_every_gpu_and_count_its_energy_in_full(
    lab: Lab, machine: MachineWithGpus, turns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler_app.round.watch_gpus.MOST_READ", 4)
    lab.submit(gpus=8)
    turns(timedelta(minutes=1))
    before = Attempt.objects.get().gpu_energy_j
    turns(timedelta(minutes=2))
    assert GpuMinute.objects.filter(attempt__isnull=False).values("gpu").distinct().count() == 8
    assert Attempt.objects.get().gpu_energy_j - before == pytest.approx(8 * 300 * 120)


@pytest.mark.thorough
def test_what_is_read_of_a_gpu_that_the_site_chose_is_that_of_its_job(
    lab: Lab, machine: MachineWithGpus, turns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has claims on GPUs 0 and 1; Slurm gave it 4 and 6, of which the driver on the node tells."""

    def read_on_the_node(gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        attempts = {gpu.attempt for gpu in gpus} - {None}
        return [replace(LOAD, gpu=gpu.gpu, attempt=one) for one in attempts for gpu in gpus if gpu.index in (4, 6)]

    monkeypatch.setattr(machine, "read_gpus", read_on_the_node)
    Gpu.objects.update(uuid="")
    job = lab.submit(gpus=2)
    turns(timedelta(minutes=1))
    before = Attempt.objects.get().gpu_energy_j
    turns(timedelta(minutes=2))
    attempt = Attempt.objects.get()
    assert {gpu.gpu.index for gpu in GpuClaim.objects.all()} == {0, 1}
    assert [(one.index, one.utilization) for one in summaries(attempt)] == [(4, 90.0), (6, 90.0)]
    assert attempt.gpu_energy_j - before == pytest.approx(2 * 300 * 120)
    assert {(one.index, one.job) for one in gpus_now(machine.now)} == {(4, job.pk), (6, job.pk)}


@pytest.mark.parametrize("step_s", [12, pytest.param(20, marks=pytest.mark.thorough)])
def test_no_part_is_skipped_whatever_the_time_between_turns(
    lab: Lab, machine: MachineWithGpus, turns: Any, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    monkeypatch.setattr("scheduler_app.round.watch_gpus.MOST_READ", 2)
    turns(timedelta(seconds=6 * step_s), step=timedelta(seconds=step_s))
    assert GpuMinute.objects.values("gpu").distinct().count() == 8


# -- idle ------------------------------------------------------------------------------------------------------------


def use(*, gpus: int = 8, idle: int = 0) -> AttemptUse:
    return AttemptUse(1, Job().pk, 1, gpus, idle, NOON if idle else None)


@pytest.mark.parametrize(
    ("before", "idle", "warning"),
    [
        (use(), 3, "3 of its 8 GPUs have been below 5 % utilization for 10 minutes"),
        (use(idle=3), 8, "all of its 8 GPUs have been below 5 % utilization for 10 minutes"),
        (use(idle=3), 2, ""),
        (use(gpus=1), 1, "its GPU has been below 5 % utilization for 10 minutes"),
    ],
)
def test_an_owner_is_warned_when_gpus_become_idle_and_when_all_are(before: AttemptUse, idle: int, warning: str) -> None:
    change = idle_change(before, idle, NOON)
    assert (change.idle_gpus, change.idle_since, change.warning) == (idle, NOON, warning)


def test_gpus_that_stay_idle_are_told_once_and_busy_ones_end_it() -> None:
    assert idle_change(use(idle=3), 3, NOON) is None
    assert idle_change(use(), 0, NOON) is None
    assert idle_change(use(idle=3), 0, NOON).idle_since is None


def test_an_idle_gpu_warns_its_owner_after_ten_minutes_and_once(lab: Lab, machine: MachineWithGpus, turns: Any) -> None:
    job = lab.submit(gpus=8)
    machine.readings = {0: IDLE}
    turns(timedelta(minutes=9), step=A_MINUTE)
    assert warnings(job) == []
    turns(timedelta(minutes=6), step=A_MINUTE)
    assert warnings(job) == ["1 of its 8 GPUs has been below 5 % utilization for 10 minutes"]
    assert Attempt.objects.get().idle_gpus == 1
    machine.readings = {}
    turns(timedelta(minutes=2), step=A_MINUTE)
    assert Attempt.objects.get().idle_gpus == 0


@pytest.mark.thorough
def test_jobs_are_locked_before_attempts_are_written(lab: Lab, machine: MachineWithGpus, turns: Any) -> None:
    """Another order could deadlock with a cancel, which locks the job first."""
    lab.submit(gpus=8)
    machine.readings = {0: IDLE}
    turns(timedelta(minutes=12), step=A_MINUTE)
    Attempt.objects.update(idle_gpus=0)
    machine.now += A_MINUTE
    with CaptureQueriesContext(connection) as queries:
        note_idle_gpus(machine.now)
    touched = [q["sql"].split('"')[1] for q in queries if '"jobs_app_' in q["sql"] and "JOIN" not in q["sql"]]
    assert touched[-3:] == ["jobs_app_job", "jobs_app_attempt", "jobs_app_jobevent"]


def test_by_the_rule_of_its_team_an_idle_job_is_stopped_gracefully(
    lab: Lab, machine: MachineWithGpus, turns: Any
) -> None:
    job = lab.submit(gpus=8)
    Team.objects.update(idle_gpus_limit_min=15)
    machine.readings = dict.fromkeys(range(8), IDLE)
    turns(timedelta(minutes=14), step=A_MINUTE)
    assert machine.stopped == set()
    turns(timedelta(minutes=4), step=A_MINUTE)
    attempt = Attempt.objects.get()
    assert machine.stopped == {attempt.pk}
    note = "none of its GPUs was in use for 15 minutes, the limit of the team vision"
    assert (attempt.stop_reason, attempt.stop_note) == ("timeout", note)
    machine.exit(attempt.pk, 143)
    turns(timedelta(seconds=10))
    assert Job.objects.get(pk=job.pk).state == Job.State.TIMED_OUT


@pytest.mark.parametrize("jump", [timedelta(hours=2), pytest.param(timedelta(minutes=5), marks=pytest.mark.thorough)])
def test_after_a_time_without_watch_no_job_is_stopped_for_what_was_known_before(
    lab: Lab, machine: MachineWithGpus, turns: Any, jump: timedelta
) -> None:
    """The scheduler was down, or its clock was set forward."""
    lab.submit(gpus=8)
    Team.objects.update(idle_gpus_limit_min=15)
    machine.readings = dict.fromkeys(range(8), IDLE)
    turns(timedelta(minutes=13), step=A_MINUTE)
    assert Attempt.objects.get().idle_gpus == 8
    machine.now += jump
    turns(timedelta(seconds=40))
    assert (machine.stopped, Attempt.objects.get().idle_gpus) == (set(), 0)


def test_the_rule_of_a_team_is_from_ten_minutes_to_a_year(lab: Lab, machine: MachineWithGpus) -> None:
    lab.submit(gpus=1)
    team = Team.objects.get()
    for minutes in (9, 525_601, 99_999_999):
        team.idle_gpus_limit_min = minutes
        with pytest.raises(ValidationError):
            team.full_clean()
        with pytest.raises(IntegrityError), transaction.atomic():
            team.save()


def test_readings_that_cannot_be_stored_stop_nothing_else_of_a_turn(
    lab: Lab, machine: MachineWithGpus, turns: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lab.submit(gpus=1)
    machine.readings = {0: replace(LOAD, ecc_errors=2**64 - 1)}
    turns(timedelta(seconds=30))
    assert Attempt.objects.get().state == Attempt.State.RUNNING
    assert "what was read of GPUs could not be stored" in caplog.text


@pytest.mark.thorough
def test_one_busy_gpu_keeps_a_job_of_that_team_running(lab: Lab, machine: MachineWithGpus, turns: Any) -> None:
    lab.submit(gpus=8)
    Team.objects.update(idle_gpus_limit_min=10)
    machine.readings = dict.fromkeys(range(7), IDLE)
    turns(timedelta(minutes=16), step=A_MINUTE)
    assert (machine.stopped, Attempt.objects.get().idle_gpus) == (set(), 7)


# -- out of service --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        (GpuReport(3, "GPU-3", fault="it does not answer the driver"), "it does not answer the driver"),
        (GpuReport(3, "GPU-3", xid=79), "critical error: XID 79 (look it up in NVIDIA's list of XIDs)"),
        (None, "the driver does not list it"),
    ],
)
def test_a_dead_gpu_leaves_seven_in_use(
    lab: Lab, machine: MachineWithGpus, turns: Any, report: GpuReport | None, fault: str
) -> None:
    machine.reports = {3: report}
    turns(timedelta(seconds=10))
    for _ in range(8):
        lab.submit(gpus=1)
    turns(timedelta(seconds=30))
    assert faults() == {3: fault}
    assert sorted(GpuClaim.objects.holding().values_list("gpu__index", flat=True)) == [0, 1, 2, 4, 5, 6, 7]
    assert NodeEvent.objects.filter(kind="gpu").get().message == f"GPU 3 is out of service: {fault}"


def test_a_gpu_that_the_driver_finds_again_is_back_but_not_after_a_critical_error(
    machine: MachineWithGpus, turns: Any
) -> None:
    machine.reports = {2: None, 3: GpuReport(3, "GPU-3", xid=79)}
    turns(timedelta(seconds=10))
    machine.reports = {}
    turns(timedelta(seconds=10))
    assert [*faults()] == [3]
    return_gpu(Gpu.objects.get(index=3), actor=None)
    turns(timedelta(seconds=10))
    assert (faults(), Gpu.objects.filter(healthy=False).count()) == ({}, 0)


def test_a_returned_gpu_stays_in_service_while_its_error_is_still_told(machine: MachineWithGpus, turns: Any) -> None:
    error = GpuReport(3, "GPU-3", xid=79, xid_at=timezone.now())
    machine.reports = {3: error}
    turns(timedelta(seconds=10))
    return_gpu(Gpu.objects.get(index=3), actor=None)
    turns(timedelta(seconds=10))
    assert faults() == {}
    machine.reports = {3: replace(error, xid_at=timezone.now())}
    turns(timedelta(seconds=10))
    assert [*faults()] == [3]


def test_a_gpu_that_was_taken_out_by_hand_stays_out(machine: MachineWithGpus, turns: Any) -> None:
    cordon_gpu(Gpu.objects.get(index=5), reason="bent connector", actor=None)
    turns(timedelta(seconds=20))
    assert faults() == {5: "bent connector"}


def test_a_cordon_between_reading_and_writing_is_not_lost(machine: MachineWithGpus) -> None:
    gpu = Gpu.objects.get(index=5)
    before = KnownGpu(gpu.pk, gpu.node_id, gpu.index, "", "")
    cordon_gpu(gpu, reason="bent connector", actor=None)
    store_states({before: ("the driver does not list it", Gpu.FaultSource.DRIVER)})
    assert faults() == {5: "bent connector"}
    assert NodeEvent.objects.filter(kind="gpu").count() == 1


def test_a_process_that_nobody_accounts_for_takes_its_gpu_out_while_it_is_there(
    machine: MachineWithGpus, turns: Any
) -> None:
    machine.readings = {6: replace(LOAD, processes=(4711,))}
    turns(timedelta(seconds=20))
    assert faults() == {}
    turns(STRAY_AFTER + timedelta(seconds=10))
    assert faults() == {6: "no job accounts for the process 4711 on it"}
    machine.readings = {}
    turns(timedelta(seconds=10))
    assert faults() == {}


@pytest.mark.thorough
def test_a_process_that_can_no_longer_be_seen_counts_as_gone_after_ten_minutes(
    machine: MachineWithGpus, turns: Any
) -> None:
    machine.readings = {6: replace(LOAD, processes=(4711,))}
    turns(timedelta(minutes=1))
    machine.readings = {6: replace(LOAD, processes=None)}  # the driver no longer says
    turns(UNCONFIRMED_AFTER - timedelta(minutes=1), step=A_MINUTE)
    assert [*faults()] == [6]
    turns(timedelta(minutes=3), step=A_MINUTE)
    assert faults() == {}
    assert Gpu.objects.filter(stray_since__isnull=False).count() == 0


def test_time_in_which_gpus_are_not_watched_or_the_node_is_silent_confirms_and_refutes_nothing() -> None:
    before = StrayProcess(NOON - timedelta(hours=2), NOON - timedelta(hours=1))
    assert stray_now(None, before, NOON, is_watched=False) == StrayProcess(before.since, NOON)
    assert stray_now(None, before, NOON, is_watched=True) == StrayProcess(None, None)


@pytest.mark.thorough
def test_a_process_that_was_seen_before_a_time_without_watch_counts_anew(machine: MachineWithGpus, turns: Any) -> None:
    machine.readings = {6: replace(LOAD, processes=(4711,))}
    turns(timedelta(seconds=10))
    machine.now += timedelta(hours=2)
    turns(timedelta(seconds=20))
    assert faults() == {}
    turns(STRAY_AFTER)
    assert [*faults()] == [6]


def test_processes_of_a_running_job_are_accounted_for(lab: Lab, machine: MachineWithGpus, turns: Any) -> None:
    lab.submit(gpus=8)
    turns(timedelta(seconds=20))
    machine.readings = dict.fromkeys(range(8), replace(LOAD, processes=(4711,)))
    turns(timedelta(minutes=1))
    assert faults() == {}


def test_processes_are_not_searched_for_where_the_driver_was_late(machine: MachineWithGpus, turns: Any) -> None:
    machine.readings = dict.fromkeys(range(8), replace(LOAD, processes=None))
    turns(timedelta(minutes=1))
    assert Gpu.objects.filter(stray_since__isnull=False).count() == 0


def test_a_gpu_in_another_slot_has_no_fault_of_the_one_before(machine: MachineWithGpus) -> None:
    node = Node.objects.get()
    cordon_gpu(Gpu.objects.get(index=5), reason="bent connector", actor=None)
    uuids = [f"GPU-{n}" for n in range(5)] + ["GPU-new", "GPU-6", "GPU-7"]
    add_node("n1", node.gpu_type, gpus=8, cpus=64, memory_mib=1024, uuids=uuids)
    assert faults() == {}


# -- hooks of the site -----------------------------------------------------------------------------------------------


def test_a_gpu_that_fails_the_hook_before_a_job_is_out_and_the_job_runs_elsewhere(
    lab: Lab, settings: Any, engine_root: Path
) -> None:
    hook = engine_root / "hook"
    hook.write_text("#!/bin/sh\necho remap pending\ntest $1 != GPU-n1\n")
    hook.chmod(0o755)
    settings.MOTLEY_GPU_HOOK_BEFORE = f"{hook} {{gpu}}"
    registry.engine_over.cache_clear()
    for name in ("n1", "n2"):
        lab.node(name, gpus=1)
        Gpu.objects.filter(node__name=name).update(uuid=f"GPU-{name}")
    job = lab.submit("true")
    lab.until(lambda: Gpu.objects.filter(healthy=False).exists())
    lab.ahead += timedelta(seconds=15)  # a job waits for ten after a start that failed by its node's fault
    lab.until_state(job, Job.State.SUCCEEDED)
    out = Gpu.objects.get(healthy=False)
    assert (out.uuid, out.fault) == ("GPU-n1", "the site's hook failed: exit code 1: remap pending")
    assert [attempt.nodes for attempt in lab.attempts(job)] == [["n1"], ["n2"]]
    assert (job.failures, job.losses, job.requeues) == (0, 0, 0)


def test_a_gpu_that_an_administrator_returned_is_not_taken_out_by_a_report_that_is_repeated(
    lab: Lab, machine: MachineWithGpus, turns: Any
) -> None:
    lab.submit(gpus=1)
    turns(timedelta(seconds=30))
    attempt = Attempt.objects.get()
    machine.exit(attempt.pk, 0)
    (gpu,) = Gpu.objects.filter(claims__attempt=attempt)
    machine.faulty = {attempt.pk: {gpu.uuid: "exit code 1"}}
    turns(timedelta(seconds=10))
    assert faults() == {gpu.index: "the site's hook failed: exit code 1"}
    return_gpu(Gpu.objects.get(pk=gpu.pk), actor=None)
    turns(timedelta(seconds=30))
    assert faults() == {}
