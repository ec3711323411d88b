"""The demo: first accounts and teams, an emulated cluster and sample jobs."""

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db import transaction

from cluster_app.models import Engine, GpuType
from cluster_app.services import add_node
from connections_app.register_machine import gpu_type_columns
from jobs_app.models import ApiToken, Job, Team
from jobs_app.submission.submit import submit_job
from jobs_app.tokens import issue_token
from operations.private_slurm import EmulatedNode, PrivateCluster
from operations.sample_jobs import FIRST, sample
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy

NODES = [("emu-a100-1", "a100", 4), ("emu-v100-1", "v100", 4), ("emu-v100-2", "v100", 4)]
NODES += [("emu-t4-1", "t4", 4), ("emu-t4-2", "t4", 4)]

SLURM_ENGINE, SLURM_PORT = "slurm", 36_817
ROUND_S, MIN_RUN_S = 5, 20
UNFINISHED = 20
"""Sample jobs that may be unfinished at most when another one is submitted."""
LOOKING_S = 60
"""Seconds after the last page was loaded during which somebody is thought to look; open pages reload themselves."""


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
    _choose_short_rounds()


def _choose_short_rounds() -> None:
    """A round every few seconds."""
    setting = PolicySetting(round_length_s=ROUND_S, min_run_s=MIN_RUN_S, note="short rounds for the demo")
    choose_policy(setting, actor=None)


def private_slurm_cluster(base: Path) -> PrivateCluster:
    """The nodes of the demo as those of a private Slurm cluster."""
    nodes = [EmulatedNode(name, kind, gpus, cpus=8 * gpus) for name, kind, gpus in NODES]
    return PrivateCluster(base, nodes, port=int(os.environ.get("MOTLEY_SLURM_PORT") or SLURM_PORT))


@transaction.atomic
def declare_slurm_cluster(cluster: PrivateCluster, *, root: Path, search_path: str) -> None:
    """Register the engine `slurm` over this cluster, and its nodes as emulated ones of that engine."""
    options = {"root": str(root), "slurm_conf": str(cluster.conf), "search_path": search_path, "late_disk_s": 5}
    options |= {"drain": True}
    _, created = Engine.objects.update_or_create(
        name=SLURM_ENGINE, defaults={"kind": Engine.Kind.SLURM, "options": options}
    )
    for node in cluster.nodes:
        gpu_type, _ = GpuType.objects.get_or_create(name=node.gpu_type, defaults=gpu_type_columns(node.gpu_type))
        add_node(
            node.name,
            gpu_type,
            gpus=node.gpus,
            cpus=node.cpus,
            memory_mib=node.memory_mib,
            emulated=True,
            engine=SLURM_ENGINE,
        )
    if created:
        _choose_short_rounds()


@transaction.atomic
def create_teams(demo_username: str) -> User:
    """Create two teams of different weight, with the demo user in both."""
    user = get_user_model().objects.get(username=demo_username)
    for name, weight in (("vision", 2.0), ("language", 1.0)):
        team, _ = Team.objects.get_or_create(name=name, defaults={"weight": weight, "max_job_weight": 4.0})
        team.members.add(user)
    return user


def somebody_looks() -> bool:
    """Whether a page was loaded within the last minute, by anyone logged in (`config.middleware.note_page_views`)."""
    try:
        return time.time() - settings.MOTLEY_LAST_PAGE_VIEW.stat().st_mtime < LOOKING_S
    except FileNotFoundError:
        return False


def submit_another(owner: User) -> bool:
    """Submit the next sample job, unless the demo has enough unfinished ones; returns whether it did."""
    samples = Job.objects.filter(owner=owner, tags__demo="yes")
    if samples.unfinished().count() >= UNFINISHED:
        return False
    submit_job(sample(max(samples.count(), FIRST)), owner=owner)
    return True
