"""Nodes from a CSV file, as an administrator brings them in: a preview, then all rows or none."""

import html
import re
import tempfile
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from audit_app.models import AuditEntry
from cluster_app.csv_import import MOST_ROWS, NodeResource
from cluster_app.models import LOCAL_ENGINE, Engine, Gpu, GpuType, Node
from jobs_app.models import Job
from tests.service_lab import UNTIL_LET_GO, Lab

URL = "admin:cluster_app_node_import"
HEAD = "name,gpu_type,gpus,cpus,memory_mib,emulated,labels\n"
ROW = "r1-01,{kind},8,128,1048576,yes,\n"


@pytest.fixture
def admin(lab: Lab, plain_static: None) -> Client:
    """An administrator's browser; there is a node `n1` with two GPUs."""
    lab.node("n1", gpus=2)
    client = Client()
    client.force_login(lab.user("root", staff=True))
    return client


@pytest.fixture
def kind(admin: Client) -> str:
    return Node.objects.get().gpu_type.name


def preview(admin: Client, text: str | bytes) -> str:
    content = text if isinstance(text, bytes) else text.encode()
    file = SimpleUploadedFile("nodes.csv", content, "text/csv")
    answer = admin.post(reverse(URL), {"import_file": file, "format": "0", "resource": ""})
    assert answer.status_code == 200
    return str(answer.content.decode())


def confirm(admin: Client, shown: str) -> Any:
    names = ("import_file_name", "original_file_name", "format", "resource")
    fields = {name: re.search(rf'name="{name}"[^>]*value="([^"]*)"', shown) for name in names}
    values = {name: match[1] for name, match in fields.items() if match}
    return admin.post(reverse("admin:cluster_app_node_process_import"), values, follow=True)


def test_a_preview_shows_what_would_change_and_changes_nothing(admin: Client, kind: str) -> None:
    shown = preview(admin, HEAD + ROW.format(kind=kind))
    assert "r1-01" in shown
    assert "Confirm import" in shown
    assert Node.objects.count() == 1


def test_confirmed_nodes_are_there_with_their_gpus(admin: Client, kind: str) -> None:
    confirm(admin, preview(admin, HEAD + ROW.format(kind=kind)))
    node = Node.objects.get(name="r1-01")
    assert (node.cpus, node.emulated, node.labels) == (128, True, {})
    assert Gpu.objects.present().filter(node=node).count() == 8


def test_a_node_that_is_there_is_brought_up_to_date(admin: Client, kind: str) -> None:
    confirm(admin, preview(admin, HEAD + f'n1,{kind},4,32,2048,no,"{{""rack"": ""b2""}}"\n'))
    node = Node.objects.get()
    assert (node.cpus, node.memory_mib, node.labels) == (32, 2048, {"rack": "b2"})
    assert Gpu.objects.present().count() == 4


@pytest.mark.parametrize(("cell", "bandwidth"), [("2000", 2000), ("", None)])
def test_the_bandwidth_of_its_storage_is_a_number_or_unknown(
    admin: Client, kind: str, cell: str, bandwidth: int | None
) -> None:
    Node.objects.update(storage_mib_s=500)
    confirm(admin, preview(admin, f"name,gpu_type,gpus,cpus,memory_mib,storage_mib_s\nn1,{kind},2,99,1024,{cell}\n"))
    assert Node.objects.get().storage_mib_s == bandwidth


def test_columns_that_are_left_out_stay_as_they_are(admin: Client, kind: str) -> None:
    Node.objects.update(emulated=True, labels={"rack": "b2"}, storage_mib_s=500)
    confirm(admin, preview(admin, f"name,gpu_type,gpus,cpus,memory_mib\nn1,{kind},2,99,1024\n"))
    node = Node.objects.get()
    assert (node.cpus, node.emulated, node.labels, node.storage_mib_s) == (99, True, {"rack": "b2"}, 500)


