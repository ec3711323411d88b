"""Task of a step: chooses the isolation of its node, has its devices sampled, and becomes the init process.

Run as `python -ES -m engines.slurm.node_start <folder of the attempt> <rank>`. Where the account of the job has another
number on this node, the rank ends: it would run as somebody else.
"""

import ctypes
import os
import pwd
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from engines.attempt_files import AttemptFolder, LaunchFile, write_json
from engines.linux import die_with, die_with_parent
from engines.slurm.files import RankFile, SlurmFiles
from engines.supervision.init_process import RankExit
from engines.supervision.isolation import PREFIXES, best_isolation

NO_ACCOUNT = 67
"""sysexits.h: EX_NOUSER."""
NVML = "libnvidia-ml.so.1"


def main() -> None:
    folder, rank = AttemptFolder(Path(sys.argv[1])), int(sys.argv[2])
    isolation = best_isolation()
    devices = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS", "")
    found = RankFile(node=os.environ.get("SLURMD_NODENAME", ""), devices=devices, isolation=isolation)
    files = SlurmFiles(folder)
    write_json(files.rank(rank), found)
    if complaint := complaint_about_account(folder.read_launch(), found["node"]):
        write_json(files.outcome(rank), RankExit(exit_code=NO_ACCOUNT, message=complaint, node_failed=True))
        return
    if devices and has_driver():
        start_sampler(folder, rank, devices)
    die_with_parent(signal.SIGKILL)  # of slurmstepd, whose death neither srun nor Slurm notices for minutes
    argv = [*PREFIXES[isolation], sys.executable, "-ES", "-m", "engines.supervision.init_process"]
    os.execvp(argv[0], argv)  # noqa: S606 - our own program


def has_driver() -> bool:
    """Whether NVIDIA's library is there: far cheaper than a process that finds out."""
    try:
        ctypes.CDLL(NVML)
    except OSError:
        return False
    return True


def start_sampler(folder: AttemptFolder, rank: int, devices: str) -> None:
    """Start the sampler, which ends with this process; it keeps no pipe open, for whose end the step would wait.

    It has no mark of the attempt, of which it is no process.
    """
    subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-ES", "-m", "engines.slurm.sampler", str(folder.path), str(rank), devices],
        env={name: text for name, text in os.environ.items() if not name.startswith("MOTLEY_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(die_with, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - we have one thread
    )


def complaint_about_account(launch: LaunchFile | None, node: str) -> str:
    """Why the job cannot run here as its account; empty if it can."""
    if launch is None or launch["user"] is None or not (name := launch.get("account")):
        return ""
    wanted = launch["user"][0]
    try:
        number = pwd.getpwnam(name).pw_uid
    except KeyError:
        return f"The node {node} does not know the account {name}: create it there with the number {wanted}."
    if number == wanted:
        return ""
    return f"The account {name} has the number {number} on the node {node}, not {wanted}: make them the same."


if __name__ == "__main__":
    main()
