"""Maintenance windows: no job is placed that would cross one, others are stopped in time, the node comes back."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster_app.errors import InMaintenance
from cluster_app.models import Gpu, GpuType, Node
from cluster_app.services import cordon, resume
from insight_app.explain.dry_run import dry_run
from jobs_app.models import Attempt, Job, Reason
from scheduler_app.models import TimeWindow
from scheduler_app.round.lease import Loop, acquire_lease
from scheduler_app.round.tick import engine_turn
from scheduler_app.windows.reading import read_windows
from tests.service_lab import UNTIL_LET_GO, Lab

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    """One node of two GPUs, in the order of submission."""
    lab.node("n1", gpus=2)
    lab.policy("fifo", round_s=1)
    return lab


def maintenance(lab: Lab, *names: str, after: timedelta = HOUR, length: timedelta = HOUR, **columns: Any) -> TimeWindow:
    """Of these nodes, and of those with its labels."""
    begins_at = lab.now + after
    window = TimeWindow.objects.create(reason="firmware", begins_at=begins_at, ends_at=begins_at + length, **columns)
    window.nodes.set(Node.objects.filter(name__in=names))
    return window


def fresh(job: Job) -> Job:
    job.refresh_from_db()
    return job


def state_of(name: str) -> tuple[str, str]:
    node = Node.objects.get(name=name)
    return node.state, node.reason


# -- placement -----------------------------------------------------------------------------------------------------


def test_a_job_that_would_cross_a_window_waits_with_its_end(cluster: Lab) -> None:
    window = maintenance(cluster, "n1")
    job = cluster.submit(time_limit="2h")
    cluster.round()
    assert (fresh(job).state, job.reason) == (Job.State.QUEUED, Reason.MAINTENANCE)
    assert job.message.startswith("It might not end before a window of nodes that could run it: maintenance from ")
    assert job.message.endswith(f"to {window.ends_at:%F %H:%M} UTC: firmware.")
    assert job.reasons[0]["numbers"]["ends_at"] == window.ends_at.isoformat()


def test_a_job_that_ends_before_it_runs(cluster: Lab) -> None:
    maintenance(cluster, "n1")
    cluster.until_state(cluster.submit(time_limit="30m"), Job.State.SUCCEEDED)


def test_the_length_of_a_job_without_a_limit_is_that_of_nine_in_ten(cluster: Lab) -> None:
    """An hour of work fits before a window in two hours, but not before one in 70 minutes: rates may be wrong."""
    maintenance(cluster, "n1", after=70 * MINUTE)
    job = cluster.submit(total_steps=3600, rates={"a100": 1.0})
    cluster.round()
    assert fresh(job).reason == Reason.MAINTENANCE
    TimeWindow.objects.update(begins_at=cluster.now + 2 * HOUR, ends_at=cluster.now + 3 * HOUR)
    cluster.round()
    assert fresh(job).state != Job.State.QUEUED


def test_a_job_of_unknown_length_starts_and_one_that_may_not_be_stopped_is_told_what_to_do(cluster: Lab) -> None:
    maintenance(cluster, "n1")
    stubborn, plain = cluster.submit(preemptible=False), cluster.submit()
    cluster.until_state(plain, Job.State.SUCCEEDED)
    assert fresh(stubborn).reason == Reason.MAINTENANCE
    assert "with a time limit that ends before, it may start" in stubborn.message


def test_jobs_go_to_nodes_without_a_window(cluster: Lab) -> None:
    cluster.node("n2", gpus=1)
    maintenance(cluster, "n1")
    first, second = (cluster.submit(UNTIL_LET_GO, time_limit="5h") for _ in range(2))
    cluster.running(first)
    cluster.round()
    assert cluster.attempts(first)[0].nodes == ["n2"]
    assert (fresh(second).state, second.reason) == (Job.State.QUEUED, Reason.MAINTENANCE)
    assert "insufficient_gpus" in {reason["code"] for reason in second.reasons}


def test_labels_name_nodes(cluster: Lab) -> None:
    Node.objects.update(labels={"rack": "r3", "row": "1"})
    maintenance(cluster, labels={"rack": "r3"})
    maintenance(cluster, labels={"rack": "r3", "row": "2"})
    assert [len(row.nodes) for row in read_windows(cluster.now)] == [1, 0]


def test_no_job_starts_that_would_be_stopped_just_before_its_end(cluster: Lab) -> None:
    """An hour fits before a window in 61 minutes, but not with the five minutes that it would have to save its work."""
    maintenance(cluster, "n1", after=61 * MINUTE)
    job = cluster.submit(time_limit="1h", checkpoint={"grace_seconds": 300})
    cluster.round()
    assert fresh(job).reason == Reason.MAINTENANCE


def test_a_job_that_was_stopped_for_a_window_does_not_start_again_before_it(cluster: Lab) -> None:
    """Its last checkpoint took ten minutes."""
    job = cluster.submit(UNTIL_LET_GO, checkpoint={"grace_seconds": 1})
    cluster.running(job)
    Attempt.objects.update(checkpoint_s=600)
    maintenance(cluster, "n1", after=11 * MINUTE)
    cluster.tick()
    assert fresh(job).state == Job.State.RUNNING
    cluster.ahead += MINUTE
    cluster.until_state(job, Job.State.QUEUED)
    cluster.round()
    assert (fresh(job).state, job.reason, len(cluster.attempts(job))) == (Job.State.QUEUED, Reason.MAINTENANCE, 1)


def test_the_plan_of_a_job_names_the_next_window_of_its_nodes_and_its_begin_time(cluster: Lab) -> None:
    plain = {"name": "a", "command": "true", "gpus": 1}
    assert "window" not in dry_run(plain, owner=cluster.user())["note"]
    reservation(cluster, gpus=1)
    assert "window" not in dry_run(plain, owner=cluster.user())["note"]
    assert "Reserved for team vision from" in dry_run(plain, owner=cluster.user("eve", "language"))["note"]
    maintenance(cluster, "n1")
    later = {**plain, "begin_time": "2036-12-01T08:00:00Z"}
    note = dry_run(later, owner=cluster.user())["note"]
    assert note.startswith("The job is not started before 2036-12-01 08:00 UTC, its begin time.")
    assert "Maintenance from" in note
    assert "firmware. On the node concerned the job starts only if it ends before or can be stopped in time." in note


# -- in time -------------------------------------------------------------------------------------------------------


def test_a_running_job_is_stopped_in_time_and_runs_again_after_the_window(cluster: Lab) -> None:
    job = cluster.submit(UNTIL_LET_GO, checkpoint={"grace_seconds": 60})
    cluster.running(job)
    window = maintenance(cluster, "n1")
    cluster.tick()
    assert fresh(job).state == Job.State.RUNNING
    cluster.ahead = window.begins_at - cluster.now + cluster.ahead - 70 * timedelta(seconds=1)
    cluster.until_state(job, Job.State.QUEUED)
    (attempt,) = cluster.attempts(job)
    assert attempt.stop_reason == Attempt.StopReason.DRAIN
    assert attempt.stop_note.endswith(": firmware")
    assert cluster.now < window.begins_at
    assert state_of("n1")[0] == Node.State.READY
    cluster.ahead += 2 * MINUTE
    cluster.tick()
    cluster.tick()
    assert state_of("n1") == (Node.State.DRAINED, read_windows(cluster.now)[0].words)
    cluster.round()
    assert fresh(job).reason == Reason.MAINTENANCE
    cluster.ahead += HOUR
    cluster.running(job)
    assert state_of("n1") == (Node.State.READY, "")


def test_a_node_that_a_person_took_out_stays_out(cluster: Lab) -> None:
    maintenance(cluster, "n1", after=-MINUTE)
    cluster.tick()
    cordon(Node.objects.get(), reason="bad fan", actor=None)
    cluster.ahead += HOUR
    cluster.tick()
    assert state_of("n1") == (Node.State.CORDONED, "bad fan")


def test_a_node_cannot_be_resumed_in_its_window_and_returns_at_once_without_it(cluster: Lab) -> None:
    window = maintenance(cluster, "n1", after=-MINUTE)
    cluster.tick()
    with pytest.raises(
        InMaintenance, match=r"n1 is in maintenance until .* UTC, and returns by itself: end that window"
    ):
        resume(Node.objects.get(), actor=None)
    window.delete()
    cluster.tick()
    assert state_of("n1") == (Node.State.READY, "")


def test_a_longer_window_keeps_the_node_for_longer(cluster: Lab) -> None:
    window = maintenance(cluster, "n1", after=-MINUTE)
    cluster.tick()
    TimeWindow.objects.update(ends_at=window.ends_at + HOUR)
    cluster.ahead += HOUR
    cluster.tick()
    assert Node.objects.get().maintenance_until == window.ends_at + HOUR
    assert state_of("n1")[0] != Node.State.READY


def test_a_recurring_window_comes_again(cluster: Lab) -> None:
    window = maintenance(cluster, "n1", after=-HOUR, length=30 * MINUTE, cron="0 2 * * *", zone="Asia/Tokyo")
    (row,) = read_windows(cluster.now)
    assert row.begins_at > window.ends_at
    assert (row.begins_at.hour, row.ends_at - row.begins_at) == (17, 30 * MINUTE)
    assert row.gap_s == 23.5 * 3600


def test_a_job_that_fits_between_no_two_windows_starts_and_is_stopped_in_time(cluster: Lab) -> None:
    """Each of two daily windows alone leaves 22 hours, both together ten."""
    for begins_in in (2, 14):
        window = maintenance(cluster, "n1", after=begins_in * HOUR, length=2 * HOUR)
        TimeWindow.objects.filter(pk=window.pk).update(cron=f"{window.begins_at:%M %H} * * *")
    gaps = [row.gap_s for row in read_windows(cluster.now)]
    assert gaps == pytest.approx([10 * 3600] * 2, abs=60)
    job = cluster.submit(UNTIL_LET_GO, time_limit="15h")
    cluster.running(job)


def nightly(lab: Lab, *, begins_in: timedelta = 2 * HOUR) -> TimeWindow:
    """Two hours each day."""
    window = maintenance(lab, "n1", after=begins_in, length=2 * HOUR)
    TimeWindow.objects.filter(pk=window.pk).update(cron=f"{window.begins_at:%M %H} * * *")
    return window


def test_a_job_of_20_hours_does_not_wait_for_its_two_hours_of_the_day(cluster: Lab) -> None:
    nightly(cluster)
    job = cluster.submit(UNTIL_LET_GO, time_limit="20h", checkpoint={"grace_seconds": 60})
    cluster.running(job)
    cluster.ahead += 2 * HOUR - 70 * timedelta(seconds=1)
    cluster.until_state(job, Job.State.QUEUED)
    cluster.round()
    assert fresh(job).reason == Reason.MAINTENANCE
    assert "It is long for the 22 h between windows: it starts after this one" in job.message


def test_a_job_that_never_fits_and_may_not_be_stopped_says_so(cluster: Lab) -> None:
    nightly(cluster)
    never, later = (cluster.submit(time_limit=limit, preemptible=False) for limit in ("23h", "20h"))
    cluster.round()
    assert fresh(never).reason == fresh(later).reason == Reason.MAINTENANCE
    assert never.message.startswith("It can never run on nodes with this window: maintenance from ")
    assert "Make it preemptible, or give it a shorter time limit." in never.message
    assert never.reasons[0]["numbers"]["longest_gap_s"] == pytest.approx(22 * 3600, abs=60)
    assert later.message.startswith("It might not end before a window")


# -- cost ----------------------------------------------------------------------------------------------------------


def test_windows_that_are_over_cost_nothing_and_many_no_more_queries(cluster: Lab) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as made:
            read_windows(cluster.now)
        return len(made)

    for _ in range(3):
        maintenance(cluster, "n1", after=-3 * HOUR)
    assert queries() == 1
    maintenance(cluster, "n1")
    one = queries()
    for _ in range(20):
        maintenance(cluster, "n1")
    assert queries() == one


def test_a_turn_of_the_scheduler_reads_windows_once_and_counts_no_gpus(cluster: Lab) -> None:
    maintenance(cluster, "n1")
    assert acquire_lease("here", cluster.now, Loop.ENGINES)
    with CaptureQueriesContext(connection) as made:
        engine_turn("here", cluster.now)
    assert sum('FROM "scheduler_app_timewindow"' in query["sql"] for query in made) == 1
    with CaptureQueriesContext(connection) as made:
        read_windows(cluster.now)
    assert not any('cluster_app_gpu"' in query["sql"] for query in made)


# -- reservations --------------------------------------------------------------------------------------------------


def reservation(lab: Lab, *, gpus: int, after: timedelta = HOUR, team: str = "vision") -> TimeWindow:
    """GPUs of the only type, for an hour."""
    times = {"begins_at": lab.now + after, "ends_at": lab.now + after + HOUR}
    whose = {"team": lab.team(team), "gpu_type": GpuType.objects.get(), "gpus": gpus}
    return TimeWindow.objects.create(kind=TimeWindow.Kind.RESERVATION, reason="paper", **times, **whose)


def test_reserved_gpus_are_for_jobs_of_the_team_alone(cluster: Lab) -> None:
    reservation(cluster, gpus=2, after=-MINUTE)
    other = cluster.submit(owner=cluster.user("eve", "language"), time_limit="1m")
    cluster.until_state(cluster.submit(time_limit="5h"), Job.State.SUCCEEDED)
    assert (fresh(other).state, other.reason) == (Job.State.QUEUED, Reason.RESERVED)
    assert "reserved for team vision from " in other.message
    assert state_of("n1") == (Node.State.READY, "")


def test_others_leave_reserved_gpus_in_time(cluster: Lab) -> None:
    job = cluster.submit(UNTIL_LET_GO, owner=cluster.user("eve", "language"))
    mine = cluster.submit(UNTIL_LET_GO)
    cluster.running(job, mine)
    reservation(cluster, gpus=2, after=timedelta(seconds=70))
    cluster.until_state(job, Job.State.QUEUED)
    assert fresh(mine).state == Job.State.RUNNING


def test_a_reservation_takes_the_fewest_nodes_and_none_in_maintenance_or_of_another(cluster: Lab) -> None:
    for name, gpus in (("n2", 4), ("n3", 4), ("n4", 1)):
        cluster.node(name, gpus=gpus)
    maintenance(cluster, "n2")
    for gpus in (3, 3, 1):
        reservation(cluster, gpus=gpus)
    names = dict(Node.objects.values_list("pk", "name"))
    found = [sorted(names[node] for node in row.nodes) for row in read_windows(cluster.now) if row.team_id]
    assert found == [["n3"], ["n1", "n4"], []]


@pytest.mark.parametrize("state", [Node.State.SLEEPING, Node.State.WAKING])
def test_a_reserved_node_that_sleeps_stays_reserved(cluster: Lab, state: str) -> None:
    cluster.node("n2", gpus=2)
    reservation(cluster, gpus=2)
    Node.objects.filter(name="n1").update(state=state, reason="low demand")
    assert reserved_nodes(cluster) == ["n1"]


def test_a_gpu_that_fails_adds_a_node_and_changes_no_other(cluster: Lab) -> None:
    cluster.node("n2", gpus=2)
    reservation(cluster, gpus=2)
    Gpu.objects.filter(node__name="n1", index=0).update(healthy=False)
    assert reserved_nodes(cluster) == ["n1", "n2"]


def reserved_nodes(lab: Lab) -> list[str]:
    (row,) = read_windows(lab.now)
    return sorted(Node.objects.filter(pk__in=row.nodes).values_list("name", flat=True))


@pytest.fixture
def beside(cluster: Lab) -> Lab:
    """Another node of two GPUs, which jobs of team language hold, while one node is reserved for team vision."""
    reservation(cluster, gpus=2, after=-MINUTE)
    cluster.node("n2", gpus=2)
    eve = cluster.user("eve", "language")
    cluster.policy("motley", round_s=1)
    cluster.recorded_as_running(cluster.submit(owner=eve, gpus=2, preemptible=False, name="holder"))
    assert reserved_nodes(cluster) == ["n1"]
    return cluster


def test_a_job_that_others_keep_from_the_open_nodes_is_told_of_the_reserved_ones(beside: Lab) -> None:
    """The first of the queue would start there; the third would wait all the same, and its headline is another."""
    eve = beside.user("eve", "language")
    jobs = [beside.submit(owner=eve, name=f"waits-{i}") for i in range(3)]
    beside.decide()
    codes = [[reason["code"] for reason in fresh(job).reasons] for job in jobs]
    assert [of_job[0] for of_job in codes] == ["reserved", "reserved", "insufficient_gpus"]
    assert codes[2][-1] == "reserved"
    assert fresh(jobs[0]).message.startswith("2 GPUs that could run it are reserved for team vision until ")
