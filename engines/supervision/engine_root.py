"""Root folder of an engine: the folders of attempts and jobs, the input of supervisors, and the logs."""

import os
import pwd
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from uuid import UUID

from engines.accounts import Account, Accounts
from engines.attempt_files import (
    AttemptFolder,
    CodeFile,
    LaunchFile,
    RankCommand,
    SetupFile,
    read_json,
    reserve_space,
    write_json,
)
from engines.job_files import list_folder, open_file
from engines.progress import progress_from_json
from engines.protocol import (
    CheckpointTimes,
    EngineError,
    JobFile,
    Launch,
    LogChunk,
    OpenedFile,
    Progress,
    Setup,
    Stream,
)
from engines.supervision.cgroup_subtree import CgroupSubtree
from engines.supervision.container_runtime import ContainerRuntime
from engines.supervision.disk import file_errors_explained
from engines.supervision.processes import MARK
from engines.supervision.rank import PACKAGE_PARENT, PYTHON

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OF_BATCH_SCRIPT = "SLURM_JOB_ID"
"""Variable of the jobs of batch scripts, which also look for the folder where they start."""
THROUGH = 0o711
"""Mode of a folder that others may traverse, but not list."""
OWN = 0o700
NUMBER = re.compile(r"-?[0-9]+")
"""Name of an attempt's folder: tests of engines have negative numbers."""
NO_CGROUPS = CgroupSubtree(None)
NO_CONTAINERS = ContainerRuntime(why_not="its engine starts none")


