"""CPUs and memory by what they gain: chosen by the round, told to the job, and shown."""

import re
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.apps import apps
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from cluster_app.models import Engine, Gpu, Node
from insight_app.explain.decisions import explain_job
from insight_app.explain.policy_preview import preview_policy
from jobs_app.measurement.progress_reports import ProgressDelta, note_progress
from jobs_app.models import Attempt, CpuRate, Job
from jobs_app.secrets import UsableSecrets
from scheduler_app.models import PolicySetting, Round
from scheduler_app.policy.settings import choose_policy
from scheduler_app.round.dispatch import LaunchInputs, launch_command, launch_gpus_of, note_told_shares
from scheduler_app.round.inputs.cpu_curves import FORGOTTEN_AFTER
from scheduler_app.round.lease import acquire_lease, open_round
from scheduler_app.round.replay import replay_round
from scheduler_app.round.run_round import cpu_memory_shares, decide, run_round, take_snapshot
from tests.engines.stand_in_cgroup import StandInCgroup
from tests.scheduler.decided_round import Decided
from tests.service_lab import UNTIL_LET_GO, Lab

How = Attempt.CpuMemory
HUNGRY = {"cpu_curve": {1: 0.3, 3: 1.0, 6: 1.75, 10: 2.9}}
MODEST = {"cpu_curve": {1: 1.0}}
READING = {"dataset": "160GiB", "bytes_per_sample": 100_000, "samples_per_second": 10_000}
Share = tuple[int, int, str]


@pytest.fixture
def tuned(lab: Lab) -> Lab:
    """A node of 4 GPUs, 12 CPUs and 64 GiB, on which jobs are tuned."""
    lab.node("n1", gpus=4, cpus=12, memory_gib=64)
    choose_policy(PolicySetting(policy="fifo", cpu_memory="tune", round_length_s=1, min_run_s=0), actor=None)
    return lab


def placed(lab: Lab, *jobs: dict[str, Any]) -> list[Job]:
    """Jobs that a round has placed; no engine is told."""
    submitted = [lab.submit(name=f"job-{i}", **spec) for i, spec in enumerate(jobs)]
    assert acquire_lease("lab", lab.now)
    assert run_round("lab", lab.now).result == Round.Result.COMMITTED
    return submitted


def share_of(lab: Lab, job: Job) -> Share:
    attempt = lab.attempts(job)[-1]
    return attempt.cpus_per_gpu, attempt.memory_per_gpu_mib, attempt.cpu_memory


# -- what is chosen ----------------------------------------------------------------------------------------------


def test_a_job_gets_the_cpus_that_another_does_not_need(tuned: Lab) -> None:
    hungry, modest = placed(tuned, {"sensitivity": HUNGRY}, {"sensitivity": MODEST})
    assert share_of(tuned, hungry) == (10, 0, How.TUNED)
    assert share_of(tuned, modest) == (1, 0, How.TUNED)


def test_a_job_that_declares_nothing_has_its_proportional_share_of_cpus(tuned: Lab) -> None:
    (job,) = placed(tuned, {})
    assert share_of(tuned, job) == (3, 0, How.PROPORTIONAL)


def two_nodes(lab: Lab) -> None:
    """A second node as the first, both with 2 GPUs and 6 CPUs."""
    lab.node("n2", gpus=2, cpus=6, memory_gib=64)
    Node.objects.filter(name="n1").update(cpus=6)
    Gpu.objects.filter(node__name="n1", index__gte=2).delete()


HUNGRY_OF_TWO = {"sensitivity": {"cpu_curve": {1: 0.3, 3: 1.0, 5: 1.6}}}


def test_a_hungry_job_is_placed_beside_a_modest_one(tuned: Lab) -> None:
    """By their GPUs alone both hungry ones were on the first node, with three CPUs each."""
    two_nodes(tuned)
    jobs = placed(tuned, HUNGRY_OF_TWO, HUNGRY_OF_TWO, {"sensitivity": MODEST}, {"sensitivity": MODEST})
    assert [share_of(tuned, job) for job in jobs] == [(5, 0, How.TUNED)] * 2 + [(1, 0, How.TUNED)] * 2
    assert {tuned.attempts(job)[0].nodes[0] for job in jobs[:2]} == {"n1", "n2"}


