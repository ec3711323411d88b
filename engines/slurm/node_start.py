"""Task of a step: chooses the isolation of its node, says which devices it has, and becomes the init process.

Run as `python -ES -m engines.slurm.node_start <folder of the attempt> <rank>`.
"""

import os
import signal
import sys
from pathlib import Path

from engines.attempt_files import AttemptFolder, write_json
from engines.linux import die_with_parent
from engines.slurm.files import RankFile, SlurmFiles
from engines.supervision.isolation import PREFIXES, best_isolation


def main() -> None:
    folder, rank = AttemptFolder(Path(sys.argv[1])), int(sys.argv[2])
    isolation = best_isolation()
    devices = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS", "")
    found = RankFile(node=os.environ.get("SLURMD_NODENAME", ""), devices=devices, isolation=isolation)
    write_json(SlurmFiles(folder).rank(rank), found)
    die_with_parent(signal.SIGKILL)  # of slurmstepd, whose death neither srun nor Slurm notices for minutes
    argv = [*PREFIXES[isolation], sys.executable, "-ES", "-m", "engines.supervision.init_process"]
    os.execvp(argv[0], argv)  # noqa: S606 - our own program


if __name__ == "__main__":
    main()