class EngineRoot:
    """The folder that holds the whole state of an engine, so that any instance of the service can continue.

    Jobs run as the account that their launch names, or else as `job_user` or the service's own (see
    `engines.accounts`), with `search_path` as their PATH.
    """

    def __init__(
        self,
        path: Path,
        *,
        job_user: str | None = None,
        create_accounts: bool = False,
        search_path: str = SYSTEM_PATH,
    ) -> None:
        self.path = path.resolve()
        self.accounts = Accounts(self.path, job_user, create_accounts)
        self._search_path = search_path

    def make(self) -> None:
        """Create the folders if they are missing, and see to it that jobs can reach them."""
        try:
            if not self.path.exists():
                self.path.mkdir(parents=True, exist_ok=True)
                self.path.chmod(THROUGH)  # independent of the umask
            for name in ("attempts", "jobs"):
                make_folder(self.path / name, THROUGH)
        except OSError as error:
            raise EngineError(
                f"The folder {self.path} could not be created ({error.strerror}): choose another."
            ) from error
        self.accounts.check()

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(self.path / "attempts" / str(int(number)))

    def attempts(self) -> dict[int, bool]:
        """Attempts that have a folder → whether each has ended or was never launched; tests of the engine, too."""
        numbers = [int(path.name) for path in (self.path / "attempts").iterdir() if NUMBER.fullmatch(path.name)]
        folders = {number: self.attempt(number) for number in numbers}
        return {number: one.exit.exists() or not one.launch.exists() for number, one in folders.items()}

    def folders_of(self, jobs: Mapping[str, Sequence[int]]) -> Iterator[Path]:
        """Folders of jobs and of these attempts of each."""
        for job, attempts in jobs.items():
            yield from (self.attempt(attempt).path for attempt in attempts)
            yield self.path / "jobs" / _uuid(job)

    def list_files(self, job: str, path: str) -> list[JobFile]:
        """Content of a folder of the job's own (see `engines.job_files`)."""
        return list_folder(self.path / "jobs" / _uuid(job), path)

    def open_file(self, job: str, path: str) -> OpenedFile:
        return open_file(self.path / "jobs" / _uuid(job), path)

    @property
    def aside(self) -> Path:
        """Where discarded folders are put."""
        return self.path / "discarded"

    @property
    def sizes(self) -> Path:
        """Where the sizes of jobs' folders are put."""
        return self.path / "sizes"

    def prepare(
        self,
        launch: Launch,
        folder: AttemptFolder,
        *,
        address: str,
        isolation: str = "",
        hidden: frozenset[str],
        cgroups: CgroupSubtree = NO_CGROUPS,
        runtime: ContainerRuntime = NO_CONTAINERS,
    ) -> LaunchFile:
        """Create the job's folders and the input of its supervisor; `hidden` variables are left out.

        `address` is where the ranks find rank 0; `isolation` is empty where each node chooses its own.
        """
        job = self.path / "jobs" / _uuid(launch.job)
        make_folder(job, THROUGH)
        reserve_space(*folder.small_files)
        account = self.accounts.for_launch(launch.account, home=job / "work")
        work, checkpoints = (_make_own(job / name, account) for name in ("work", "checkpoints"))
        _make_own(folder.job_writable, account)
        mark = secrets.token_hex(16)
        added = {
            "MASTER_ADDR": address,
            "PET_MASTER_ADDR": address,
            "MOTLEY_CHECKPOINT_DIR": str(checkpoints),
            "MOTLEY_STOP_REASON_FILE": str(folder.stop_reason),
            "MOTLEY_CHECKPOINT_TIMES_FILE": str(folder.checkpoint_times),
        }
        if launch.secrets:
            write_json(folder.secrets, dict(launch.secrets))
        workdir = launch.workdir or work
        ranks = [
            self._rank_command(
                launch,
                rank,
                account,
                workdir=workdir,
                added=added | _rank_env(folder, rank, mark),
                hidden=hidden,
                cgroups=cgroups,
            )
            for rank in range(len(launch.tasks))
        ]
        if launch.image is not None:
            folders = [work, checkpoints, folder.job_writable]
            ranks = [runtime.contained(rank, n, launch.image, folder, folders) for n, rank in enumerate(ranks)]
        prepared = LaunchFile(
            ranks=ranks,
            user=account.ids if account is not None else None,
            account=account.name if account is not None else "",
            isolation=isolation,
            mark=mark,
            log_limit_bytes=launch.log_limit_bytes,
            code=_code_file(launch.code, folder, job) if launch.code is not None else None,
        )
        if launch.checkpoints is not None:
            prepared["checkpoints"] = _checkpoint_file(launch.checkpoints, folder, checkpoints)
        if launch.fetched_s is not None:
            prepared["fetched_s"] = launch.fetched_s
        return prepared

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        """Replace the file from which the job reads them, unless the attempt is over or not here."""
        folder = self.attempt(attempt)
        if folder.launch.exists() and not folder.exit.exists():
            with file_errors_explained(folder.path):
                write_json(folder.checkpoint_times, asdict(times), mode=0o644)

    def _rank_command(
        self,
        launch: Launch,
        rank: int,
        account: Account | None,
        *,
        workdir: Path,
        added: Mapping[str, str],
        hidden: frozenset[str],
        cgroups: CgroupSubtree,
    ) -> RankCommand:
        if not workdir.is_absolute():
            raise EngineError(f"The working folder {workdir} is not an absolute path: it must start with /.")
        name = account.name if account is not None else pwd.getpwuid(os.geteuid()).pw_name
        least = {"HOME": str(workdir), "LANG": "C.UTF-8", "USER": name, "LOGNAME": name}
        if launch.image is None:  # an image has a PATH of its own
            least["PATH"] = self._search_path
        asked = {**least, **launch.env, **launch.tasks[rank].env, "PWD": str(workdir), **added}
        if OF_BATCH_SCRIPT in launch.env:
            asked["SLURM_SUBMIT_DIR"] = str(workdir)
        setup = self._setup_file(launch, launch.setup, rank) if launch.setup is not None else None
        asked |= (
            _environment_variables(Path(setup["folder"]), asked.get("PATH", SYSTEM_PATH)) if setup is not None else {}
        )
        shell = isinstance(launch.command, str)
        return RankCommand(
            argv=["/bin/sh", "-c", str(launch.command)] if shell else list(launch.command),
            env={variable: value for variable, value in asked.items() if variable not in hidden},
            workdir=str(workdir),
            node=launch.tasks[rank].node,
            mounts=dict(launch.mounts),
            links=launch.workdir is None,
            setup=setup,
            limits=cgroups.limits(f"{added[MARK]}.{rank}", launch, launch.tasks[rank]),
        )

    def _setup_file(self, launch: Launch, setup: Setup, rank: int) -> SetupFile:
        """Make the folder of the job's environment, and say how it is filled."""
        if not setup.key.isalnum():
            raise EngineError(f"The key {setup.key!r} of an environment must have letters and digits only.")
        folder = self.path / "environments" / setup.key
        for path in (folder.parent, folder):
            make_folder(path, THROUGH)
        log = self.attempt(launch.attempt).log(Stream.SETUP, rank)
        return SetupFile(
            command=setup.command,
            folder=str(folder),
            log=str(log),
            log_limit_bytes=launch.log_limit_bytes,
            made_by=f"attempt {launch.attempt}",
            time_file=str(self.attempt(launch.attempt).setup_time(rank)),
        )