def test_an_import_is_in_the_nodes_history_and_on_the_audit_list(admin: Client, kind: str) -> None:
    confirm(admin, preview(admin, HEAD + ROW.format(kind=kind)))
    event = Node.objects.get(name="r1-01").events.get()
    assert (event.kind, event.actor.username) == ("added", "root")
    assert AuditEntry.objects.get(action="node.import").target == "1 node: r1-01"


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        ("r1,h900,8,1,1,no,", "gpu_type", "Unknown GPU type"),
        ("r1,{kind},2.7,1,1,no,", "gpus", "whole number"),
        ("r1,{kind},65,1,1,no,", "gpus", "at most 64"),
        ("r1,{kind},8,0,1,no,", "cpus", "greater than or equal to 1"),
        ("r1,{kind},8,1,-5,no,", "memory_mib", "whole number"),
        ("r1,{kind},8,1,99999999999,no,", "memory_mib", "whole number"),
        ("Rack One,{kind},8,1,1,no,", "name", "lower-case"),
        ("r1,{kind},8,1,1,perhaps,", "emulated", "yes or no"),
        ("r1,{kind},8,1,1,no,{{rack", "labels", "JSON"),
    ],
)
def test_a_fault_is_said_with_its_line_and_column(admin: Client, kind: str, row: str, column: str, words: str) -> None:
    shown = preview(admin, HEAD + ROW.format(kind=kind) + row.format(kind=kind) + "\n")
    cells = [r"<td>3</td>", r"<td>.*?</td>", r"<td><code>(\w+)</code></td>", r"<td class=\"errors\">(.*?)</td>"]
    fault = re.search(r"\s*".join(cells), shown)
    assert fault is not None, shown
    assert (fault[1], words in fault[2]) == (column, True)


def test_one_faulty_row_keeps_all_rows_out(admin: Client, kind: str) -> None:
    shown = preview(admin, HEAD + ROW.format(kind=kind) + "r2,h900,8,1,1,no,\n")
    assert "Confirm import" not in shown
    assert Node.objects.count() == 1


def test_every_faulty_row_is_named(admin: Client) -> None:
    shown = preview(admin, HEAD + "r1,h900,8,1,1,no,\nr2,h901,8,1,1,no,\n")
    assert "h900" in shown
    assert "h901" in shown


