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
from jobs_app.models import (
    ApiToken,
    Attempt,
    Budget,
    Job,
    Notification,
    Recipe,
    RecurringJob,
    Sweep,
    SweepTrial,
    TeamQuota,
)
from jobs_app.recipes.editing import add_recipe, admitted_recipe
from jobs_app.recipes.parameters import Parameter
from jobs_app.secrets import set_secret
from jobs_app.tokens import JobToken, issue_token
from scheduler_app.models import PolicySetting, TimeWindow
from scheduler_app.recurring_jobs.editing import add_recurring_job, admitted_recurring_job
from scheduler_app.sweeps.admission import admitted_sweep
from scheduler_app.sweeps.advance import advance_sweeps
from scheduler_app.sweeps.editing import start_sweep
from scheduler_app.windows.editing import add_window
from tests.notification_server import webhook_of
from tests.rest_callers import SPEC, Scope, with_token
from tests.service_lab import Lab, lab_of_rows
from tests.shared_rows import shared_rows


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


@shared_rows
def tokens_and_places() -> tuple[dict[str, str], dict[str, str]]:
    """Rows of the world: no process is started."""
    lab = lab_of_rows()
    lab.node("n1", gpus=4)
    ada, root = lab.user(), lab.user("root", "admins", staff=True)
    lab.team().leads.add(ada)
    job = lab.submit()
    lab.recorded_as_running(job)
    return _tokens(lab, ada, root, job.attempts.get()), _places(lab, ada, root, job)


def _tokens(lab: Lab, ada: User, root: User, attempt: Attempt) -> dict[str, str]:
    of_users = {
        "stranger": (lab.user("eve", "language"), Scope.SUBMIT),
        "reader": (ada, Scope.READ),
        "member": (ada, Scope.SUBMIT),
        "clerk": (root, Scope.SUBMIT),
        "staff": (root, Scope.ADMIN),
    }
    issued = {who: issue_token(user, name="test", scope=scope) for who, (user, scope) in of_users.items()}
    return {"job": JobToken.issue(attempt.pk), **issued}


def _places(lab: Lab, ada: User, root: User, job: Job) -> dict[str, str]:
    TeamQuota.objects.create(team=ada.teams.get(), gpu_type=GpuType.objects.get(), gpus=2)
    Budget.objects.create(team=ada.teams.get(), gpu_hours=500)
    target = webhook_of(ada)
    return {
        "jobs": str(job.pk),
        "arrays": str(lab.submit(name="sweep", array={"start": 0, "end": 1}).array_id),
        "nodes": "n1",
        "engines": "local",
        "agents": issue_join_token("attic", trusted=False, actor=root, now=lab.now)[0].name,
        "gpu-types": "a100",
        "recipes": str(added_recipe(ada).pk),
        "recurring-jobs": str(added_recurring_job(ada).pk),
        "sweeps": str(ended_sweep(ada).pk),
        "windows": str(added_window(root).pk),
        "teams": "vision",
        "members": lab.user("ben").username,
        "rounds": "1",
        "comments": str(comment_on_job(job, "loss is NaN", actor=ada).pk),
        "secrets": str(set_secret("OURS", "long enough", team=ada.teams.get(), actor=ada).pk),
        "notification-targets": str(target.pk),
        "notifications": str(Notification.objects.create(target=target, event="job_ended", key="1", state="dead").pk),
        "lab": str(LabRun.objects.create(owner=ada, days=7, policies=["fifo"]).pk),
        "tokens": str(ApiToken.objects.filter(user=ada).latest("pk").pk),
    }


@pytest.fixture
def world(tokens_and_places: tuple[dict[str, str], dict[str, str]], lab: Lab, plain_static: None) -> World:
    """Those rows, with what lies in the lab's folder, and clients."""
    tokens, places = tokens_and_places
    callers = {"anonymous": APIClient(), **{who: with_token(text) for who, text in tokens.items()}}
    of_lab = {"policies": str(PolicySetting.objects.latest("pk").pk), "code": stored_code(lab.user())}
    return World(callers, places | of_lab)


def added_window(user: User) -> TimeWindow:
    """Maintenance of a node."""
    times = {"begins_at": timezone.now() + timedelta(days=1), "ends_at": timezone.now() + timedelta(days=2)}
    return add_window({"reason": "fan", "nodes": [Node.objects.get(name="n1")], **times}, actor=user)


def ended_sweep(owner: User) -> Sweep:
    """With one trial; it can be deleted."""
    asked = {"name": "search", "metric": {"name": "loss"}, "parameters": {"lr": {"value": 1}}, "spec": SPEC}
    sweep = admitted_sweep(asked | {"run_cap": 1}, owner=owner, now=timezone.now() - timedelta(minutes=1))
    start_sweep(sweep)
    advance_sweeps(timezone.now())
    sweep.trials.update(state=SweepTrial.State.SUCCEEDED, value=0.5, ended_at=timezone.now())
    Sweep.objects.filter(pk=sweep.pk).update(state=Sweep.State.FINISHED, ended_at=timezone.now())
    return sweep


def added_recurring_job(owner: User) -> RecurringJob:
    asked = {"schedule": "0 3 * * *", "spec": SPEC | {"name": "nightly"}}
    recurring = admitted_recurring_job(asked, owner=owner, now=timezone.now())
    add_recurring_job(recurring)
    return recurring


def added_recipe(author: User) -> Recipe:
    spec = SPEC | {"name": "train", "command": "train --lr ${{ lr }}"}
    parameters = [Parameter("lr", "number", 0.1).as_row()]
    recipe, version = admitted_recipe({"spec": spec, "parameters": parameters}, author=author, now=timezone.now())
    add_recipe(recipe, version)
    return recipe


def stored_code(owner: User) -> str:
    """Digest of an archive of vision's."""
    digest = sha256(EMPTY_ARCHIVE).hexdigest()
    store(BytesIO(EMPTY_ARCHIVE), digest, team=owner.teams.get(), user=owner)
    return digest
