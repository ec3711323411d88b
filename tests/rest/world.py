"""A running job and what is beside it, with every kind of caller, for tests that look at every route."""

import tarfile
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from io import BytesIO

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from cluster_app.models import GpuType, Node
from connections_app.agents.join_agent import issue_join_token
from insight_app.models import LabRun
from jobs_app.code.storage import store
from jobs_app.lifecycle.comments import comment_on_job
from jobs_app.models import ApiToken, Attempt, Budget, Job, Notification, TeamQuota
from jobs_app.secrets import set_secret
from jobs_app.tokens import JobToken
from scheduler_app.models import PolicySetting, TimeWindow
from scheduler_app.windows.editing import add_window
from tests.notification_server import webhook_of
from tests.rest_callers import Scope, caller, with_token
from tests.service_lab import Lab


def _empty_archive() -> bytes:
    body = BytesIO()
    tarfile.open(fileobj=body, mode="w:gz").close()
    return body.getvalue()


EMPTY_ARCHIVE = _empty_archive()


@dataclass(frozen=True)
class World:
    """A running job of ada's in vision, which ada leads, and every kind of caller."""

    callers: dict[str, APIClient]
    places: dict[str, str]

    def address(self, route: str) -> str:
        path = route.split(" ")[1]
        place = self.places.get(path.split("/")[3])
        return path.format(
            id=place,
            name=place,
            number=place,
            team=place,
            digest=self.places["code"],
            username=self.places["members"],
            event=self.places["comments"],
            gpu_type=self.places["gpu-types"],
        )


@pytest.fixture
def world(lab: Lab, plain_static: None) -> World:
    lab.node("n1", gpus=4)
    ada, root, ben = lab.user(), lab.user("root", "admins", staff=True), lab.user("ben")
    lab.team().leads.add(ada)
    job = lab.submit()
    lab.tick()
    attempt = running(job)
    tokens = {
        "stranger": caller(lab.user("eve", "language")),
        "reader": caller(ada, Scope.READ),
        "member": caller(ada),
        "clerk": caller(root),
        "staff": caller(root, Scope.ADMIN),
    }
    callers = {"anonymous": APIClient(), "job": with_token(JobToken.issue(attempt.pk)), **tokens}
    TeamQuota.objects.create(team=ada.teams.get(), gpu_type=GpuType.objects.get(), gpus=2)
    Budget.objects.create(team=ada.teams.get(), gpu_hours=500)
    target = webhook_of(ada)
    places = {
        "jobs": str(job.pk),
        "arrays": str(lab.submit(name="sweep", array={"start": 0, "end": 1}).array_id),
        "nodes": "n1",
        "engines": "local",
        "agents": issue_join_token("attic", trusted=False, actor=root, now=lab.now)[0].name,
        "gpu-types": "a100",
        "windows": str(added_window(root).pk),
        "teams": "vision",
        "members": ben.username,
        "code": stored_code(ada),
        "rounds": "1",
        "policies": str(PolicySetting.objects.latest("pk").pk),
        "comments": str(comment_on_job(job, "loss is NaN", actor=ada).pk),
        "secrets": str(set_secret("OURS", "long enough", team=ada.teams.get(), actor=ada).pk),
        "notification-targets": str(target.pk),
        "notifications": str(Notification.objects.create(target=target, event="job_ended", key="1", state="dead").pk),
        "lab": str(LabRun.objects.create(owner=ada, days=7, policies=["fifo"]).pk),
        "tokens": str(ApiToken.objects.filter(user=ada).latest("pk").pk),
    }
    return World(callers, places)


def added_window(user: User) -> TimeWindow:
    """Maintenance of a node."""
    times = {"begins_at": timezone.now() + timedelta(days=1), "ends_at": timezone.now() + timedelta(days=2)}
    return add_window({"reason": "fan", "nodes": [Node.objects.get(name="n1")], **times}, actor=user)


def stored_code(owner: User) -> str:
    """Digest of an archive of vision's."""
    digest = sha256(EMPTY_ARCHIVE).hexdigest()
    store(BytesIO(EMPTY_ARCHIVE), digest, team=owner.teams.get(), user=owner)
    return digest


def running(job: Job) -> Attempt:
    """As far as the rows say: nothing here looks at the processes."""
    attempt = Attempt.objects.filter(job=job).latest("pk")
    Attempt.objects.filter(pk=attempt.pk).update(state=Attempt.State.RUNNING, started_at=timezone.now())
    Job.objects.filter(pk=job.pk).update(state=Job.State.RUNNING)
    return attempt
