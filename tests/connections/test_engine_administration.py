"""An engine in the administration: its form, its nodes taken over as it reports them, and its test."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit_app.models import AuditEntry
from cluster_app.models import FOREIGN_USE, LOCAL_ENGINE, Engine, Gpu, GpuType, Node
from connections_app import engine_registry as registry
from connections_app.models import EngineProbe
from connections_app.probe import PATIENCE, ask_for_probe
from connections_app.sync_nodes import sync_nodes
from engines.protocol import EngineError
from jobs_app.models import Attempt, Job
from tests.service_lab import UNTIL_LET_GO, Lab

SLURM = {"name": "hpc", "kind": "slurm", "options": '{"root": "/shared/motley"}', "enabled": "on"}


@pytest.fixture
def admin(lab: Lab, plain_static: None) -> Client:
    client = Client()
    client.force_login(lab.user("root", staff=True))
    return client


@pytest.fixture
def local(lab: Lab) -> Engine:
    return Engine.objects.get(name=LOCAL_ENGINE)


def reported(**columns: Any) -> dict[str, Any]:
    plain = {"gpu_type": "v100", "gpus": 4, "gpu_memory_mib": 0, "uuids": [], "cpus": 32, "memory_mib": 65_536}
    return plain | {"state": "ok", "reason": "", **dict.fromkeys(FOREIGN_USE, 0)} | columns


@pytest.fixture
def hpc(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that reported two nodes, and does not answer now."""

    def unreachable(setup: registry.EngineSetup) -> Any:
        raise EngineError("slurmctld does not answer.")

    monkeypatch.setitem(registry.FACTORIES, Engine.Kind.SLURM.value, unreachable)
    inventory = {"n1": reported(), "n2": reported(gpu_type="b900", gpus=2)}
    columns = {"options": {"root": "/shared"}, "heard_at": timezone.now(), "inventory": inventory}
    return Engine.objects.create(name="hpc", kind=Engine.Kind.SLURM, **columns)


# -- what it reported ---------------------------------------------------------------------------------------------


def test_the_nodes_that_it_reported_are_a_table_and_those_out_of_order_come_first(admin: Client, hpc: Engine) -> None:
    hpc.inventory["n3"] = reported(state="cordoned", reason="Slurm says drain: bad fan")
    hpc.save()
    shown = admin.get(reverse("admin:cluster_app_engine_change", args=[hpc.pk])).content.decode()
    assert re.findall(r"<td>(n\d)</td>", shown) == ["n3", "n1", "n2"]
    assert "cordoned: Slurm says drain: bad fan" in shown
    assert "<td>2 x b900</td>" in shown


# -- the form ----------------------------------------------------------------------------------------------------


def add(admin: Client, **changes: str) -> str:
    return str(admin.post(reverse("admin:cluster_app_engine_add"), SLURM | changes, follow=True).content.decode())


def test_an_engine_is_added_with_its_options_and_is_on_the_audit_list(admin: Client) -> None:
    add(admin)
    assert Engine.objects.get(name="hpc").options == {"root": "/shared/motley"}
    assert AuditEntry.objects.get(action="admin.add").target == "engine hpc"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": '{"rot": "/x"}'}, "Unknown options: rot. Known options: root, partition"),
        ({"options": "{}"}, "The option root is missing"),
        ({"options": "[]"}, "The option root is missing"),
        ({"options": "[1]"}, "Write a map, such as"),
        ({"kind": "local", "options": ""}, "This machine has its engine already: local."),
        ({"name": "HPC"}, "Use lower-case letters"),
    ],
)
def test_an_engine_that_makes_no_sense_is_refused(admin: Client, changes: dict[str, str], words: str) -> None:
    assert words in add(admin, **changes)
    assert not Engine.objects.filter(kind="slurm").exists()


def test_name_and_kind_stay_and_what_the_scheduler_writes_meanwhile_is_kept(admin: Client, hpc: Engine) -> None:
    url = reverse("admin:cluster_app_engine_change", args=[hpc.pk])
    admin.post(url, SLURM | {"name": "other", "kind": "local", "options": '{"root": "/elsewhere"}', "enabled": ""})
    hpc.refresh_from_db()
    assert (hpc.name, hpc.kind, hpc.enabled, hpc.options) == ("hpc", "slurm", False, {"root": "/elsewhere"})
    assert hpc.inventory.keys() == {"n1", "n2"}


