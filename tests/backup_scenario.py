"""A backup, work after it, and the way back: the same on every database."""

from collections.abc import Callable
from pathlib import Path

from tests.deployment import Deployment, wait_for

STEPS = 400


def go_back_to_a_backup(
    service: Deployment, folder: Path, *, stop: Callable[[], None], start: Callable[[], None]
) -> None:
    """After the backup a job is preempted and resumed and another is submitted; once restored, it is done once."""
    known = service.sample(name="known", steps=STEPS, rate=40)
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
    wait_for("no lease is held", lambda: "lost: say --replace" in service.manage("restore", str(file)).stderr)

    done = service.manage("restore", "--replace", str(file))
    assert done.returncode == 0, done.stderr
    assert not service.job_processes()
    start()
    assert [job["name"] for job in service.client.jobs()] == ["known"]
    service.wait_for_state(known, "succeeded")
    assert service.trace(known) == list(range(1, STEPS + 1))
    new = service.submit("echo new")
    service.wait_for_state(new, "succeeded")
    assert service.client.logs(new).data == b"new\n"  # and not those of an attempt that had its number


def attempts(service: Deployment, job: str) -> int:
    return len(service.client.job(job)["attempts"])


def state(service: Deployment, job: str) -> str:
    return str(service.client.job(job)["state"])
