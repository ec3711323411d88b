"""Batch script of an attempt: the supervisor, whose ranks are steps. `python -ES -m engines.slurm.batch <folder>`.

Whoever makes the file `begun` runs the attempt: slurmctld may forget after a restart that it had started a job, and
start it again.
"""

import os
import signal
import sys
from pathlib import Path

from engines.attempt_files import AttemptFolder, StopFile, write_json
from engines.linux import die_with_parent
from engines.protocol import StopReason
from engines.slurm.files import SlurmFiles
from engines.slurm.rank import SlurmRank
from engines.supervision.supervisor import supervise

MARGIN_S = 1.0
"""Part of Slurm's KillWait that is left for the end of the supervisor."""


def main() -> None:
    folder = AttemptFolder(Path(sys.argv[1]))
    if not begin(folder):
        sys.stderr.write("Another Slurm job has begun this attempt.\n")
        return
    die_with_parent(signal.SIGKILL)  # of slurmstepd: else all would run on, and Slurm would not notice
    signal.signal(signal.SIGTERM, lambda *_: note_stop_by_site(folder))
    supervise(folder, SlurmRank)


def begin(folder: AttemptFolder) -> bool:
    """Whether this Slurm job is the first of the attempt."""
    try:
        descriptor = os.open(SlurmFiles(folder).begun, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    os.write(descriptor, os.environ.get("SLURM_JOB_ID", "").encode())
    os.close(descriptor)
    return True


def note_stop_by_site(folder: AttemptFolder) -> None:
    """Take SIGTERM (scancel, preemption, time limit) as a request to stop within Slurm's KillWait."""
    site = SlurmFiles(folder).read_launch()
    within_s = max((site["kill_wait_s"] if site else 0.0) - MARGIN_S, 0.0)
    asked = folder.read_stop()
    if asked is None:
        write_json(folder.stop, StopFile(reason=StopReason.PREEMPT, grace_s=within_s, by_site=True))
    elif asked["grace_s"] > within_s:
        write_json(folder.stop, {**asked, "grace_s": within_s})


if __name__ == "__main__":
    main()