def test_the_kind_of_a_nodes_gpus_cannot_be_changed(lab: Lab, admin: Client) -> None:
    lab.node("n2", gpu_type="v100", gpus=1)
    assert "GPU type of a node cannot be changed" in preview(admin, HEAD + "n1,v100,2,1,1,no,\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,gpus\nn1,2\n", "Missing columns in the first line: gpu_type, cpus, memory_mib"),
        (HEAD.strip() + ",colour\nr1,a100,1,1,1,no,,red\n", "Unknown columns: colour"),
        (HEAD + ROW + ROW, "more than one row"),
        ("", "file is empty"),
        (HEAD, "No valid data"),
        (b"name,gpu_type\n\xff\xfe,\xc3\x28\n", "not CSV in UTF-8"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_in_words(admin: Client, text: str | bytes, words: str) -> None:
    shown = preview(admin, text)
    assert words in shown
    assert "Traceback" not in shown


def test_what_became_wrong_since_the_preview_is_not_imported(lab: Lab, admin: Client) -> None:
    rare = GpuType.objects.create(name="rare", memory_mib=1024)
    shown = preview(admin, HEAD + "r1,rare,2,1,1,no,\n")
    rare.delete()
    assert "Nothing was imported" in confirm(admin, shown).content.decode()
    assert Node.objects.count() == 1


def test_only_staff_can_import(lab: Lab, admin: Client) -> None:
    admin.force_login(lab.user("ada"))
    assert admin.get(reverse(URL)).status_code == 302


@pytest.mark.parametrize(("rights", "status"), [((), 403), (("add",), 403), (("add", "change", "view"), 200)])
def test_staff_import_with_the_permissions_to_add_and_change_nodes(
    lab: Lab, plain_static: None, rights: tuple[str, ...], status: int
) -> None:
    client = staff_with(lab, rights)
    file = SimpleUploadedFile("nodes.csv", HEAD.encode(), "text/csv")
    asked = {"import_file": file, "format": "0", "resource": ""}
    answers = client.get(reverse(URL)), client.post(reverse(URL), asked)
    assert [answer.status_code for answer in answers] == [status, status]
    if status == 403:
        assert client.post(reverse("admin:cluster_app_node_process_import"), {}).status_code == 403


@pytest.mark.parametrize("action", ["cordon_nodes", "drain_nodes", "resume_nodes"])
def test_staff_who_may_only_see_nodes_take_none_out_of_service(lab: Lab, plain_static: None, action: str) -> None:
    lab.node("n1")
    client = staff_with(lab, ("view",))
    asked = {"action": action, "_selected_action": [Node.objects.get().pk], "reason": "mine", "confirmed": "yes"}
    page = client.post(reverse("admin:cluster_app_node_changelist"), asked, follow=True)
    assert "No action selected" in page.content.decode()
    assert Node.objects.get().state == Node.State.READY


def staff_with(lab: Lab, rights: tuple[str, ...]) -> Client:
    """A browser of staff with these permissions on nodes, and no others."""
    sam = lab.user("sam")
    sam.is_staff = True
    sam.save()
    sam.user_permissions.set(Permission.objects.filter(codename__in=[f"{right}_node" for right in rights]))
    client = Client()
    client.force_login(sam)
    return client


def test_gpus_that_a_job_has_are_not_taken_out(lab: Lab, admin: Client, kind: str) -> None:
    lab.running(lab.submit(UNTIL_LET_GO, gpus=2))
    assert "drain n1 first" in preview(admin, HEAD + f"n1,{kind},1,64,1024,yes,\n")


def test_the_preview_shows_what_was_and_what_would_be_without_inline_styles(admin: Client, kind: str) -> None:
    shown = preview(admin, HEAD + f"n1,{kind},2,32,2048,no,\n")
    assert "<del>64</del> 32" in shown
    assert "style=" not in shown.split("import-preview")[1]


def test_the_preview_shows_what_the_file_may_say(admin: Client, kind: str) -> None:
    shown = preview(admin, HEAD + ROW.format(kind=kind)).split("import-preview")[1]
    assert "yes" in shown
    assert "None" not in shown


# -- nodes that an engine has, and others ------------------------------------------------------------------------


def example_of_the_page(admin: Client) -> str:
    found = re.search(r"<pre>(.*?)</pre>", admin.get(reverse(URL)).content.decode(), re.DOTALL)
    assert found
    return found[1] + "\n"


def test_the_example_of_the_page_makes_nodes_that_run_jobs_though_no_gpu_type_was_there(
    lab: Lab, admin: Client
) -> None:
    Node.objects.all().delete()
    GpuType.objects.all().delete()
    lab.tick()
    confirm(admin, preview(admin, example_of_the_page(admin)))
    assert set(Node.objects.values_list("name", "health")) == {("rack1-01", "unknown"), ("rack1-02", "unknown")}
    job = lab.until_state(lab.submit(gpus=8), Job.State.SUCCEEDED)
    assert job.attempts.get().nodes == ["rack1-01"]


def test_a_node_that_this_machine_does_not_have_is_refused_with_the_figure(lab: Lab, admin: Client, kind: str) -> None:
    lab.tick()
    shown = preview(admin, HEAD + ROW.format(kind=kind).replace("yes", "no"))
    assert f"This machine has 0 {kind} GPUs: tick emulated, or choose the engine that has the node." in shown
    assert "Confirm import" not in shown


@pytest.fixture
def hpc(admin: Client) -> Engine:
    """An engine that reports n3 with 2 V100."""
    entry = {"gpu_type": "v100", "gpus": 2, "cpus": 8, "memory_mib": 1024, "state": "ok", "reason": ""}
    columns = {"options": {"root": "/shared"}, "heard_at": timezone.now(), "inventory": {"n3": entry}}
    return Engine.objects.create(name="hpc", kind=Engine.Kind.SLURM, **columns)


OF_HPC = "name,gpu_type,gpus,cpus,memory_mib,engine,emulated\n"


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        ("n3,a100,4,8,1024,hpc,no", "gpus", "The engine hpc reports 2 v100 GPUs on n3, not 4 a100."),
        ("n3,v100,4,8,1024,hpc,no", "gpus", "The engine hpc reports 2 v100 GPUs on n3, not 4 v100."),
        ("n4,v100,2,8,1024,hpc,no", "engine", "The engine hpc does not report n4; it reports: n3 (2 v100)."),
        ("n3,v100,2,8,1024,hpc,yes", "emulated", "Only the engine of this machine has emulated nodes"),
        ("n3,v100,2,8,1024,lpc,no", "engine", "Unknown engine &#x27;lpc&#x27;. Known engines: hpc, local."),
    ],
)
def test_a_node_that_its_engine_reports_otherwise_is_refused(
    admin: Client, hpc: Engine, row: str, column: str, words: str
) -> None:
    shown = preview(admin, OF_HPC + row + "\n")
    assert words in shown
    assert f"<code>{column}</code>" in shown