def test_what_runs_counts_with_what_it_was_launched_with_though_it_was_lowered(tuned: Lab) -> None:
    """Where it is lowered no more may start if others have room: it is to have its CPUs again."""
    two_nodes(tuned)
    (first,) = placed(tuned, HUNGRY_OF_TWO)
    Attempt.objects.update(cpus_per_gpu=3, told_cpus_per_gpu=5, cpu_memory=How.REVERTED)
    (second,) = placed(tuned, {})
    assert tuned.attempts(first)[0].nodes != tuned.attempts(second)[0].nodes


def test_a_measured_workload_is_placed_by_its_curve(tuned: Lab) -> None:
    shares_while_measured(tuned, {3: 1.0, 6: 1.8, 12: 1.85}, jobs=3)
    two_nodes(tuned)
    Node.objects.update(cpus=8)
    measured, other, third = placed(tuned, {"workload": "hungry"}, {"workload": "hungry"}, {"sensitivity": MODEST})
    assert [share_of(tuned, job)[0] for job in (measured, other, third)] == [6, 6, 1]


def test_a_round_that_places_by_demands_is_replayed(tuned: Lab) -> None:
    two_nodes(tuned)
    placed(tuned, HUNGRY_OF_TWO, HUNGRY_OF_TWO, {"sensitivity": MODEST})
    archived, _, same = replay_round(Round.objects.latest_committed().number)
    assert same
    assert archived.snapshot.inventory.demands is not None


def test_a_preview_places_by_demands_where_its_setting_tunes(tuned: Lab) -> None:
    choose_policy(PolicySetting(policy="fifo", cpu_memory="proportional", round_length_s=1), actor=None)
    tuned.submit(sensitivity=HUNGRY)
    preview = preview_policy(PolicySetting(policy="fifo", cpu_memory="tune", round_length_s=1), tuned.now)
    assert sum(preview.chosen.values()) == 1


def test_where_all_are_hungry_all_have_their_proportional_share(tuned: Lab) -> None:
    jobs = placed(tuned, *[{"sensitivity": HUNGRY}] * 4)
    assert [share_of(tuned, job) for job in jobs] == [(3, 0, How.REVERTED)] * 4


def test_a_job_is_lowered_for_one_that_starts_later_and_is_not_restarted(tuned: Lab) -> None:
    (first,) = placed(tuned, {"sensitivity": HUNGRY})
    assert share_of(tuned, first) == (10, 0, How.TUNED)
    (second,) = placed(tuned, {})
    assert share_of(tuned, second) == (3, 0, How.PROPORTIONAL)
    assert share_of(tuned, first) == (3, 0, How.REVERTED)
    assert len(tuned.attempts(first)) == 1


def test_memory_that_a_job_was_measured_to_hold_is_left_to_it(tuned: Lab) -> None:
    """A limit below it would bring the job to a standstill: the kernel finds no cache there to take back.

    One that starts has its proportional share all the same, for the limit of its start is one at which it is killed.
    """
    Node.objects.update(storage_mib_s=100, memory_mib=160 * 1024)
    reading = {"sensitivity": {"cpu_curve": {3: 1.0}, **READING}}
    (first,) = placed(tuned, reading)
    has = share_of(tuned, first)[1]
    assert has > 140 * 1024
    Attempt.objects.update(peak_memory_mib=80 * 1024)
    (second,) = placed(tuned, reading)
    assert share_of(tuned, first) == (3, 88 * 1024, How.REVERTED)
    assert share_of(tuned, second)[1] == 40 * 1024


def test_memory_of_a_job_of_which_nothing_was_measured_yet_is_not_lowered(tuned: Lab) -> None:
    Node.objects.update(storage_mib_s=100, memory_mib=160 * 1024)
    reading = {"sensitivity": {"cpu_curve": {3: 1.0}, **READING}}
    (first,) = placed(tuned, reading)
    has = share_of(tuned, first)[1]
    (second,) = placed(tuned, reading)
    assert (share_of(tuned, first)[1], share_of(tuned, second)[1]) == (has, 40 * 1024)


def test_a_job_that_was_measured_to_hold_little_gives_back_all_above_its_share(tuned: Lab) -> None:
    Node.objects.update(storage_mib_s=100, memory_mib=160 * 1024)
    reading = {"sensitivity": {"cpu_curve": {3: 1.0}, **READING}}
    (first,) = placed(tuned, reading)
    Attempt.objects.update(peak_memory_mib=1024)
    placed(tuned, reading)
    assert share_of(tuned, first) == (3, 40 * 1024, How.REVERTED)