def _make_own(path: Path, account: Account | None) -> Path:
    """Create a folder that belongs to the job's account."""
    make_folder(path, OWN)
    if account is not None:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    return path


def _code_file(archive: Path, folder: AttemptFolder, job: Path) -> CodeFile | None:
    """Put the archive beside the other input of the attempt; None if an earlier attempt has unpacked it."""
    done = job / "unpacked"
    if done.exists():
        return None
    try:
        _put_beside(archive, folder.code)
    except FileNotFoundError as error:
        raise EngineError(f"The code archive {archive} is missing: check the folder MOTLEY_CODE_ROOT.") from error
    return CodeFile(archive=str(folder.code), folder=str(job / "work"), done=str(done))


def _checkpoint_file(archive: Path, folder: AttemptFolder, checkpoints: Path) -> CodeFile:
    """Put the archive of checkpoints beside the other input of the attempt."""
    try:
        _put_beside(archive, folder.checkpoints)
    except FileNotFoundError as error:
        raise EngineError(f"The checkpoints {archive} are missing: check the folder MOTLEY_AGENT_ROOT.") from error
    return CodeFile(archive=str(folder.checkpoints), folder=str(checkpoints), done=str(folder.restored))


def _put_beside(archive: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    try:
        os.link(archive, path)
    except FileNotFoundError:
        raise
    except OSError:  # another file system
        shutil.copyfile(archive, path)


def make_folder(path: Path, mode: int) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)  # independent of the umask


def start_in_background(program: str, folder: Path) -> None:
    """Start one of our modules on a folder, detached and at the lowest priority: it may take minutes."""
    subprocess.run(  # noqa: S603 - our own program, with a path
        ["setsid", "--fork", "nice", "--adjustment=19", *PYTHON, program, str(folder)],  # noqa: S607
        cwd=PACKAGE_PARENT,
        env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def read_log(folder: AttemptFolder, stream: Stream, rank: int, offset: int, limit: int, *, over: bool) -> LogChunk:
    """Bytes of a log; `over`: nothing more will be written."""
    try:
        with folder.log(stream, int(rank)).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(min(offset, size))
            data = file.read(limit)
    except FileNotFoundError:
        size, data = 0, b""
    after = offset + len(data)
    return LogChunk(data, offset=offset, next_offset=after, size=size, eof=over and after >= size)


def read_progress(folder: AttemptFolder) -> tuple[Progress | None, int]:
    """Summary of the progress so far, and the number of invalid lines."""
    content = read_json(folder.progress)
    return progress_from_json(content) if content is not None else (None, 0)


def refuse_ended(folder: AttemptFolder) -> None:
    """Raise `EngineError` if nothing of the attempt runs any more."""
    if folder.exit.exists():
        raise EngineError("No process of the job runs there: it has ended.")


def _uuid(job: str) -> str:
    try:
        return str(UUID(job))
    except ValueError:
        raise EngineError(f"The job id {job!r} is not a UUID.") from None


def _environment_variables(folder: Path, search_path: str) -> dict[str, str]:
    """Variables by which uv, pip, conda and the shell find the job's environment."""
    env = str(folder / "env")
    return {
        "MOTLEY_ENV_DIR": env,
        "VIRTUAL_ENV": env,
        "UV_PROJECT_ENVIRONMENT": env,
        "PATH": f"{env}/bin:{search_path}",
    }


def _rank_env(folder: AttemptFolder, rank: int, mark: str) -> dict[str, str]:
    return {"MOTLEY_PROGRESS": str(folder.progress_lines(rank)), MARK: mark}
