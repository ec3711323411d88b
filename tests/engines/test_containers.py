"""Jobs in containers by Podman, on an image that is made here: nothing is fetched from anywhere."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engines.local.engine import LocalEngine
from engines.protocol import Image, Phase, Setup, StopReason, Stream
from engines.sessions.frames import Kind
from engines.supervision.container import remove_state
from engines.supervision.container_runtime import ContainerRuntime, find_runtime
from engines.supervision.isolation import Isolation
from engines.supervision.processes import kill
from tests.engines.engine_lab import Lab, running, until
from tests.engines.test_engine_sessions import TERMINAL, run, session

BUSYBOX = Path("/bin/busybox")
PROGRAMS = ("sh", "cat", "env", "id", "ls", "ps", "pwd", "sleep", "touch", "head", "readlink", "mkdir", "grep")
RUNTIME = find_runtime("podman", Isolation.NAMESPACE) if BUSYBOX.exists() else ContainerRuntime(why_not="no busybox")
TINY = Image("localhost/tiny:1", fetch=False)

pytestmark = pytest.mark.skipif(not RUNTIME.name, reason=f"no Podman: {RUNTIME.why_not}")


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with busybox, as `podman import` takes it."""
    tree = tmp_path_factory.mktemp("image")
    for name in ("bin", "tmp", "proc", "sys", "dev", "etc", "only-here"):
        (tree / name).mkdir()
    for folder in (tree, *tree.iterdir()):
        folder.chmod(0o755)  # whatever the umask
    (tree / "tmp").chmod(0o1777)
    shutil.copy(BUSYBOX, tree / "bin" / "busybox")
    for name in PROGRAMS:
        (tree / "bin" / name).symlink_to("busybox")
    archive = tree.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, arcname=".")
    return archive


