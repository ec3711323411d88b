"""The first hour: an administrator, a demo user, an emulated cluster and a stream of sample jobs."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db import transaction

from cluster_app.models import GpuType
from cluster_app.services import add_node
from engines.nvml import this_machine
from jobs_app.models import ApiToken, Team
from jobs_app.services import issue_token
from jobs_app.submission import submit_job
from scheduler_app.models import PolicySetting
from scheduler_app.services import choose_policy

SPECIFICATIONS: dict[str, dict[str, float]] = {
    "t4": {"memory_mib": 16_384, "tflops": 65, "bandwidth_gbs": 320, "power_w": 70, "price_per_hour": 0.35},
    "v100": {"memory_mib": 16_384, "tflops": 125, "bandwidth_gbs": 900, "power_w": 300, "price_per_hour": 1.20},
    "a100": {"memory_mib": 40_960, "tflops": 312, "bandwidth_gbs": 1555, "power_w": 400, "price_per_hour": 2.80},
    "h100": {"memory_mib": 81_920, "tflops": 989, "bandwidth_gbs": 3350, "power_w": 700, "price_per_hour": 4.50},
    "h200": {"memory_mib": 144_384, "tflops": 989, "bandwidth_gbs": 4800, "power_w": 700, "price_per_hour": 5.20},
}
"""From the makers' data sheets (dense half precision); prices are examples, to be edited in the admin."""
UNKNOWN_GPU = SPECIFICATIONS["v100"]

NODES = [("emu-a100-1", "a100", 4), ("emu-v100-1", "v100", 4), ("emu-v100-2", "v100", 4)]
NODES += [("emu-t4-1", "t4", 4), ("emu-t4-2", "t4", 4)]

ROUND_S, MIN_RUN_S = 5, 20


@dataclass(frozen=True)
class Login:
    username: str
    password: str


def create_login(username: str, *, staff: bool) -> Login | None:
    """A new account with a random password; None if there is one already."""
    users = get_user_model().objects
    if users.filter(username=username).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.create_user(username=username, password=password, is_staff=staff, is_superuser=staff)
    return Login(username, password)


def renew_password(username: str) -> Login:
    """A fresh password for an account whose first one is kept nowhere."""
    user = get_user_model().objects.get(username=username)
    password = secrets.token_urlsafe(12)
    user.set_password(password)
    user.save()
    return Login(username, password)


def create_token(username: str) -> str:
    user = get_user_model().objects.get(username=username)
    return issue_token(user, name="demo.env", scope=ApiToken.Scope.SUBMIT)


def register_this_machine() -> str | None:
    """Add this machine with the GPUs that NVML finds; None where it finds none."""
    found = this_machine()
    if found is None or not found.gpus:
        return None
    specification = dict(SPECIFICATIONS.get(found.gpu_type, UNKNOWN_GPU))
    told = [gpu.memory_mib for gpu in found.gpus if gpu.memory_mib]  # a broken GPU does not tell
    specification["memory_mib"] = min(told, default=specification["memory_mib"])
    kind, _ = GpuType.objects.get_or_create(name=found.gpu_type, defaults=specification)
    uuids = [gpu.uuid for gpu in found.gpus]
    add_node(found.name, kind, gpus=len(uuids), cpus=found.cpus, memory_mib=found.memory_mib, uuids=uuids)
    return f"{found.name}: {len(uuids)} x {found.gpu_type}"


@transaction.atomic
def declare_emulated_cluster() -> None:
    """Five make-believe nodes on this machine, decided on every few seconds."""
    for name, kind, gpus in NODES:
        gpu_type, _ = GpuType.objects.get_or_create(name=kind, defaults=SPECIFICATIONS[kind])
        add_node(name, gpu_type, gpus=gpus, cpus=8 * gpus, memory_mib=65_536 * gpus, emulated=True)
    setting = PolicySetting(round_length_s=ROUND_S, min_run_s=MIN_RUN_S, note="short rounds, to watch")
    choose_policy(setting, actor=None)


@transaction.atomic
def create_teams(demo_username: str) -> User:
    """Two teams of different weight, the demo user in both."""
    user = get_user_model().objects.get(username=demo_username)
    for name, weight in (("vision", 2.0), ("language", 1.0)):
        team, _ = Team.objects.get_or_create(name=name, defaults={"weight": weight, "max_job_weight": 4.0})
        team.members.add(user)
    return user


def submit_samples(owner: User) -> None:
    """A dozen small trainings: long and short, wide and narrow, fast on one type or on all."""
    for spec in sample_jobs():
        submit_job(spec, owner=owner)


def sample_jobs() -> Iterator[dict[str, Any]]:
    """Their declared rates are what the emulated GPUs will keep to."""
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
    """One training of the sample program, scaling with the gang a little less than linearly."""
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