def test_what_runs_is_not_raised_above_what_it_was_told_when_it_started(tuned: Lab) -> None:
    """It has made as many workers as it was told: CPUs beyond that would be kept from others for nothing."""
    first, second = placed(tuned, {"sensitivity": HUNGRY}, {"sensitivity": HUNGRY})
    Attempt.objects.update(told_cpus_per_gpu=3)
    assert share_of(tuned, second) == (3, 0, How.REVERTED)
    Attempt.objects.filter(job=first).update(cpus_per_gpu=1)
    placed(tuned)
    assert share_of(tuned, second) == (3, 0, How.REVERTED)


def test_what_was_launched_before_an_upgrade_and_lowered_since_is_raised_again(tuned: Lab) -> None:
    """The release before did not store what attempts were told."""
    (first,) = placed(tuned, {"sensitivity": HUNGRY})
    has = share_of(tuned, first)[0]
    Attempt.objects.update(state=Attempt.State.RUNNING, launched_at=tuned.now, started_at=tuned.now)
    import_module("jobs_app.migrations.0017_work_of_tuned_jobs").note_what_was_told(apps, None)
    Attempt.objects.filter(job=first).update(cpus_per_gpu=3, cpu_memory=How.REVERTED)
    placed(tuned)
    assert share_of(tuned, first) == (has, 0, How.RAISED)


def test_of_two_that_were_lowered_one_is_raised_where_there_is_not_enough_for_both(tuned: Lab) -> None:
    jobs = placed(tuned, {"sensitivity": HUNGRY}, {"sensitivity": HUNGRY})
    Attempt.objects.update(told_cpus_per_gpu=7)
    placed(tuned)
    assert sorted(share_of(tuned, job)[0] for job in jobs) == [3, 7]


def test_a_gang_is_not_raised_in_a_round_that_starts_a_job_on_one_of_its_nodes(tuned: Lab) -> None:
    """The gang is on three GPUs of each node, and there would be 15 CPUs of 12 on that where the other job starts."""
    tuned.node("n2", gpus=4, cpus=12, memory_gib=64)
    gang, beside = placed(tuned, {"sensitivity": HUNGRY, "gpus": 6}, {"sensitivity": HUNGRY})
    (other,) = {"n1", "n2"} - set(tuned.attempts(beside)[0].nodes)
    Node.objects.exclude(name=other).update(cpus=24)
    Attempt.objects.filter(job=gang).update(cpus_per_gpu=2, told_cpus_per_gpu=4, cpu_memory=How.REVERTED)
    Attempt.objects.filter(job=beside).update(cpus_per_gpu=1, told_cpus_per_gpu=2, cpu_memory=How.REVERTED)
    (third,) = placed(tuned, {"sensitivity": HUNGRY})
    assert tuned.attempts(third)[0].nodes == [other]
    assert share_of(tuned, beside) == (2, 0, How.RAISED)
    assert share_of(tuned, gang)[0] == 2


def test_a_job_that_would_need_more_than_the_node_gets_what_the_node_has(tuned: Lab) -> None:
    (greedy,) = placed(tuned, {"sensitivity": {"cpu_curve": {3: 1.0, 30: 10.0}}, "gpus": 2})
    assert share_of(tuned, greedy) == (6, 0, How.TUNED)


def test_what_runs_with_less_than_its_share_is_not_raised_for_want_of_cpus(tuned: Lab) -> None:
    first, modest = placed(tuned, {"sensitivity": HUNGRY}, {"sensitivity": MODEST})
    second, third = placed(tuned, {}, {})
    assert share_of(tuned, modest) == (1, 0, How.TUNED)
    assert [share_of(tuned, job)[0] for job in (first, second, third)] == [3, 3, 3]


def test_on_a_node_with_fewer_cpus_than_gpus_each_gpu_has_one_and_no_job_keeps_more(tuned: Lab) -> None:
    (first,) = placed(tuned, {"sensitivity": HUNGRY})
    Node.objects.update(cpus=2)
    (second,) = placed(tuned, {})
    assert share_of(tuned, first) == (1, 0, How.REVERTED)
    assert share_of(tuned, second) == (1, 0, How.PROPORTIONAL)


def test_a_job_is_not_lowered_for_one_that_could_not_start(tuned: Lab) -> None:
    (first,) = placed(tuned, {"sensitivity": HUNGRY})
    second = tuned.submit(name="second")
    decided = Decided.now(tuned, "lab", open_round("lab", tuned.now))
    assert decided.starts(second)
    Job.objects.filter(pk=second.pk).update(held=True)
    decided.commit(tuned)
    assert share_of(tuned, first) == (10, 0, How.TUNED)