def below(folder: Path) -> list[str]:
    """Command lines of processes that name this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]


def podman(store: Path, *words: str) -> None:
    own = ["--root", store / "graph", "--runroot", store / "run", "--tmpdir", store / "tmp"]
    subprocess.run(["podman", *own, "--storage-driver", RUNTIME.driver, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def images(rootfs: Path) -> Iterator[Path]:
    """A store with the image `localhost/tiny:1`, in the place of the machine's; Podman's paths must be short."""
    store = Path(tempfile.mkdtemp(prefix="motley-images-"))
    podman(store, "import", str(rootfs), TINY.name)
    podman(store, "save", "--quiet", "--format=oci-archive", f"--output={store / 'tiny.tar'}", TINY.name)
    yield store
    for mount in [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]:
        if mount.startswith(str(store)):
            subprocess.run(["umount", mount], check=True)
    shutil.rmtree(store)


class ContainerLab(Lab):
    def __init__(self, root: Path, store: Path) -> None:
        self.store = store
        super().__init__(root, job_user="nobody")

    def another_engine(self) -> LocalEngine:
        engine = LocalEngine(self.root, declared=["n1", "n2"], job_user=self.job_user)
        engine.__dict__["_runtime"] = RUNTIME._replace(store=str(self.store / "graph"))
        return engine

    def launch(self, command: Any, **changes: Any) -> int:
        return super().launch(command, **{"image": TINY, **changes})


@pytest.fixture
def lab(place: Path, images: Path) -> Iterator[ContainerLab]:
    lab = ContainerLab(place, images)
    yield lab
    lab.stop_all()


def states(lab: Lab) -> list[Path]:
    return list((lab.root / "attempts").glob("*/container.*"))


def test_the_command_runs_in_the_image_as_the_jobs_account(lab: ContainerLab) -> None:
    attempt = lab.run("ls -d /only-here; id -u; echo to stderr >&2; grep NoNewPrivs /proc/self/status; exit 3")
    assert lab.end_of(attempt).exit_code == 3, lab.output(attempt, Stream.STDERR)
    assert lab.output(attempt) == b"/only-here\n65534\nNoNewPrivs:\t1\n"
    assert states(lab) == []


def test_a_command_given_as_a_list_reaches_no_shell(lab: ContainerLab) -> None:
    attempt = lab.run(["ls", "-d", "/only-here", "$(touch /tmp/no)"])
    assert b"/only-here" in lab.output(attempt)
    assert lab.end_of(attempt).exit_code == 1


def test_it_has_the_jobs_variables_and_folders_and_none_of_the_service(lab: ContainerLab) -> None:
    attempt = lab.run("touch here; touch $MOTLEY_CHECKPOINT_DIR/saved; env", env={"A": " b = c # d ", "EMPTY": ""})
    found = lab.env_of(attempt)
    assert (found["A"], found["EMPTY"], found["RANK_HERE"], found["MASTER_ADDR"]) == (
        " b = c # d ",
        "",
        "0",
        "127.0.0.1",
    )
    assert "CONTAINERS_CONF" not in found
    job = Path(found["MOTLEY_CHECKPOINT_DIR"]).parent
    assert ((job / "work" / "here").owner(), (job / "checkpoints" / "saved").owner()) == ("nobody", "nobody")


def test_secrets_reach_it_and_stand_on_no_command_line(lab: ContainerLab) -> None:
    attempt = lab.launch(
        "echo up; echo $TOKEN >$MOTLEY_CHECKPOINT_DIR/token; sleep 3600", secrets={"TOKEN": "s3cret-of-mine"}
    )
    lab.wait_for_output(attempt, b"up")
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(b"s3cret-of-mine" in line for line in lines)


def test_progress_is_reported_from_it(lab: ContainerLab) -> None:
    attempt = lab.run("""echo '{"step": 5}' >>$MOTLEY_PROGRESS; sleep 1; echo '{"step": 9}' >>$MOTLEY_PROGRESS""")
    progress = lab.end_of(attempt).progress
    assert progress is not None
    assert progress.step == 9


def test_a_stop_reaches_the_job_with_its_reason_and_leaves_nothing(lab: ContainerLab) -> None:
    script = 'trap "cat $MOTLEY_STOP_REASON_FILE; exit 5" TERM; echo up; while :; do sleep 0.1; done'
    attempt = lab.launch(script)
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.DRAIN, grace=timedelta(seconds=20))
    assert lab.end_of(attempt).exit_code == 5
    assert lab.output(attempt) == b"up\ndrain"
    assert (lab.processes(attempt), below(lab.store), states(lab)) == ([], [], [])


def test_a_job_that_ignores_the_stop_is_killed(lab: ContainerLab) -> None:
    attempt = lab.launch('trap "" TERM; echo up; while :; do sleep 0.1; done')
    lab.wait_for_output(attempt, b"up")
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(seconds=1))
    assert (lab.end_of(attempt).exit_code, lab.processes(attempt)) == (137, [])


@pytest.mark.parametrize("victims", ["supervisor", "supervisor and init"])
def test_nothing_is_left_when_its_supervisor_is_killed(lab: ContainerLab, victims: str) -> None:
    attempt = lab.launch("echo up; sleep 3600.55 & sleep 3600.55")
    lab.wait_for_output(attempt, b"up")
    init = running("engines.supervision.init_process") if "init" in victims else []
    kill([lab.supervisor(attempt), *(set(init) & set(lab.processes(attempt)))])  # of its own: others run beside it
    assert lab.loss_of(attempt).phase is Phase.LOST
    assert (running("sleep", "3600.55"), lab.processes(attempt), states(lab)) == ([], [], [])
    assert not any(str(lab.root) in line for line in Path("/proc/self/mountinfo").read_text().splitlines())


def test_a_session_is_in_the_container_as_the_jobs_account(lab: ContainerLab) -> None:
    attempt = lab.launch("touch $HOME/made; echo up; exec sleep 3600", env={"A": "b"})
    lab.wait_for_output(attempt, b"up")
    script = "ls -d /only-here made; echo $A; id -u; grep NoNewPrivs /proc/self/status; exit 3"
    out, _, code = run(lab, attempt, "sh", "-c", script)
    assert (out, code) == (b"/only-here\nmade\nb\n65534\nNoNewPrivs:\t1\n", 3)


def test_a_session_has_a_terminal_in_the_container(lab: ContainerLab) -> None:
    attempt = lab.launch("echo up; exec sleep 3600")
    lab.wait_for_output(attempt, b"up")
    with session(lab, attempt, {"argv": [], "terminal": TERMINAL}) as one:
        one.frames.send(Kind.DATA, b"ls -d /only-here; exit 4\n")
        out, _, code = one.all()
    assert (b"\n/only-here" in out, code) == (True, 4)


def test_a_session_ends_with_its_container(lab: ContainerLab) -> None:
    attempt = lab.launch("echo up; exec sleep 3600")
    lab.wait_for_output(attempt, b"up")
    with session(lab, attempt, {"argv": ["sleep", "3600.44"], "terminal": None}) as one:
        until(lambda: running("sleep", "3600.44"))
        lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(seconds=5))
        while one.frames.receive() is not None:
            pass
    lab.end_of(attempt)
    assert running("sleep", "3600.44") == []


def test_two_ranks_have_a_container_each(lab: ContainerLab) -> None:
    attempt = lab.run("echo $RANK_HERE", ranks=2)
    assert [lab.output(attempt, rank=rank) for rank in range(2)] == [b"0\n", b"1\n"]


def test_an_archive_is_fetched_where_the_site_allows_it(lab: ContainerLab, images: Path) -> None:
    archive = Image(f"oci-archive:{images / 'tiny.tar'}", fetch=True)
    attempt = lab.run("ls -d /only-here", image=archive)
    assert (lab.end_of(attempt).exit_code, lab.output(attempt)) == (0, b"/only-here\n")


def test_an_image_that_is_not_there_is_said_to_be_missing(lab: ContainerLab) -> None:
    attempt = lab.run("true", image=Image("localhost/other:1", fetch=False))
    report = lab.end_of(attempt)
    assert (report.exit_code, "check the name of the image" in report.message) == (125, True)


def test_a_setup_runs_in_the_image_too(lab: ContainerLab) -> None:
    setup = Setup("mkdir -p $MOTLEY_ENV_DIR/bin; ls -d /only-here >$MOTLEY_ENV_DIR/made", "key1")
    attempt = lab.run("cat $MOTLEY_ENV_DIR/made", setup=setup)
    assert (lab.end_of(attempt).exit_code, lab.output(attempt)) == (0, b"/only-here\n")


def test_storage_is_found_under_its_path(lab: ContainerLab, place: Path) -> None:
    data = place / "data"
    data.mkdir()
    (data / "set").write_text("42\n")
    data.chmod(0o755)  # whatever the umask
    (data / "set").chmod(0o644)
    attempt = lab.run("cat mounts/data/set", mounts={"data": str(data)})
    assert (lab.end_of(attempt).message, lab.output(attempt)) == ("", b"42\n")


def test_a_folder_that_the_account_may_not_enter_is_not_mounted(lab: ContainerLab, place: Path) -> None:
    inner = place / "private" / "inner"
    inner.mkdir(parents=True)
    (place / "private").chmod(0o700)
    attempt = lab.run("cat mounts/data/set", mounts={"data": str(inner)})
    assert lab.end_of(attempt).missing_storage == {"n1": "data"}
    attempt = lab.run("true", workdir=inner)
    assert lab.end_of(attempt).exit_code == 126


def test_the_name_of_a_folder_gives_podman_no_options(lab: ContainerLab, place: Path) -> None:
    """With `:U` Podman, which is root, would give the folder to the job's account."""
    of_root = place / "of-root"
    of_root.mkdir()
    of_root.chmod(0o755)  # whatever the umask
    link = place / "link:U"
    link.symlink_to(of_root)
    attempt = lab.run("true", workdir=link)
    assert of_root.stat().st_uid == 0
    end = lab.end_of(attempt)
    assert end.exit_code != 0
    assert f"a folder's path has no colon: {link}" in end.message


def test_a_variable_of_several_lines_is_refused_with_its_name(lab: ContainerLab) -> None:
    attempt = lab.run("true", env={"KEY": "a\nb"})
    assert "KEY has several" in lab.end_of(attempt).message


def test_a_command_that_the_image_lacks_fails_with_the_reason_in_its_log(lab: ContainerLab) -> None:
    attempt = lab.run(["no-such-program"])
    assert lab.end_of(attempt).exit_code == 1
    assert b"No such file" in lab.output(attempt, Stream.STDERR)


def test_state_with_a_mount_in_it_is_not_removed(tmp_path: Path) -> None:
    state = tmp_path / "container.0"
    (state / "named").mkdir(parents=True)
    subprocess.run(["mount", "--bind", tmp_path, state / "named"], check=True)
    remove_state(str(state))
    subprocess.run(["umount", state / "named"], check=True)
    assert state.exists()