def test_the_engine_of_this_machine_and_one_with_attempts_are_not_deleted(
    lab: Lab, admin: Client, hpc: Engine, local: Engine
) -> None:
    lab.node("e1")
    lab.attempt(lab.submit(), engine="hpc")
    for engine in (hpc, local):
        assert admin.post(reverse("admin:cluster_app_engine_delete", args=[engine.pk])).status_code == 403
    Attempt.objects.update(state="ended", outcome="lost", ended_at=timezone.now(), gone_at=timezone.now())
    assert admin.post(reverse("admin:cluster_app_engine_delete", args=[hpc.pk]), {"post": "yes"}).status_code == 302
    assert Engine.objects.get() == local


def test_after_an_engine_was_added_its_page_offers_what_comes_next(admin: Client) -> None:
    page = add(admin)
    assert "Test it, then add its nodes." in page
    assert 'value="Add or update its nodes"' in page


# -- nodes from the engine ---------------------------------------------------------------------------------------


def test_nodes_are_added_as_the_engine_reports_them(admin: Client, hpc: Engine) -> None:
    action = {"action": "add_or_update_nodes", "_selected_action": [hpc.pk]}
    page = admin.post(reverse("admin:cluster_app_engine_changelist"), action, follow=True).content.decode()
    assert "Node n1 was added: 4 x v100" in page
    assert "Node n2 was added: 2 x b900 (the TFLOPS and memory bandwidth of b900 are not known" in page
    rows = (
        Node.objects.with_gpu_counts()
        .order_by("name")
        .values_list("name", "gpu_type__name", "gpus", "cpus", "engine__name", "health")
    )
    assert list(rows) == [("n1", "v100", 4, 32, "hpc", "unknown"), ("n2", "b900", 2, 32, "hpc", "unknown")]
    assert GpuType.objects.get(name="v100").tflops
    assert AuditEntry.objects.get(action="node.sync").target == "hpc"


def test_the_page_of_an_engine_takes_over_its_nodes(admin: Client, hpc: Engine) -> None:
    page = admin.post(reverse("admin:cluster_app_engine_nodes", args=[hpc.pk]), follow=True).content.decode()
    assert "Node n1 was added: 4 x v100" in page
    assert set(Node.objects.values_list("name", flat=True)) == {"n1", "n2"}


def test_only_who_may_change_engines_takes_over_their_nodes(lab: Lab, hpc: Engine, plain_static: None) -> None:
    client = Client()
    client.force_login(lab.user("ada"))
    assert client.post(reverse("admin:cluster_app_engine_nodes", args=[hpc.pk])).status_code in (302, 403)
    assert not Node.objects.exists()


def test_nodes_are_updated_and_those_that_are_as_reported_have_no_event(hpc: Engine) -> None:
    sync_nodes(hpc, actor=None)
    hpc.inventory["n1"]["gpus"] = 2
    assert sync_nodes(hpc, actor=None) == ["Node n1 was updated: 2 x v100"]
    assert Gpu.objects.present().filter(node__name="n1").count() == 2
    assert Node.objects.get(name="n2").events.count() == 1
    assert sync_nodes(hpc, actor=None) == ["The nodes of hpc are as it reports them (2)."]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            reported(gpu_type="", reason="it has GPUs of 2 types (a100, v100)"),
            "its GPUs have no type, or more than one",
        ),
        (reported(gpus=0), "it has no GPUs"),
        (reported(cpus=0), "it reports no CPUs"),
        (reported(gpus=65), "at most 64 GPUs"),
    ],
)
def test_a_report_that_makes_no_node_is_left_out_in_words(hpc: Engine, found: dict[str, Any], words: str) -> None:
    hpc.inventory = {"n9": found}
    (line,) = sync_nodes(hpc, actor=None)
    assert line.startswith("Node n9 was left out: ")
    assert words in line
    assert not Node.objects.exists()


def test_a_node_of_another_engine_and_one_with_other_gpus_are_left_alone(lab: Lab, hpc: Engine) -> None:
    lab.node("n1", "a100")
    assert "Node n1 was left out: a node of the engine local has this name." in sync_nodes(hpc, actor=None)
    hpc.inventory["n2"]["gpu_type"] = "v100"
    assert "Node n2 was left out: it had b900 GPUs and has v100 now: delete the old node first." in sync_nodes(
        hpc, actor=None
    )