def test_a_job_that_the_plan_stops_has_its_cpus_until_it_is_gone(tuned: Lab) -> None:
    (first,) = placed(tuned, {"sensitivity": HUNGRY, "gpus": 2})
    assert share_of(tuned, first) == (6, 0, How.TUNED)
    second, setting = tuned.submit(name="second", sensitivity=HUNGRY), PolicySetting.objects.current()
    snapshot, _, rows, _ = take_snapshot(tuned.now, setting)
    plan = decide(snapshot, setting.policy, setting.parameters)
    row = snapshot.jobs.index(str(second.pk))
    stopping = replace(plan, owner=np.where(plan.owner == row, row, -1))
    shares = cpu_memory_shares(rows, snapshot, stopping)
    assert shares.starting[row] == (3, 0, How.REVERTED)
    assert [one.share for one in shares.lowered.values()] == [(3, 0, How.REVERTED)]


def test_jobs_that_have_more_than_the_node_are_lowered_though_none_starts(tuned: Lab) -> None:
    jobs = placed(tuned, {"sensitivity": HUNGRY}, {"sensitivity": HUNGRY})
    Attempt.objects.update(cpus_per_gpu=10, cpu_memory=How.TUNED)
    placed(tuned)
    assert [share_of(tuned, job)[0] for job in jobs] == [3, 3]
    assert all(tuned.attempts(job)[0].share_due for job in jobs)


def test_a_job_from_before_the_switch_has_its_share_by_name_once_another_starts_beside_it(tuned: Lab) -> None:
    first, fixed = placed(tuned, {"sensitivity": HUNGRY | READING}, {"cpus_per_gpu": 2})
    Attempt.objects.update(cpus_per_gpu=0, memory_per_gpu_mib=0, cpu_memory="")
    placed(tuned)
    assert share_of(tuned, first) == (0, 0, "")
    placed(tuned, {"sensitivity": MODEST})
    assert share_of(tuned, first) == (3, 0, How.PROPORTIONAL)
    assert share_of(tuned, fixed) == (0, 0, "")
    assert tuned.attempts(first)[0].share_due


def test_a_job_elsewhere_keeps_what_it_has(tuned: Lab) -> None:
    (first,) = placed(tuned, {"sensitivity": HUNGRY, "gpus": 4})
    tuned.node("n2", gpus=4, cpus=12, memory_gib=64)
    (second,) = placed(tuned, {"sensitivity": HUNGRY})
    assert share_of(tuned, first) == (3, 0, How.TUNED)
    assert share_of(tuned, second) == (10, 0, How.TUNED)


def test_what_a_job_asks_for_is_left_alone_and_the_others_share_the_rest(tuned: Lab) -> None:
    fixed, other = placed(tuned, {"cpus_per_gpu": 6}, {})
    assert share_of(tuned, fixed) == (0, 0, "")
    assert share_of(tuned, other) == (2, 0, How.PROPORTIONAL)


def test_a_gang_over_two_nodes_has_the_share_of_the_poorer(tuned: Lab) -> None:
    tuned.node("n2", gpus=4, cpus=40, memory_gib=64)
    (gang,) = placed(tuned, {"gpus": 8})
    assert share_of(tuned, gang) == (3, 0, How.PROPORTIONAL)


def test_memory_is_given_to_a_job_that_waits_for_storage(tuned: Lab) -> None:
    """At 100 MiB/s nine tenths of the data must be in memory."""
    Node.objects.update(storage_mib_s=100, memory_mib=400 * 1024)
    (job,) = placed(tuned, {"sensitivity": {"cpu_curve": {3: 1.0}, **READING}})
    cpus, memory_mib, how = share_of(tuned, job)
    assert (cpus, how) == (3, How.TUNED)
    assert 143 * 1024 < memory_mib <= 160 * 1024


def test_without_the_bandwidth_of_the_storage_the_proportional_memory_is_enough(tuned: Lab) -> None:
    (job,) = placed(tuned, {"sensitivity": {"cpu_curve": {3: 1.0}, **READING}})
    assert share_of(tuned, job) == (3, 16 * 1024, How.TUNED)


# -- where the site books for as long as a job runs ---------------------------------------------------------------


@pytest.fixture
def booking(tuned: Lab) -> Lab:
    """The node of 4 GPUs and 12 CPUs is Slurm's; nothing is launched there."""
    Engine.objects.update(kind=Engine.Kind.SLURM)
    return tuned


def test_a_slurm_job_has_its_share_and_idle_gpus_keep_theirs(booking: Lab) -> None:
    (hungry,) = placed(booking, {"sensitivity": HUNGRY})
    assert share_of(booking, hungry) == (3, 0, How.TUNED)
    (beside,) = placed(booking, {})
    assert share_of(booking, beside) == (3, 0, How.PROPORTIONAL)