def test_a_node_as_its_engine_reports_it_is_taken(admin: Client, hpc: Engine) -> None:
    confirm(admin, preview(admin, OF_HPC + "n3,v100,2,8,1024,hpc,no\n"))
    assert Node.objects.get(name="n3").engine == hpc


def test_a_node_of_an_engine_that_was_never_heard_is_taken_and_stays_unknown(admin: Client, hpc: Engine) -> None:
    Engine.objects.filter(name="hpc").update(heard_at=None, inventory={})
    confirm(admin, preview(admin, OF_HPC + "n9,v100,2,8,1024,hpc,no\n"))
    assert Node.objects.get(name="n9").health == Node.Health.UNKNOWN


def test_a_node_that_is_no_longer_emulated_is_unknown_until_it_is_heard(lab: Lab, admin: Client, kind: str) -> None:
    confirm(admin, preview(admin, HEAD + f"n1,{kind},2,64,1024,no,\n"))
    assert Node.objects.get().health == Node.Health.UNKNOWN
    lab.tick()
    assert Node.objects.get().health == Node.Health.UNKNOWN
    assert Node.objects.get().engine.name == LOCAL_ENGINE


def test_a_file_with_too_many_rows_is_refused_before_any_is_looked_at(admin: Client, kind: str) -> None:
    text = HEAD + "".join(f"r{n},{kind},1,8,1024,yes,\n" for n in range(MOST_ROWS + 1))
    with CaptureQueriesContext(connection) as asked:
        shown = preview(admin, text)
    assert "at most 10,000 nodes" in shown
    assert len(asked) < 30


def test_a_preview_reads_and_does_not_write_however_many_rows_it_has(admin: Client, kind: str) -> None:
    """SQLite has one write lock: a preview that held it would stop the whole service for its time."""
    text = HEAD + "".join(f"r{n},{(kind, 'h100')[n % 2]},1,8,1024,yes,\n" for n in range(40))
    with CaptureQueriesContext(connection) as asked:
        shown = preview(admin, text)
    assert "Confirm import" in shown
    nodes = [query["sql"] for query in asked if "cluster_app_" in query["sql"]]
    assert len(nodes) < 10
    assert not [sql for sql in nodes if not sql.startswith("SELECT")]
    assert not GpuType.objects.filter(name="h100").exists()
    confirm(admin, shown)
    assert Node.objects.filter(gpu_type__name="h100").count() == 20


def test_an_import_takes_as_many_queries_however_many_rows_it_has(lab: Lab, admin: Client, kind: str) -> None:
    """Each row had some of its own in one transaction, which held SQLite's lock for 2 ms a row."""
    text = HEAD + "".join(f"r{n},{kind},2,8,1024,yes,\n" for n in range(40))
    for changed in (text, text.replace(",2,8,", ",3,16,")):
        shown = preview(admin, changed)
        with CaptureQueriesContext(connection) as asked:
            confirm(admin, shown)
        assert len([query for query in asked if "cluster_app_" in query["sql"]]) < 30
    assert Gpu.objects.present().exclude(node__name="n1").count() == 120


def test_gpus_are_taken_out_and_come_back(admin: Client, kind: str) -> None:
    for count in (1, 3):
        confirm(admin, preview(admin, HEAD + f"n1,{kind},{count},64,1024,yes,\n"))
        assert list(Gpu.objects.present().values_list("index", flat=True)) == list(range(count))


