"""Images of jobs: checked when they are submitted, placed on nodes that run containers, and started there."""

from typing import Any

import pytest
from pytest_django import Settings

from cluster_app.models import Engine, Node
from connections_app.engine_registry import FACTORIES, EngineSetup
from engines.local.engine import LocalEngine
from engines.supervision.container_runtime import ContainerRuntime
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job, Reason
from jobs_app.submission.conversion import spec_of
from jobs_app.submission.images import may_fetch
from jobs_app.submission.submit import cloned_spec
from tests.engines.test_containers import RUNTIME, images, rootfs  # noqa: F401 - fixtures
from tests.service_lab import Lab

ARCHIVE = "oci-archive:/images/torch.tar"


def faults_of(lab: Lab, **spec: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidSpec) as refused:
        lab.submit(**spec)
    return [(fault["pointer"], fault["code"], fault["detail"]) for fault in refused.value.faults]


def with_containers(lab: Lab, *names: str) -> None:
    for name in names:
        lab.node(name)
    Node.objects.filter(name__in=names).update(containers="podman 4.3.1")


@pytest.mark.parametrize(
    "image",
    [
        "-v/:/host",
        "torch",
        "torch:2.5",
        "localhost/torch; rm -rf /",
        "localhost/torch --privileged",
        "docker://localhost/torch",
        "oci-archive:images/torch.tar",
        "oci-archive:/images/../etc/shadow",
        "LOCALHOST/",
        "localhost/torch@sha256:12",
    ],
)
def test_what_is_no_whole_name_of_an_image_is_refused(lab: Lab, image: str) -> None:
    with_containers(lab, "n1")
    ((pointer, _, detail),) = faults_of(lab, image=image)
    assert (pointer, "Write the whole name" in detail) == ("/image", True)


def test_without_a_node_that_runs_containers_the_job_is_refused_with_the_remedy(lab: Lab) -> None:
    lab.node("n1")
    ((pointer, code, detail),) = faults_of(lab, image="localhost/tiny:1")
    assert (pointer, code) == ("/image", "no_containers")
    assert "an administrator can install Podman" in detail


def test_an_archive_outside_of_the_sites_folders_is_refused(lab: Lab, settings: Settings) -> None:
    with_containers(lab, "n1")
    settings.MOTLEY_IMAGE_FOLDERS = ["/other"]
    ((pointer, code, detail),) = faults_of(lab, image=ARCHIVE)
    assert (pointer, code, "/other" in detail) == ("/image", "image_not_allowed", True)
    settings.MOTLEY_IMAGE_FOLDERS = ["/images"]
    assert lab.submit(image=ARCHIVE).image == ARCHIVE


def test_only_images_of_the_sites_registries_are_pulled(settings: Settings) -> None:
    settings.MOTLEY_IMAGE_REGISTRIES = ["registry.example.org:5000"]
    assert may_fetch("registry.example.org:5000/team/torch:2.5")
    assert not may_fetch("registry.example.org/team/torch:2.5")
    assert not may_fetch("localhost/torch:2.5")


def test_a_clone_has_the_image(lab: Lab) -> None:
    with_containers(lab, "n1")
    assert cloned_spec(spec_of(lab.submit(image="localhost/tiny:1")))["image"] == "localhost/tiny:1"


def test_a_job_with_an_image_goes_to_a_node_that_runs_containers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, job_user: str
) -> None:
    def made(setup: EngineSetup) -> LocalEngine:
        engine = LocalEngine(lab.root, declared=setup.emulated, job_user=job_user or None, containers="none")
        engine.__dict__["_runtime"] = ContainerRuntime("podman", "4.3.1") if setup.name == "far" else ContainerRuntime()
        return engine

    for kind in Engine.Kind.values:
        monkeypatch.setitem(FACTORIES, kind, made)
    Engine.objects.create(name="far", kind=Engine.Kind.SLURM)
    for name in ("n1", "n2", "n3"):
        lab.node(name)
    Node.objects.filter(name="n2").update(engine="far")
    lab.until(lambda: Node.objects.filter(containers="podman 4.3.1").exists())
    job = lab.submit(image="localhost/tiny:1")
    lab.until(lambda: lab.attempts(job))
    assert lab.attempts(job)[0].nodes == ["n2"]


def test_where_its_nodes_run_none_any_more_it_waits_and_says_why(lab: Lab, settings: Settings) -> None:
    settings.MOTLEY_CONTAINERS = "none"
    with_containers(lab, "n1")
    job = lab.submit(image="localhost/tiny:1")
    lab.round()
    job.refresh_from_db()
    assert (job.state, lab.attempts(job)) == (Job.State.QUEUED, [])
    assert (job.reason, "runs containers" in str(job.reasons)) == (Reason.NO_HEALTHY_NODE, True)


@pytest.mark.skipif(not RUNTIME.name, reason=f"no Podman: {RUNTIME.why_not}")
def test_a_job_runs_in_its_image(lab: Lab, images: Any, settings: Settings) -> None:  # noqa: F811
    settings.MOTLEY_IMAGE_FOLDERS = [str(images)]
    lab.node("n1")
    lab.until(lambda: Node.objects.get().containers == str(RUNTIME))
    job = lab.submit("ls -d /only-here", image=f"oci-archive:{images}/tiny.tar")
    lab.until_state(job, Job.State.SUCCEEDED)
    assert lab.output(job) == "/only-here\n"