def test_a_slurm_job_has_what_jobs_that_need_less_than_their_share_leave(booking: Lab) -> None:
    hungry, *modest = placed(booking, {"sensitivity": HUNGRY}, *[{"sensitivity": MODEST}] * 3)
    assert share_of(booking, hungry) == (9, 0, How.TUNED)
    assert [share_of(booking, job)[0] for job in modest] == [1, 1, 1]


def test_a_share_that_is_booked_is_neither_lowered_nor_raised(booking: Lab) -> None:
    placed(booking, *[{"sensitivity": MODEST}] * 2)
    (hungry,) = placed(booking, {"sensitivity": HUNGRY})
    assert share_of(booking, hungry) == (7, 0, How.TUNED)
    (last,) = placed(booking, {"sensitivity": HUNGRY})
    assert share_of(booking, last) == (3, 0, How.TUNED)
    assert share_of(booking, hungry) == (7, 0, How.TUNED)
    assert not Attempt.objects.filter(share_due=True)


def test_of_two_slurm_jobs_that_start_at_once_one_has_what_is_left(booking: Lab) -> None:
    jobs = placed(booking, *[{"sensitivity": HUNGRY}] * 2, *[{"sensitivity": MODEST}] * 2)
    assert sum(share_of(booking, job)[0] for job in jobs) <= 12
    assert min(share_of(booking, job)[0] for job in jobs[:2]) >= 3


def test_a_job_that_asks_for_more_cpus_than_are_booked_no_more_waits_with_motley(booking: Lab) -> None:
    """It would be placed, and wait at Slurm until the others have ended."""
    placed(booking, {}, {}, {})
    (waiting,) = placed(booking, {"cpus_per_gpu": 4})
    assert not booking.attempts(waiting)
    Job.objects.filter(pk=waiting.pk).update(held=True)
    (fitting,) = placed(booking, {"cpus_per_gpu": 3})
    assert booking.attempts(fitting)


def test_a_job_takes_the_gpus_of_another_with_the_cpus_that_were_booked_for_it(booking: Lab) -> None:
    """The one has all CPUs of the node as its share; they go with it."""
    setting = PolicySetting(policy="srtf", cpu_memory="tune", round_length_s=1, min_run_s=0)
    choose_policy(setting, actor=None)
    (long,) = placed(booking, {"gpus": 4, "total_steps": 10**6, "rates": {"a100": 1.0}})
    assert share_of(booking, long)[0] == 3
    Attempt.objects.update(state=Attempt.State.RUNNING, started_at=booking.now - timedelta(hours=1))
    Job.objects.update(state=Job.State.RUNNING)
    short = booking.submit(gpus=4, cpus_per_gpu=3, total_steps=10, rates={"a100": 1.0})
    decided = Decided.now(booking, "lab", open_round("lab", booking.now))
    assert decided.starts(short)


def test_a_slurm_job_is_placed_on_the_fullest_node_that_has_its_share(booking: Lab) -> None:
    """What is booked on a node is taken from it once."""
    booking.node("n2", gpus=4, cpus=12, memory_gib=64)
    Engine.objects.update(kind=Engine.Kind.SLURM)
    (first,) = placed(booking, {"gpus": 2})
    (second,) = placed(booking, {})
    assert [booking.attempts(job)[0].nodes for job in (first, second)] == [["n1"], ["n1"]]


def test_jobs_that_ask_for_all_cpus_leave_none_to_one_that_asks_for_none(booking: Lab) -> None:
    """Slurm gives each task a CPU, so that such a job would wait there: with the default setting, too."""
    choose_policy(PolicySetting(policy="fifo", cpu_memory="proportional", round_length_s=1, min_run_s=0), actor=None)
    placed(booking, {"cpus_per_gpu": 12})
    (other,) = placed(booking, {})
    assert not booking.attempts(other)
    other.refresh_from_db()
    assert "the CPUs or the memory beside them are used" in other.message


def test_what_the_sites_option_books_for_each_gpu_is_counted(booking: Lab) -> None:
    Engine.objects.update(options={"root": "/shared", "cpus_per_gpu": 5, "memory_mib_per_gpu": "much"})
    first, second, third = placed(booking, {}, {"sensitivity": MODEST}, {})
    assert [len(booking.attempts(job)) for job in (first, second, third)] == [1, 1, 0]
    assert share_of(booking, second)[0] == 5


