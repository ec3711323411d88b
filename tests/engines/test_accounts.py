"""Accounts of jobs: a team's own, which can touch nothing of another team's."""

import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from engines import accounts
from engines.accounts import ACCOUNT_NAME, account_name, ensure_account
from engines.local.engine import LocalEngine
from engines.protocol import EngineError, Phase, Stream
from engines.slurm.engine import SlurmEngine
from operations.private_slurm import PrivateCluster
from tests.engines.engine_lab import Lab, SlurmLab, until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")
PATTERN = "motley-{team}"


@pytest.mark.parametrize(("team", "name"), [("vision", "motley-vision"), ("nlp-2", "motley-nlp-2")])
def test_a_plain_name_of_a_team_is_part_of_its_accounts_name(team: str, name: str) -> None:
    assert account_name(PATTERN, team) == name


def test_no_two_teams_share_an_account_nor_one_with_what_no_team_runs() -> None:
    odd = ["job", "Vision", "VISION", "vision_1", "vision.1", "vision-1", "Übung", "x" * 60, "x" * 59 + "y", "vision"]
    names = [account_name(PATTERN, team) for team in odd]
    names += [account_name(PATTERN), account_name(PATTERN, names[1].removeprefix("motley-"))]
    assert len(set(names)) == len(names)
    assert all(ACCOUNT_NAME.fullmatch(name) for name in names)


def test_one_account_for_all_is_a_pattern_without_the_team() -> None:
    assert {account_name("motley-job", team) for team in ("vision", "nlp")} == {"motley-job"}


@pytest.fixture
def new_account() -> Iterator[Callable[[], str]]:
    names: list[str] = []

    def make(*, create: bool = True) -> str:
        names.append(f"motley-{uuid4().hex[:8]}")
        if create:
            ensure_account(names[-1])
        return names[-1]

    yield make
    for name in names:
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)
    accounts._account.cache_clear()


@pytest.fixture
def lab(place: Path) -> Iterator[Lab]:
    lab = Lab(place, job_user="nobody")
    yield lab
    lab.stop_all()


@as_root
def test_a_job_can_neither_read_nor_forge_what_another_team_has(lab: Lab, new_account) -> None:
    ours, theirs = new_account(), new_account()
    first = lab.launch("id -un; echo x > $MOTLEY_CHECKPOINT_DIR/x; echo up; sleep 3600", account=ours)
    lab.wait_for_output(first, b"up")
    assert lab.output(first).split()[0] == ours.encode()
    folder = lab.folder(first)
    env = folder.read_launch()["ranks"][0]["env"]  # type: ignore[index]
    spy = f"cat {env['MOTLEY_CHECKPOINT_DIR']}/x; echo '{{\"step\": 9}}' >> {env['MOTLEY_PROGRESS']}; ls {env['HOME']}"
    second = lab.run(f"{spy}; true", account=theirs)
    assert lab.output(second, Stream.STDERR).count(b"ermission denied") == 3
    assert lab.report(first).progress is None


@as_root
def test_a_job_has_the_groups_of_its_account(lab: Lab, new_account) -> None:
    name = new_account()
    subprocess.run(["usermod", "--append", "--groups", "games", name], check=True)
    assert b"games" in lab.output(lab.run("id -Gn", account=name)).split()


@as_root
def test_a_job_keeps_its_account_when_the_settings_change(lab: Lab, new_account) -> None:
    ours, other = new_account(), new_account()
    first = lab.order("echo x > $MOTLEY_CHECKPOINT_DIR/x", account=ours)
    lab.engine.launch(first)
    assert lab.end_of(first.attempt).exit_code == 0
    second = lab.run("cat $MOTLEY_CHECKPOINT_DIR/x; id -un", job=first.job, account=other)
    assert lab.output(second).split() == [b"x", ours.encode()]


@as_root
def test_an_account_that_is_missing_is_created_if_the_service_may(lab: Lab, place: Path, new_account) -> None:
    name = new_account(create=False)
    with pytest.raises(EngineError, match=f"no user {name}.*create it"):
        lab.launch("true", account=name)
    lab.engine = LocalEngine(place, declared=["n1", "n2"], job_user="nobody", create_accounts=True)
    assert lab.output(lab.run("id -un", account=name)).split() == [name.encode()]
    assert pwd.getpwnam(name).pw_shell == "/usr/sbin/nologin"


@as_root
def test_no_job_runs_as_root(lab: Lab) -> None:
    with pytest.raises(EngineError, match="cannot run as root"):
        lab.launch("true", account="root")


@pytest.fixture
def slurm_lab(place: Path, slurm_cluster: PrivateCluster) -> Iterator[SlurmLab]:
    lab = SlurmLab(place, slurm_cluster)
    lab.engine = SlurmEngine(lab.options, job_user="nobody")
    yield lab
    lab.stop_all()


@as_root
@pytest.mark.xdist_group("slurm")
def test_a_node_that_does_not_know_the_account_runs_nothing_as_its_number(slurm_lab: SlurmLab, new_account) -> None:
    """Accounts may differ between the nodes of a cluster; here it is removed while the attempt waits."""
    lab, name = slurm_lab, new_account()
    assert lab.output(lab.run("id -un", account=name)).split() == [name.encode()]
    alone = ("--exclusive", "-w", "n1", "--wrap", "sleep 3600")
    blocking = lab.cluster.run("sbatch", "--parsable", "-o", "/dev/null", *alone).strip()
    until(lambda: lab.cluster.run("squeue", "-h", "-j", blocking, "-o", "%T").strip() == "RUNNING")
    waiting = lab.launch("touch $MOTLEY_CHECKPOINT_DIR/ran", account=name)
    subprocess.run(["userdel", name], check=True)
    lab.cluster.run("scancel", blocking)
    report = lab.loss_of(waiting)
    assert (report.phase, report.reason) == (Phase.LOST, "site_node_failed")
    assert f"The node n1 does not know the account {name}" in report.message
