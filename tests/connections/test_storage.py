"""Named storage: what jobs find there, where jobs that name it are placed, and what becomes of one that is missing."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from cluster_app.models import LOCAL_ENGINE, Engine, GpuType, MissingStorage, Node, Storage
from cluster_app.storage import TRIED_AGAIN_AFTER
from connections_app import engine_registry as registry
from connections_app.models import EngineProbe
from connections_app.probe import ask_for_probe
from engines.local.engine import LocalEngine
from insight_app.explain.dry_run import dry_run
from jobs_app.errors import InvalidSpec
from jobs_app.models import Attempt, Job, Reason
from jobs_app.submission.batch import admitted_batch
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.submit import cloned_spec, enter_batch, submit_job
from tests.rest_callers import caller
from tests.service_lab import UNTIL_LET_GO, Lab
from web.rest.errors import Fault

State = Job.State


@pytest.fixture
def folder(lab: Lab) -> Path:
    """What the storage `data` holds; any account may read it."""
    path = lab.root / "data"
    path.mkdir()
    (path / "train.txt").write_text("samples")
    (path / "train.txt").chmod(0o644)
    path.chmod(0o755)
    return path


@pytest.fixture
def gone(lab: Lab) -> Path:
    return lab.root / "gone"


@pytest.fixture
def far(lab: Lab, monkeypatch: pytest.MonkeyPatch, job_user: str) -> Engine:
    """A second engine, with nodes of its own on this machine."""

    def made(setup: registry.EngineSetup) -> LocalEngine:
        return LocalEngine(lab.root, declared=setup.emulated, job_user=job_user or None)

    monkeypatch.setitem(registry.FACTORIES, Engine.Kind.SLURM.value, made)
    return Engine.objects.create(name="far", kind=Engine.Kind.SLURM, options={"root": "/shared"})


@pytest.fixture
def storage(lab: Lab, folder: Path) -> Callable[..., Storage]:
    def named(name: str = "data", engine: str = LOCAL_ENGINE, gpu_type: str = "", path: Path | str = folder) -> Storage:
        kind = GpuType.objects.get(name=gpu_type) if gpu_type else None
        return Storage.objects.create(name=name, engine_id=engine, gpu_type=kind, path=str(path))

    return named


@pytest.fixture
def cluster(lab: Lab, far: Engine) -> Lab:
    """An A100 at each of two engines, and a T4 at the first."""
    lab.node("n1", "a100", gpus=1)
    lab.node("t1", "t4", gpus=1)
    lab.node("f1", "a100", gpus=1)
    Node.objects.filter(name="f1").update(engine="far")
    return lab


def refusal(lab: Lab, **spec: Any) -> Fault:
    with pytest.raises(InvalidSpec) as refused:
        lab.submit(**spec)
    (fault,) = refused.value.faults
    return fault


def placed_on(lab: Lab, **spec: Any) -> list[str]:
    return list(lab.attempts(lab.until_state(lab.submit(**spec), State.SUCCEEDED))[-1].nodes)


# -- what a job finds --------------------------------------------------------------------------------------------


def test_a_job_finds_the_path_in_a_variable_and_as_a_link_in_its_folder(lab: Lab, storage: Any, folder: Path) -> None:
    lab.node("n1")
    storage()
    job = lab.submit('echo "$MOTLEY_MOUNT_DATA"; cat mounts/data/train.txt', mounts=["data"])
    lab.until_state(job, State.SUCCEEDED)
    assert lab.output(job) == f"{folder}\nsamples"


def test_in_a_folder_of_its_owner_nothing_is_made(lab: Lab, storage: Any, folder: Path) -> None:
    lab.node("n1")
    storage()
    job = lab.submit('ls "$MOTLEY_MOUNT_DATA"; ls mounts || echo none', mounts=["data"], workdir=str(folder))
    lab.until_state(job, State.SUCCEEDED)
    assert lab.output(job) == "train.txt\nnone\n"


def test_a_path_of_the_gpu_type_comes_before_that_of_the_engine(cluster: Lab, storage: Any, folder: Path) -> None:
    storage()
    storage(gpu_type="t4", path="/tmp")
    command = 'echo "$MOTLEY_MOUNT_DATA"'
    jobs = {kind: cluster.submit(command, mounts=["data"], gpu_types=[kind]) for kind in ("t4", "a100")}
    found = {kind: cluster.output(cluster.until_state(job, State.SUCCEEDED)).strip() for kind, job in jobs.items()}
    assert found == {"t4": "/tmp", "a100": str(folder)}


# -- the doors ---------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_refused_with_the_known_ones(cluster: Lab, storage: Any) -> None:
    storage()
    storage("scratch", "far")
    fault = refusal(cluster, mounts=["data", "dtaa"])
    assert (fault["code"], fault["pointer"]) == ("no_such_storage", "/mounts")
    assert fault["detail"] == "No node has the storage dtaa; there is data, scratch."


def test_without_any_storage_the_refusal_names_the_remedy(cluster: Lab) -> None:
    assert "an administrator can add it in the administration" in refusal(cluster, mounts=["data"])["detail"]


def test_storage_that_no_node_has_together_is_refused(cluster: Lab, storage: Any) -> None:
    storage()
    storage("scratch", "far")
    fault = refusal(cluster, mounts=["data", "scratch"])
    assert fault["detail"] == "No node has the storage data and scratch together."


def test_storage_that_the_allowed_types_lack_is_refused_with_where_it_is(cluster: Lab, storage: Any) -> None:
    storage("scratch", "far")
    fault = refusal(cluster, mounts=["scratch"], gpu_types=["t4"])
    assert fault["detail"].endswith("these have it: A100 of far.")


def test_a_gang_larger_than_the_nodes_with_its_storage_is_refused(cluster: Lab, storage: Any) -> None:
    storage("scratch", "far")
    fault = refusal(cluster, mounts=["scratch"], gpus=2)
    assert (fault["code"], fault["pointer"]) == ("gang_too_large", "/gpus")
    assert " with the requested storage; the most possible: 1 A100" in fault["detail"]


@pytest.mark.parametrize("mounts", ["data", [1, {}], ["data", "data"], ["x" * 41], ["da\nta"]])
def test_what_is_no_list_of_names_is_refused(cluster: Lab, storage: Any, mounts: Any) -> None:
    storage()
    with pytest.raises(InvalidSpec) as refused:
        cluster.submit(mounts=mounts)
    assert all(fault["pointer"].startswith("/mounts") for fault in refused.value.faults)


def test_a_clone_and_a_batch_have_it_too(cluster: Lab, storage: Any) -> None:
    storage()
    job = cluster.submit(mounts=["data"])
    clone = submit_job(cloned_spec(spec_of(job)), owner=cluster.user())
    (of_batch,) = enter_batch(admitted_batch({"jobs": [cloned_spec(spec_of(job))]}, cluster.user()))
    assert [clone.mounts, Job.objects.get(pk=of_batch).mounts] == [["data"], ["data"]]


def test_the_form_offers_the_names_and_keeps_those_of_the_yaml(cluster: Lab, storage: Any, plain_static: None) -> None:
    storage()
    client = Client()
    client.force_login(cluster.user())
    assert 'name="mounts" value="data"' in client.get(reverse("new-job")).content.decode()
    fields = {"mode": "form", "do": "submit", "name": "job", "command": "true", "gpus": "1", "team": "vision"}
    client.post(reverse("new-job"), fields | {"mounts": ["data"]})
    assert Job.objects.get().mounts == ["data"]


# -- placement ---------------------------------------------------------------------------------------------------


def test_a_job_is_placed_at_the_engine_that_has_its_storage(cluster: Lab, storage: Any) -> None:
    storage("scratch", "far")
    assert placed_on(cluster, mounts=["scratch"]) == ["f1"]


def test_a_job_is_placed_on_the_gpu_type_that_has_its_storage(cluster: Lab, storage: Any) -> None:
    storage("scratch", gpu_type="t4")
    assert placed_on(cluster, mounts=["scratch"]) == ["t1"]


def test_a_job_waits_for_the_nodes_with_its_storage_and_says_so(cluster: Lab, storage: Any) -> None:
    storage("scratch", "far")
    first = cluster.submit(UNTIL_LET_GO, mounts=["scratch"], preemptible=False)
    cluster.running(first)
    second = cluster.submit(mounts=["scratch"])
    cluster.round()
    second.refresh_from_db()
    assert second.reason == Reason.INSUFFICIENT_GPUS
    assert "0 left on nodes that it may use" in second.message
    cluster.let_go(first)
    cluster.until_state(second, State.SUCCEEDED)


def test_a_job_with_a_choice_leaves_the_node_to_one_without(cluster: Lab, storage: Any) -> None:
    """Both ask for an A100 in the same round; one of the two nodes alone has the storage."""
    storage("scratch", "far")
    anywhere = cluster.submit(UNTIL_LET_GO, gpu_types=["a100"])
    there = cluster.submit(UNTIL_LET_GO, gpu_types=["a100"], mounts=["scratch"])
    cluster.running(anywhere, there)
    assert [cluster.attempts(job)[0].nodes for job in (anywhere, there)] == [["n1"], ["f1"]]


def test_a_dry_run_names_only_types_with_the_storage(cluster: Lab, storage: Any) -> None:
    storage("scratch", "far")
    spec = {"name": "job", "command": "true", "gpus": 1, "mounts": ["scratch"]}
    options = dry_run(spec, owner=cluster.user())["options"]
    assert [(option["gpu_type"], option["can_start_now"], option["free_gpus"]) for option in options] == [
        ("a100", True, 1),
        ("t4", False, 1),
    ]
    assert options[1]["reason"] == "no node of this type in service has the storage scratch"


def test_a_job_whose_storage_was_taken_away_waits_and_says_so(cluster: Lab, storage: Any) -> None:
    scratch = storage("scratch", "far")
    job = cluster.submit(mounts=["scratch"])
    scratch.delete()
    cluster.round()
    job.refresh_from_db()
    assert (job.state, job.reason) == (State.QUEUED, Reason.NO_STORAGE)
    assert "No node has the storage scratch" in job.message


def test_storage_that_is_taken_away_between_round_and_launch_costs_the_job_nothing(
    cluster: Lab, storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = storage("scratch", "far")
    job = cluster.submit(mounts=["scratch"])
    Engine.objects.filter(name="far").update(fault="")
    commit = "scheduler_app.round.tick.dispatch"
    from scheduler_app.round.dispatch import dispatch  # noqa: PLC0415 - the real one, below

    def late(fence: Any, now: Any) -> None:
        if Attempt.objects.exists():
            scratch.delete()
        dispatch(fence, now)

    monkeypatch.setattr(commit, late)
    cluster.round()
    job.refresh_from_db()
    assert (job.state, job.failures, job.losses) == (State.QUEUED, 0, 0)
    assert "The storage scratch was taken from a100 of the engine far." in job.attempts.get().message


# -- a path that is missing --------------------------------------------------------------------------------------


def test_a_missing_path_is_the_fault_of_the_node_and_the_job_waits(lab: Lab, storage: Any, gone: Path) -> None:
    lab.node("n1")
    storage(path=gone)
    job = lab.submit(mounts=["data"])
    lab.until(lambda: Attempt.objects.filter(outcome=Attempt.Outcome.FAILED).exists())
    for _ in range(5):
        lab.round()
    job.refresh_from_db()
    attempt = job.attempts.get()
    assert attempt.message == f"The storage data is missing on n1: {gone}: No such file or directory."
    assert (job.state, job.reason, job.failures, job.requeues) == (State.QUEUED, Reason.NO_STORAGE, 0, 0)
    assert "Its storage was missing: data on n1." in job.message
    assert Node.objects.get().events.first().message == "The storage data is missing."


def test_the_node_is_tried_again_after_a_while(lab: Lab, storage: Any, gone: Path) -> None:
    lab.node("n1")
    storage(path=gone)
    job = lab.submit(mounts=["data"])
    lab.until(MissingStorage.objects.exists)
    gone.mkdir()
    gone.chmod(0o755)
    lab.ahead += TRIED_AGAIN_AFTER + timedelta(seconds=1)
    lab.until_state(job, State.SUCCEEDED)
    assert job.attempt_count == 2


def test_a_job_goes_on_where_its_storage_is(cluster: Lab, storage: Any, gone: Path) -> None:
    storage("data", gpu_type="a100", path=gone)
    storage("data", "far")
    job = cluster.submit(mounts=["data"], gpu_types=["a100"])
    Node.objects.filter(name="f1").update(state=Node.State.CORDONED, reason="later")
    cluster.until(MissingStorage.objects.exists)
    Node.objects.filter(name="f1").update(state=Node.State.READY, reason="")
    cluster.until_state(job, State.SUCCEEDED)
    assert [attempt.nodes for attempt in cluster.attempts(job)] == [["n1"], ["f1"]]


def test_an_administrator_who_corrects_the_path_need_not_wait(
    lab: Lab, storage: Any, folder: Path, gone: Path, plain_static: None
) -> None:
    lab.node("n1")
    row = storage(path=gone)
    job = lab.submit(mounts=["data"])
    lab.until(MissingStorage.objects.exists)
    admin = Client()
    admin.force_login(lab.user("root", staff=True))
    url = reverse("admin:cluster_app_storage_change", args=[row.pk])
    admin.post(url, {"name": "data", "engine": LOCAL_ENGINE, "gpu_type": "", "path": str(folder)})
    lab.until_state(job, State.SUCCEEDED)
    assert AuditEntry.objects.get(action="admin.change").target == "storage data on local"


# -- the administration and REST ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "My-Data"}, "Use lower-case letters, digits and"),
        ({"path": "mnt/data"}, "Write an absolute path"),
        ({"path": "/mnt/../etc"}, "Write an absolute path"),
        ({"path": "/mnt\n/x"}, "Write an absolute path"),
    ],
)
def test_storage_that_makes_no_sense_is_refused(
    lab: Lab, plain_static: None, changes: dict[str, str], words: str
) -> None:
    admin = Client()
    admin.force_login(lab.user("root", staff=True))
    given = {"name": "data", "engine": LOCAL_ENGINE, "gpu_type": "", "path": "/mnt/data"} | changes
    assert words in admin.post(reverse("admin:cluster_app_storage_add"), given).content.decode()


def test_a_name_has_one_path_for_all_nodes_of_an_engine(lab: Lab, storage: Any, plain_static: None) -> None:
    storage()
    admin = Client()
    admin.force_login(lab.user("root", staff=True))
    given = {"name": "data", "engine": LOCAL_ENGINE, "gpu_type": "", "path": "/mnt/data"}
    page = admin.post(reverse("admin:cluster_app_storage_add"), given).content.decode()
    assert "This engine has a path for this name already" in page


def test_rest_lists_names_and_engines_and_paths_for_administrators(
    cluster: Lab, storage: Any, folder: Path, ada: APIClient
) -> None:
    storage()
    storage("data", "far", "a100", "/far/data")
    MissingStorage.objects.create(node=Node.objects.get(name="f1"), name="data")
    rows = ada.get("/api/v1/storage").json()["results"]
    assert rows == [
        {"name": "data", "engine": "far", "gpu_type": "a100", "path": None, "missing_on": ["f1"]},
        {"name": "data", "engine": "local", "gpu_type": None, "path": None, "missing_on": []},
    ]
    root = caller(cluster.user("root", staff=True), "admin")
    assert [row["path"] for row in root.get("/api/v1/storage").json()["results"]] == ["/far/data", str(folder)]


@pytest.fixture
def ada(cluster: Lab, plain_static: None) -> APIClient:
    return caller(cluster.user())


def probed(lab: Lab) -> EngineProbe:
    probe = ask_for_probe(Engine.objects.get(name=LOCAL_ENGINE), actor=None)

    def ended() -> bool:
        probe.refresh_from_db()
        return probe.ended_at is not None

    lab.until(ended)
    return probe


def test_the_test_of_an_engine_says_what_storage_its_node_has(lab: Lab, storage: Any, folder: Path) -> None:
    lab.node("n1")
    storage()
    storage("temporary", path="/tmp")
    MissingStorage.objects.create(node=Node.objects.get(), name="data")
    probe = probed(lab)
    assert probe.passed, probe.log
    assert f": {folder}\n" in probe.log
    assert "storage temporary is writable: /tmp" in probe.log
    assert not MissingStorage.objects.exists()


def test_the_test_of_an_engine_fails_where_its_node_lacks_storage(lab: Lab, storage: Any, gone: Path) -> None:
    lab.node("n1")
    storage(path=gone)
    probe = probed(lab)
    assert not probe.passed
    assert f"storage data is missing: {gone}" in probe.log
    assert "Storage that jobs cannot use on this node: data" in probe.log