def test_cpus_of_jobs_outside_motley_are_nobodys(booking: Lab) -> None:
    Node.objects.update(foreign_gpus=1, foreign_cpus=6)
    hungry, modest = placed(booking, {"sensitivity": HUNGRY}, {"sensitivity": MODEST})
    assert (share_of(booking, hungry)[0], share_of(booking, modest)[0]) == (3, 1)


@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_come_one_by_one_find_cpus_on_every_gpu_of_a_slurm_node(booking: Lab, seed: int) -> None:
    """Whatever those before them have booked: with the last GPU no more CPUs are given than there are."""
    Engine.objects.update(inventory={"n1": {"cpus_per_core": 1 + seed % 2}})
    kinds = [{}, {"sensitivity": HUNGRY}, {"sensitivity": MODEST}, {"sensitivity": {"cpu_curve": {2: 0.5, 5: 1.0}}}]
    drawn = np.random.default_rng(seed).integers(len(kinds), size=4)
    jobs = [job for kind in drawn.tolist() for job in placed(booking, kinds[kind])]
    given = [share_of(booking, job)[0] for job in jobs]
    assert all(given)
    assert sum(given) <= 12


def test_shares_are_whole_cores_where_slurm_books_these(booking: Lab) -> None:
    """Three of twelve CPUs would be booked as four, and the last of four jobs waited at Slurm."""
    Engine.objects.update(inventory={"n1": {"cpus_per_core": 2}})
    jobs = placed(booking, *[{}] * 4)
    assert [share_of(booking, job)[0] for job in jobs] == [2, 2, 2, 2]


def test_cores_of_jobs_that_ask_for_a_part_of_one_are_counted_whole(booking: Lab) -> None:
    """Three jobs with three CPUs have four each, which are all of the node's."""
    Engine.objects.update(inventory={"n1": {"cpus_per_core": 2}})
    placed(booking, *[{"cpus_per_gpu": 3}] * 3)
    (last,) = placed(booking, {})
    assert not booking.attempts(last)


def test_a_demand_is_met_in_whole_cores(booking: Lab) -> None:
    Engine.objects.update(inventory={"n1": {"cpus_per_core": 2}})
    hungry, *modest = placed(booking, {"sensitivity": {"cpu_curve": {1: 0.3, 5: 1.0}}}, *[{"sensitivity": MODEST}] * 3)
    assert [share_of(booking, job)[0] for job in (hungry, *modest)] == [6, 2, 2, 2]


def test_a_share_becomes_what_the_batch_job_asks_for(booking: Lab) -> None:
    (job,) = placed(booking, {"sensitivity": HUNGRY, "gpus": 2})
    (attempt,) = booking.attempts(job)
    assert (attempt.cpus_per_gpu, attempt.nodes) == (3, ["n1"])
    inputs = LaunchInputs(launch_gpus_of([attempt.pk])[attempt.pk], UsableSecrets.read([job]))
    launch = launch_command(attempt, inputs)
    told = {**launch.env, **launch.tasks[0].env}
    assert (launch.tasks[0].cpus, told["MOTLEY_CPUS_PER_GPU"], told["OMP_NUM_THREADS"]) == (6, "3", "3")


def test_by_default_nothing_is_chosen(lab: Lab) -> None:
    lab.node("n1", gpus=4, cpus=12, memory_gib=64)
    (job,) = placed(lab, {"sensitivity": HUNGRY})
    assert share_of(lab, job) == (0, 0, "")


def test_a_job_whose_sensitivity_cannot_be_read_stops_no_other(tuned: Lab) -> None:
    broken, other = tuned.submit(sensitivity=HUNGRY), tuned.submit(name="other")
    Job.objects.filter(pk=broken.pk).update(sensitivity={"curve": {}})
    placed(tuned)
    assert share_of(tuned, other) == (3, 0, How.PROPORTIONAL)
    assert not tuned.attempts(broken)


def test_a_job_whose_sensitivity_makes_no_sense_is_set_aside(tuned: Lab) -> None:
    """The service refuses such a curve; somebody has written it past the service."""
    senseless, other = tuned.submit(sensitivity=HUNGRY), tuned.submit(name="other")
    Job.objects.filter(pk=senseless.pk).update(sensitivity={"cpu_curve": {"1": -5}})
    assert acquire_lease("lab", tuned.now)

    assert run_round("lab", tuned.now).result == Round.Result.FAILED
    placed(tuned)
    assert share_of(tuned, other) == (3, 0, How.PROPORTIONAL)
    assert not tuned.attempts(senseless)


