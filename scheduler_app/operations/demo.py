"""The demo: first accounts and teams, an emulated cluster and sample jobs."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db import transaction

from cluster_app.models import GpuType
from cluster_app.services import add_node
from jobs_app.models import ApiToken, Team
from jobs_app.tokens import issue_token
from scheduler_app.models import PolicySetting
from scheduler_app.operations.register_machine import gpu_type_columns
from scheduler_app.policy.settings import choose_policy

NODES = [("emu-a100-1", "a100", 4), ("emu-v100-1", "v100", 4), ("emu-v100-2", "v100", 4)]
NODES += [("emu-t4-1", "t4", 4), ("emu-t4-2", "t4", 4)]

ROUND_S, MIN_RUN_S = 5, 20


@dataclass(frozen=True)
class Login:
    """An account's name and its new password in plain text."""

    username: str
    password: str


def create_login(username: str, *, staff: bool) -> Login | None:
    """Create an account with a random password; None if it exists already."""
    users = get_user_model().objects
    if users.filter(username=username).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_user(username=username, password=password, is_staff=staff, is_superuser=staff)
    return Login(username, password)


def renew_password(username: str) -> Login:
    """Set a new random password; the first one is stored nowhere."""
    user = get_user_model().objects.get(username=username)
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save()
    return Login(username, password)


def create_token(username: str) -> str:
    """Issue the API token that demo.env contains."""
    user = get_user_model().objects.get(username=username)
    return issue_token(user, name="demo.env", scope=ApiToken.Scope.SUBMIT)


@transaction.atomic
def declare_emulated_cluster() -> None:
    """Declare five emulated nodes on this machine, with a round every few seconds."""
    for name, kind, gpus in NODES:
        gpu_type, _ = GpuType.objects.get_or_create(name=kind, defaults=gpu_type_columns(kind))
        add_node(name, gpu_type, gpus=gpus, cpus=8 * gpus, memory_mib=65_536 * gpus, emulated=True)
    setting = PolicySetting(round_length_s=ROUND_S, min_run_s=MIN_RUN_S, note="short rounds for the demo")
    choose_policy(setting, actor=None)


@transaction.atomic
def create_teams(demo_username: str) -> User:
    """Create two teams of different weight, with the demo user in both."""
    user = get_user_model().objects.get(username=demo_username)
    for name, weight in (("vision", 2.0), ("language", 1.0)):
        team, _ = Team.objects.get_or_create(name=name, defaults={"weight": weight, "max_job_weight": 4.0})
        team.members.add(user)
    return user


def sample_jobs() -> Iterator[dict[str, Any]]:
    """Specs of the sample jobs; emulated GPUs run at the rates declared in them."""
    models = {
        "resnet50": ("vision", {"t4": 8.0, "v100": 22.0, "a100": 45.0}, 3000),
        "yolo": ("vision", {"t4": 14.0, "v100": 25.0, "a100": 32.0}, 2200),
        "bert": ("language", {"t4": 4.0, "v100": 15.0, "a100": 44.0}, 2600),
        "lstm": ("language", {"t4": 18.0, "v100": 24.0, "a100": 27.0}, 2000),
    }
    gangs = [1, 2, 4, 1, 1, 2, 2, 1, 4, 1, 2, 1, 1, 4]
    for position, gpus in enumerate(gangs):
        name = list(models)[position % len(models)]
        team, rates, steps = models[name]
        yield sample_job(f"{name}-{position + 1}", team, rates=rates, gpus=gpus, steps=steps * (1 + position % 3))


def sample_job(name: str, team: str, *, rates: dict[str, float], gpus: int, steps: int) -> dict[str, Any]:
    """Spec of one sample training, whose rate grows slightly less than linearly with its gang."""
    return {
        "name": name,
        "team": team,
        "command": ["python", "-m", "motley_client.sample", "--steps", str(steps)],
        "gpus": gpus,
        "rates": {kind: round(rate * gpus**0.9, 2) for kind, rate in rates.items()},
        "total_steps": steps,
        "checkpoint": {"grace_seconds": 20, "restore_seconds": 2},
        "tags": {"demo": "yes"},
    }
