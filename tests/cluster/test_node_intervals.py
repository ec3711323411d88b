"""How long nodes stay is observed: a node is up from its first sign of life until its last."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from cluster_app import node_history
from cluster_app.engine_reports import record_heartbeats
from cluster_app.models import LOCAL_ENGINE, LOST_AFTER, SUSPECT_AFTER, Node, NodeInterval
from cluster_app.node_health import update_node_health
from cluster_app.node_history import Observed, by_capacity_type, observed_by_node
from cluster_app.retirement import restore_node, retire_node
from cluster_app.services import drain, unknown_if_moved
from jobs_app.models import Job
from operations.retention import delete_expired
from scheduler_app.round.node_lifetimes import USUAL, interruptions_of, known_lifetimes
from tests.service_lab import Lab

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
End, CapacityType = NodeInterval.End, Node.CapacityType


class Watch:
    """Heartbeats of one node, at moments that the test chooses."""

    def __init__(self, node: Node, start: datetime) -> None:
        self.node, self.now = node, start

    def alive_for(self, time: timedelta) -> None:
        self.heartbeat()
        self.now += time
        self.heartbeat()

    def heartbeat(self) -> None:
        record_heartbeats([LOCAL_ENGINE], [self.node.name], now=self.now)
        self.look()

    def silent_for(self, time: timedelta) -> None:
        self.now += time
        self.look()

    def look(self) -> None:
        update_node_health(self.now, listening_since=self.now - HOUR)

    @property
    def intervals(self) -> list[tuple[bool, timedelta, str]]:
        rows = self.node.intervals.order_by("pk")
        return [(row.up, (row.ended_at or self.now) - row.started_at, row.end) for row in rows]


@pytest.fixture
def watch(lab: Lab) -> Watch:
    node = lab.node("n1")
    Node.objects.update(health=Node.Health.UNKNOWN, heard_at=None)
    NodeInterval.objects.all().delete()
    return Watch(node, lab.now)


def test_a_node_is_up_until_it_was_last_heard_and_down_until_it_is_heard_again(watch: Watch) -> None:
    watch.alive_for(2 * HOUR)
    watch.silent_for(10 * MINUTE)
    watch.alive_for(HOUR)
    assert watch.intervals == [
        (True, 2 * HOUR, End.CHANGED),
        (False, 10 * MINUTE, End.CHANGED),
        (True, HOUR, ""),
    ]


def test_a_node_that_is_silent_for_a_moment_was_up_all_the_while(watch: Watch) -> None:
    watch.alive_for(HOUR)
    watch.silent_for(SUSPECT_AFTER + MINUTE)
    watch.alive_for(HOUR)
    assert [up for up, _, end in watch.intervals] == [True]


def test_a_node_that_was_drained_before_it_went_has_announced_it(watch: Watch) -> None:
    watch.alive_for(HOUR)
    drain(watch.node, reason="taken back", actor=None)
    watch.silent_for(LOST_AFTER + MINUTE)
    assert watch.intervals[0] == (True, HOUR, End.ANNOUNCED)


def test_a_node_that_becomes_another_machine_neither_went_nor_came_back(watch: Watch) -> None:
    watch.alive_for(HOUR)
    moved = Node.objects.get()
    moved.emulated = not moved.emulated
    unknown_if_moved(moved, Node.objects.get())
    assert [end for _, _, end in watch.intervals] == [End.CENSORED]
    assert observed_by_node(watch.now)[moved.pk].losses == 0


@pytest.mark.usefixtures("plain_static")
def test_a_node_that_was_retired_says_so_and_was_not_lost(watch: Watch, client: Client) -> None:
    watch.alive_for(HOUR)
    drain(watch.node, reason="fan", actor=None)
    retire_node(watch.node, reason="fan", actor=None)
    restore_node(Node.objects.get(pk=watch.node.pk), actor=None)
    assert [end for _, _, end in watch.intervals] == [End.RETIRED]
    assert observed_by_node(watch.now)[watch.node.pk].losses == 0
    client.force_login(User.objects.create(username="mia"))
    page = client.get(f"/nodes/{watch.node.name}").content.decode()
    assert 'data-label="Ended because">it was retired<' in page
    assert "another machine" not in page


def test_what_was_observed_is_summed_by_node_and_by_capacity_type(lab: Lab, watch: Watch) -> None:
    for _ in range(3):
        watch.alive_for(HOUR)
        watch.silent_for(30 * MINUTE)
    expected = Observed(up_s=3 * 3600, losses=3, announced=0, down_s=3 * 1800, returns=2)
    assert observed_by_node(watch.now) == {watch.node.pk: expected}
    assert by_capacity_type(observed_by_node(watch.now)) == {CapacityType.STABLE: expected}


def test_sums_of_many_intervals_are_kept_for_an_hour_or_until_many_are_new(
    lab: Lab, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_history, "LEAST_KEPT", 1)
    monkeypatch.setattr(node_history, "_KEPT", {})
    watch.alive_for(HOUR)
    before = observed_by_node(watch.now)
    assert observed_by_node(watch.now + 59 * MINUTE) is before
    assert observed_by_node(watch.now + HOUR) is not before
    watch.silent_for(30 * MINUTE)
    assert observed_by_node(watch.now + 61 * MINUTE)[watch.node.pk].losses == 1


def test_a_new_spot_node_is_expected_to_stay_as_long_as_other_spot_nodes_did(lab: Lab, watch: Watch) -> None:
    lab.node("n2")
    NodeInterval.objects.exclude(node=watch.node).delete()
    Node.objects.update(capacity_type=CapacityType.SPOT)
    for _ in range(20):
        watch.alive_for(10 * MINUTE)
        watch.silent_for(10 * MINUTE)
    known = known_lifetimes(["n1", "n2"], watch.now)
    assert known["n1"].lifetime.mean_up_s < known["n2"].lifetime.mean_up_s < USUAL[CapacityType.SPOT].mean_up_s / 4
    gang = interruptions_of(known.values())
    assert gang.mean_up_s < known["n1"].lifetime.mean_up_s


def test_observations_go_with_the_events_of_nodes_but_those_that_go_on_stay(watch: Watch) -> None:
    watch.alive_for(HOUR)
    watch.silent_for(HOUR)
    delete_expired(watch.now + timedelta(days=400))
    assert [end for _, _, end in watch.intervals] == [""]


def test_the_page_of_a_node_says_how_long_it_stays_and_from_how_many_observations(
    watch: Watch, plain_static: None, client: Client
) -> None:
    for _ in range(3):
        watch.alive_for(2 * HOUR)
        watch.silent_for(30 * MINUTE)
    client.force_login(User.objects.create_user("ada"))
    text = " ".join(client.get("/nodes/n1").content.decode().split())
    assert "3 losses in 6 h up, 0 of them announced" in text
    assert "Kaplan-Meier estimate from this node" in text
    assert client.get("/nodes/none").status_code == 404


def test_a_job_starts_on_the_node_that_is_expected_to_stay(lab: Lab) -> None:
    for name in ("n1", "n2"):
        lab.node(name)
    Node.objects.filter(name="n1").update(capacity_type=CapacityType.SPOT)
    job = lab.until_state(lab.submit(gpus=2), Job.State.SUCCEEDED)
    assert lab.attempts(job)[0].nodes == ["n2"]
