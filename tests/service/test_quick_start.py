"""What a newcomer does with `make run` and the README."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployment import ROOT, wait_for
from tests.private_servers import free_port
from tests.service.running_service import Service


def test_sample_jobs_run_on_several_gpu_types(demo: Service) -> None:
    def types() -> set[str]:
        """Of all attempts: after other tests of the same service the sample jobs may have ended."""
        jobs = [demo.client.job(job["id"]) for job in demo.client.jobs()]
        return {attempt["gpu_type"] for job in jobs for attempt in job["attempts"]}

    wait_for("jobs have run on two GPU types", lambda: len(types()) >= 2)


def test_faster_gpus_make_a_job_faster(demo: Service) -> None:
    """Measured from the progress of the processes, not declared: emulated GPU types differ visibly."""
    command = ["python", "-m", "motley_client.sample", "--steps", "100000"]
    rates = {"a100": 40.0, "t4": 10.0}

    def measured(kind: str) -> float:
        job = demo.submit(command, name=f"on-{kind}", gpu_types=[kind], rates=rates, preemptible=False)
        rate = wait_for(f"a rate on {kind}", lambda: demo.client.job(job)["progress"]["rate"])
        demo.client.cancel(job)
        return float(rate)

    assert measured("a100") > 2 * measured("t4")


def test_the_cluster_says_that_it_is_emulated(demo: Service) -> None:
    assert all(node["emulated"] for node in demo.client.nodes())


def test_the_examples_of_the_readme_work_as_they_stand(demo: Service, tmp_path: Path) -> None:
    (tmp_path / "var").symlink_to(demo.var)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    readme = (ROOT / "README.md").read_text()
    script = "".join(block for block in blocks_of(readme, "sh") if "make run" not in block)
    (python,) = blocks_of(readme, "python")
    out = shell(f"{script}\npython - <<'END'\n{python}\nEND\n", tmp_path)
    assert "step 500/500" in out
    assert '"name":"from-curl"' in out
    assert "succeeded on " in out


def test_the_examples_of_the_client_work_as_they_stand(service: Service, tmp_path: Path) -> None:
    service.declare(a100=16, v100=4)
    make_staff = "from jobs_app.models import ApiToken\nfrom jobs_app.tokens import issue_token\n"
    make_staff += "from django.contrib.auth.models import User\n"
    make_staff += "User.objects.create_user('ben')\n"
    make_staff += "root = User.objects.get(username='admin')\n"
    make_staff += "answer = issue_token(root, name='test', scope=ApiToken.Scope.ADMIN)"
    readme = (ROOT / "client" / "README.md").read_text()
    *user, staff = blocks_of(readme, "sh")
    (python,) = blocks_of(readme, "python")
    environment = {"MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token}
    out = shell("".join(user) + f"\npython - <<'END'\n{python}\nEND\n", tmp_path, **environment)
    for words in (
        "Submitted 2 jobs.",
        "the first of the array",
        "once: succeeded",
        "succeeded 42",
        "[0, 0] ['lr-0.1']",
    ):
        assert words in out
    environment["MOTLEY_TOKEN"] = service.python(make_staff)
    out = shell(staff.replace("node-5", "node-a100"), tmp_path, **environment)
    assert re.search("node-a100: (draining|drained), empty", out)


def blocks_of(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def shell(script: str, folder: Path, **environment: str) -> str:
    """What a script of examples prints; each of its commands must succeed."""
    done = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_logins_are_printed_and_kept_private(demo: Service) -> None:
    assert "administrator: admin" in demo.log.read_text()
    assert stat.S_IMODE((demo.var / "demo.env").stat().st_mode) == 0o600


def test_a_second_service_with_the_same_data_is_refused_and_told_of_the_first(service: Service) -> None:
    before = (service.var / "demo.env").read_text()
    service.environment["MOTLEY_PORT"] = str(free_port())
    done = service.manage("serve")
    assert done.returncode == 1
    assert f"already, at {service.url}: stop that one, or" in done.stderr
    assert (service.var / "demo.env").read_text() == before


def test_a_full_disk_is_told_in_words(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a file system takes root")
    try:
        command = [sys.executable, str(ROOT / "manage.py"), "serve"]
        environment = {"PATH": os.environ["PATH"], "MOTLEY_VAR": str(tmp_path), "MOTLEY_PORT": str(free_port())}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert (done.returncode, "check that the disk is not full" in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr


def test_every_round_replays_to_the_same_decision(demo: Service) -> None:
    rounds = wait_for("some rounds", lambda: len(found := list(demo.client.rounds())) > 3 and found)
    done = demo.manage("replayround", *(str(record["number"]) for record in rounds))
    assert (done.returncode, done.stdout.count("The same decision.")) == (0, len(rounds)), done.stderr


SECRETS = ["motley.sqlite3", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("secret_key", "demo.env"))]


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user jobs run as the service does")
@pytest.mark.parametrize("secret", SECRETS)
def test_a_job_of_a_root_service_cannot_read_its_secrets(demo: Service, secret: str) -> None:
    path = demo.var / secret
    assert path.exists()
    job = demo.submit(f"id -u; cat {path}", name="thief")
    done = demo.wait_for_state(job, "failed", "succeeded")
    assert done["state"] == "failed"
    assert demo.client.logs(job).data != b"0\n"
    assert b"Permission denied" in demo.client.logs(job, stream="stderr").data


def test_a_jobs_environment_holds_nothing_of_the_service(demo: Service) -> None:
    job = demo.submit("env", name="env")
    demo.wait_for_state(job, "succeeded")
    assert b"MOTLEY_TEST_MARK" not in demo.client.logs(job).data