# -- what is measured --------------------------------------------------------------------------------------------


def shares_while_measured(lab: Lab, steps_per_s: dict[int, float], *, jobs: int, **spec: Any) -> list[Share]:
    """Of jobs of one workload, one after the other, each of which reports the rate that its CPUs per GPU give it."""
    shares = []
    for _ in range(jobs):
        job = lab.submit(UNTIL_LET_GO, workload="hungry", **spec)
        lab.running(job)
        shares.append(share_of(lab, job))
        report_rate(lab, job, steps_per_s[shares[-1][0]])
        lab.let_go(job)
        lab.until_state(job, Job.State.SUCCEEDED)
    return shares


def report_rate(lab: Lab, job: Job, steps_per_s: float) -> None:
    (attempt,) = lab.attempts(job)
    start, seconds = lab.now, 1000
    end, steps = start + timedelta(seconds=seconds), round(steps_per_s * seconds)
    note_progress([ProgressDelta(attempt.pk, 10, 0, start, steps, end, None)])


def test_cpus_are_doubled_from_job_to_job_for_as_long_as_that_gains_enough(tuned: Lab) -> None:
    shares = shares_while_measured(tuned, {3: 1.0, 6: 1.8, 12: 1.85}, jobs=4)
    assert shares == [(3, 0, How.PROPORTIONAL), (6, 0, How.TRIED), (12, 0, How.TRIED), (6, 0, How.TUNED)]


def test_a_workload_that_more_cpus_do_not_help_has_its_proportional_share_again(tuned: Lab) -> None:
    shares = shares_while_measured(tuned, {3: 1.0, 6: 1.02}, jobs=3)
    assert shares == [(3, 0, How.PROPORTIONAL), (6, 0, How.TRIED), (3, 0, How.TUNED)]


def test_a_trial_that_went_badly_is_forgotten(tuned: Lab) -> None:
    shares_while_measured(tuned, {3: 1.0, 6: 1.02}, jobs=2)
    CpuRate.objects.filter(cpus_per_gpu=6).update(updated_at=tuned.now - FORGOTTEN_AFTER - timedelta(days=1))
    assert shares_while_measured(tuned, {6: 1.8}, jobs=1) == [(6, 0, How.TRIED)]


def test_nothing_is_tried_for_a_job_that_says_what_it_needs(tuned: Lab) -> None:
    assert shares_while_measured(tuned, {1: 1.0}, jobs=2, sensitivity=MODEST) == [(1, 0, How.TUNED)] * 2


def test_cpus_that_others_need_are_not_tried(tuned: Lab) -> None:
    shares_while_measured(tuned, {3: 1.0}, jobs=1)
    jobs = placed(tuned, *[{}] * 3, {"workload": "hungry"})
    assert share_of(tuned, jobs[-1]) == (3, 0, How.REVERTED)


def test_another_team_is_told_nothing_by_the_rates_of_a_workload(tuned: Lab) -> None:
    shares_while_measured(tuned, {3: 1.0}, jobs=1)
    (job,) = placed(tuned, {"workload": "hungry", "owner": tuned.user("bob", "speech")})
    assert share_of(tuned, job) == (3, 0, How.PROPORTIONAL)


@pytest.mark.parametrize(
    ("jobs", "words"),
    [(2, "It has 6 CPUs per GPU: more CPUs than jobs of its workload had"), (3, "It has 3 CPUs per GPU: more gained")],
)
def test_why_says_what_was_measured(tuned: Lab, jobs: int, words: str) -> None:
    shares_while_measured(tuned, {3: 1.0, 6: 1.02}, jobs=jobs - 1)
    (job,) = placed(tuned, {"workload": "hungry"})
    assert explain_job(job, tuned.now)["cpu_memory"].startswith(words)


# -- what is told and shown --------------------------------------------------------------------------------------


def test_a_job_is_told_its_cpus_and_memory(tuned: Lab) -> None:
    job = tuned.submit(f"env; {UNTIL_LET_GO}", gpus=2, sensitivity={"cpu_curve": {1: 1.0, 4: 3.0}, **READING})
    tuned.running(job)
    tuned.until(lambda: "MOTLEY_JOB_ID" in tuned.environment(job))
    told = tuned.environment(job)
    names = ("MOTLEY_CPUS", "MOTLEY_CPUS_PER_GPU", "MOTLEY_MEMORY_MIB", "OMP_NUM_THREADS")
    assert [told[name] for name in names] == ["8", "4", str(32 * 1024), "4"]