def test_gpus_that_a_job_got_since_the_preview_are_not_taken_out(
    lab: Lab, admin: Client, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between the check of the import and its transaction, where the row was right."""
    shown = preview(admin, HEAD + f"n1,{kind},1,64,1024,yes,\nr2,{kind},1,8,1024,yes,\n")
    lab.running(lab.submit(UNTIL_LET_GO, gpus=2))
    monkeypatch.setattr(NodeResource, "_claimed", {})
    assert "Nothing was imported" in confirm(admin, shown).content.decode()
    assert Gpu.objects.present().count() == 2
    assert not Node.objects.filter(name="r2").exists()


def test_a_preview_that_nobody_confirms_leaves_no_file(
    admin: Client, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    preview(admin, HEAD + ROW.format(kind=kind))
    assert not list(tmp_path.iterdir())


def test_a_preview_is_confirmed_as_it_was_shown_or_not_at_all(admin: Client, kind: str) -> None:
    shown = preview(admin, HEAD + ROW.format(kind=kind))
    forged = shown.replace('name="import_file_name" value="', 'name="import_file_name" value="x')
    assert "preview the file again" in confirm(admin, forged).content.decode()
    assert Node.objects.count() == 1


STAY = "name,gpu_type,gpus,cpus,memory_mib,capacity_type,notice_s,price_per_gpu_hour,lent_from,lent_until,lent_zone\n"
OF_N1 = ("capacity_type", "notice_s", "price_per_gpu_hour", "lent_from", "lent_until", "lent_zone")


def test_how_long_a_node_stays_its_price_and_its_hours_are_columns(admin: Client, kind: str) -> None:
    confirm(admin, preview(admin, STAY + f"n1,{kind},2,99,1024,volunteer,600,0.25,22:00,06:30,Europe/Berlin\n"))
    values = Node.objects.values_list(*OF_N1).get()
    assert values == ("volunteer", 600, Decimal("0.25"), time(22), time(6, 30), "Europe/Berlin")
    confirm(admin, preview(admin, STAY + f"n1,{kind},2,99,1024,,,,,,\n"))
    assert Node.objects.values_list(*OF_N1).get() == ("stable", 0, None, None, None, "UTC")


@pytest.mark.parametrize(
    ("cells", "column", "remedy"),
    [
        ("lent,,,,,", "capacity_type", "Write stable, spot or volunteer"),
        ("spot,2 min,,,,", "notice_s", "Write a whole number"),
        ("spot,,cheap,,,", "price_per_gpu_hour", "Write a price per GPU-hour, as 1.25"),
        ("spot,,-1,,,", "price_per_gpu_hour", "greater than or equal to 0"),
        (",,,10 pm,06:00,", "lent_from", "Write a time of day, as 22:00"),
        (",,,22:00,,", "lent_until", "Give both times"),
        (",,,22:00,22:00,", "lent_until", "Both times are the same"),
        (",,,22:00,06:00,Berlin", "lent_zone", "Berlin"),
    ],
)
def test_a_fault_names_the_column_and_what_to_write(
    admin: Client, kind: str, cells: str, column: str, remedy: str
) -> None:
    shown = html.unescape(preview(admin, STAY + f"n1,{kind},2,99,1024,{cells}\n"))
    assert "Nothing was imported" in shown
    assert f"<code>{column}</code>" in shown
    assert remedy in shown


def test_what_was_exported_changes_nothing_when_it_is_imported(admin: Client, kind: str) -> None:
    confirm(admin, preview(admin, STAY + f"r1,{kind},4,9,1024,spot,120,0.9,22:00,06:30,Europe/Berlin\n"))
    action = {"action": "export_nodes", "_selected_action": list(Node.objects.values_list("pk", flat=True))}
    text = admin.post(reverse("admin:cluster_app_node_changelist"), action).content
    assert text.decode().splitlines()[2].startswith(f"r1,{kind},4,9,1024,local,no,,,spot,120,0.900,22:00")
    before = list(Node.objects.values())
    shown = preview(admin, text)
    assert "<del>" not in shown
    confirm(admin, shown)
    assert list(Node.objects.values()) == before
