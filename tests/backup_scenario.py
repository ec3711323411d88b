"""A backup, work after it, and the way back: the same on every database."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.deployment import Deployment, wait_for

STEPS = 100_000
"""More than are done while a busy machine takes the backup and goes back to it."""
ARCHIVE = """
from datetime import timedelta
from django.core.management import call_command
from jobs_app.models import Job
for job in Job.objects.filter(name="old"):
    Job.objects.filter(pk=job.pk).update(finished_at=job.finished_at - timedelta(days=400))
call_command("prune")
"""


def go_back_to_a_backup(
    service: Deployment, folder: Path, *, stop: Callable[[], None], start: Callable[[], None]
) -> None:
    """After the backup a job is preempted and resumed and another is submitted; once restored, no step is done twice.

    A job of the archive is found there again.
    """
    old = service.submit("true", name="old")
    service.wait_for_state(old, "succeeded")
    known = service.sample(name="known", steps=STEPS, rate=40)
    archive(service, old)
    wait_for("it works", lambda: service.client.job(known)["progress"]["step"])
    file = folder / "motley.backup"
    done = service.manage("backup", str(file))
    assert done.returncode == 0, done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    refused = service.manage("restore", "--replace", str(file))
    assert "Nothing was restored. A scheduler runs" in refused.stderr

    service.client.requeue(known)
    wait_for("its second attempt runs", lambda: attempts(service, known) == 2 and state(service, known) == "running")
    unknown = service.submit("sleep 600", name="unknown")
    service.wait_for_state(unknown, "running")
    stop()
    shutil.rmtree(archive_root(service))
    assert "lost: say --replace" in service.manage("restore", str(file)).stderr

    done = service.manage("restore", "--replace", str(file))
    assert done.returncode == 0, done.stderr
    assert not service.job_processes()
    start()
    assert [job["name"] for job in service.client.jobs()] == ["known"]
    assert service.client.job(old)["archived"]
    before = len(service.trace(known))
    wait_for("it goes on", lambda: len(service.trace(known)) > before)
    service.client.cancel(known)
    service.wait_for_state(known, "cancelled")
    steps = service.trace(known)
    assert steps == list(range(1, len(steps) + 1))
    new = service.submit("echo new")
    service.wait_for_state(new, "succeeded")
    assert service.client.logs(new).data == b"new\n"  # and not those of an attempt that had its number


def archive(service: Deployment, job: str) -> None:
    """Let the job have ended a year ago, and leave the database."""
    done = service.manage("shell", "-c", ARCHIVE)
    assert done.returncode == 0, done.stderr
    assert service.client.job(job)["archived"]


def archive_root(service: Deployment) -> Path:
    return Path(service.environment.get("MOTLEY_ARCHIVE_ROOT", f"{service.environment['MOTLEY_VAR']}/archive"))


def attempts(service: Deployment, job: str) -> int:
    return len(service.client.job(job)["attempts"])


def state(service: Deployment, job: str) -> str:
    return str(service.client.job(job)["state"])