def test_the_command_does_the_same(hpc: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("sync_nodes", "hpc")
    assert "Node n1 was added: 4 x v100" in capsys.readouterr().out
    with pytest.raises(CommandError, match=r"There is no engine lpc\. Known engines: hpc, local"):
        call_command("sync_nodes", "lpc")


def test_an_engine_that_was_never_heard_has_no_nodes_to_take_over(local: Engine) -> None:
    assert sync_nodes(local, actor=None) == [
        "The engine local has not been heard yet: enable it, and see that the scheduler runs."
    ]


# -- the test of an engine ---------------------------------------------------------------------------------------


def ended(lab: Lab, probe: EngineProbe) -> EngineProbe:
    def look() -> bool:
        probe.refresh_from_db()
        return probe.ended_at is not None

    lab.until(look)
    return probe


def test_the_button_tests_the_engine_and_its_page_shows_the_result(lab: Lab, admin: Client, local: Engine) -> None:
    lab.node("e1")
    page = admin.post(reverse("admin:cluster_app_engine_test", args=[local.pk]), follow=True).content.decode()
    assert "Last test: waiting for the scheduler." in page
    assert "data-running" in page
    probe = ended(lab, EngineProbe.objects.get())
    assert (probe.passed, probe.node, probe.message, probe.attempt) == (True, "e1", "", -probe.pk)
    page = admin.get(reverse("admin:cluster_app_engine_change", args=[local.pk])).content.decode()
    assert "Last test: passed." in page
    assert "wrote and read" in page
    assert "data-running" not in page
    assert AuditEntry.objects.get(action="engine.test").target == "local"


def test_a_test_is_no_job_and_holds_no_gpu(lab: Lab, local: Engine) -> None:
    lab.node("e1", gpus=1)
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    assert ended(lab, ask_for_probe(local, actor=None)).passed
    assert (Job.objects.count(), Attempt.objects.count()) == (1, 1)


def test_a_test_that_fails_says_why(lab: Lab, local: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.node("e1")
    monkeypatch.setattr("connections_app.probe.SCRIPT", "import sys; sys.exit('no Python for you')")
    probe = ended(lab, ask_for_probe(local, actor=None))
    assert (probe.passed, probe.message, probe.log) == (False, "It exited with 1.", "no Python for you\n")


def test_a_test_of_an_engine_that_does_not_answer_fails_at_once(lab: Lab, hpc: Engine) -> None:
    probe = ask_for_probe(hpc, actor=None)
    lab.tick()
    probe.refresh_from_db()
    assert (probe.passed, probe.message) == (False, "The engine does not answer: slurmctld does not answer.")


def test_a_newer_test_replaces_one_that_runs(lab: Lab, local: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.node("e1")
    first = _running(lab, local, monkeypatch)
    monkeypatch.undo()
    second = ask_for_probe(local, actor=None)
    assert ended(lab, second).passed
    first.refresh_from_db()
    assert (first.passed, first.message) == (False, "It was replaced by a newer test.")
    lab.until(lambda: registry.engine_named(LOCAL_ENGINE).poll([first.attempt])[0].proven_gone)


def test_a_test_that_does_not_end_is_stopped(lab: Lab, local: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.node("e1")
    probe = _running(lab, local, monkeypatch)
    lab.ahead += PATIENCE + timedelta(seconds=1)
    lab.tick()
    probe.refresh_from_db()
    assert (probe.passed, probe.message) == (False, f"It did not end within {PATIENCE.total_seconds():.0f} s.")
    lab.until(lambda: registry.engine_named(LOCAL_ENGINE).poll([probe.attempt])[0].proven_gone)


def _running(lab: Lab, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> EngineProbe:
    """A test that would not end by itself; no tick waits for it."""
    monkeypatch.setattr("connections_app.probe.SCRIPT", "import time; time.sleep(10000)")
    probe = ask_for_probe(engine, actor=None)
    lab.tick()
    probe.refresh_from_db()
    assert probe.launched_at is not None
    return probe


def test_a_test_without_a_node_waits_and_then_says_so(lab: Lab, local: Engine) -> None:
    probe = ask_for_probe(local, actor=None)
    lab.tick()
    lab.ahead += PATIENCE + timedelta(seconds=1)
    lab.tick()
    probe.refresh_from_db()
    said = f"It did not end within {PATIENCE.total_seconds():.0f} s. Last: The engine local reports no healthy node."
    assert (probe.passed, probe.message) == (False, said)


def test_only_staff_may_ask_for_a_test(lab: Lab, admin: Client, local: Engine) -> None:
    url = reverse("admin:cluster_app_engine_test", args=[local.pk])
    assert admin.get(url).status_code == 403
    admin.force_login(lab.user("ada"))
    assert admin.post(url).status_code == 302
    assert not EngineProbe.objects.exists()