def test_the_limits_of_a_running_job_are_lowered_and_raised_again_without_a_restart(tuned: Lab, tmp_path: Path) -> None:
    """The kernel's own files are written in tests/engines/own_kernel; here plain ones stand for them."""
    first = tuned.submit(UNTIL_LET_GO, sensitivity=HUNGRY)
    tuned.running(first)
    cgroup = StandInCgroup.of(tuned.root, tuned.attempts(first)[0].pk, tmp_path, cpu_weight="1000")
    second = tuned.submit(UNTIL_LET_GO, name="second")
    tuned.until(lambda: cgroup.holds("cpu.weight", "300"))
    assert share_of(tuned, first) == (3, 0, How.REVERTED)
    tuned.running(second)
    tuned.let_go(second)
    tuned.until(lambda: cgroup.holds("cpu.weight", "1000"))
    assert share_of(tuned, first) == (10, 0, How.RAISED)
    assert explain_job(first, tuned.now)["cpu_memory"].startswith("It has 10 CPUs per GPU: what it started with")
    assert len(tuned.attempts(first)) == 1


def test_an_attempt_that_is_lowered_again_while_its_engine_is_told_is_told_again(tuned: Lab) -> None:
    (job,) = placed(tuned, {"sensitivity": HUNGRY})
    (attempt,) = tuned.attempts(job)
    Attempt.objects.update(cpus_per_gpu=3, share_due=True)
    note_told_shares({attempt.pk: (5, 0)})
    assert tuned.attempts(job)[0].share_due
    note_told_shares({attempt.pk: (3, 0)})
    assert not tuned.attempts(job)[0].share_due


def test_rest_shows_the_share_of_each_attempt_and_why(tuned: Lab, api: APIClient) -> None:
    job, *_ = placed(tuned, {"sensitivity": HUNGRY})
    api.force_authenticate(job.owner)
    (attempt,) = api.get(f"/api/v1/jobs/{job.pk}").json()["attempts"]
    assert [attempt[name] for name in ("cpus_per_gpu", "memory_per_gpu_mib", "cpu_memory")] == [10, 0, "tuned"]
    assert api.get(f"/api/v1/jobs/{job.pk}/explain").json()["cpu_memory"].startswith("It has 10 CPUs per GPU")


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([{"sensitivity": HUNGRY}], "It has 10 CPUs per GPU: with that it reaches 99 % or more"),
        ([{}], "It has 3 CPUs per GPU: the share of its GPUs in the node, for it declares no"),
        ([{"sensitivity": HUNGRY}] * 4, "It has 3 CPUs per GPU: the share of its GPUs in the node; it would be faster"),
        ([{"sensitivity": MODEST | READING}], "It has 1 CPU and 16 GiB of memory per GPU: with that"),
        ([{"cpus_per_gpu": 2}], ""),
    ],
)
def test_why_says_in_a_sentence_what_a_job_has(tuned: Lab, specs: list[dict[str, Any]], words: str) -> None:
    job, *_ = placed(tuned, *specs)
    said = explain_job(job, tuned.now)["cpu_memory"]
    assert said.startswith(words)
    assert bool(said) == bool(words)


@pytest.mark.usefixtures("plain_static")
def test_the_memory_that_a_job_holds_is_measured_and_shown(tuned: Lab, client: Client) -> None:
    hold = "import time; block = bytearray(200 << 20); time.sleep(600)"
    job = tuned.submit(["python3", "-ESc", hold])
    tuned.until(lambda: tuned.running(job) is None and tuned.attempts(job)[0].peak_memory_mib >= 200)
    client.force_login(job.owner)
    page = " ".join(client.get(reverse("job", args=[job.pk])).content.decode().split())
    assert re.search(r"<dt>Memory held</dt> <dd> 2\d\d MiB <", page)


@pytest.mark.usefixtures("plain_static")
def test_the_pages_of_a_job_show_what_it_has(tuned: Lab, client: Client) -> None:
    job, *_ = placed(tuned, *[{"sensitivity": HUNGRY}] * 4)
    client.force_login(job.owner)
    shown = {tab: client.get(reverse("job", args=[job.pk]), {"tab": tab}).content.decode() for tab in PAGES}
    assert [words for tab, words in PAGES.items() if words not in " ".join(shown[tab].split())] == []


PAGES = {
    "overview": '3 CPUs per GPU <span class="dim">the node&#x27;s share of its GPUs, for want of more',
    "why": "It has 3 CPUs per GPU: the share",
    "attempts": "3 CPUs each",
}
