"""Sampler of a rank's GPUs: reads them by NVML on their node, every few seconds, into a file for the service.

Started by `engines.slurm.node_start` beside a rank, with which it ends:
`python -ES -m engines.slurm.sampler <folder of the attempt> <rank> <GPUs as Slurm numbers them>`.
"""

import sys
import time
from itertools import count
from pathlib import Path

from engines.attempt_files import AttemptFolder
from engines.gpu_readings import site_readings
from engines.slurm.files import SlurmFiles
from engines.slurm.parsing import expand_numbers
from engines.slurm.samples import RankSample, write_sample

EVERY_S = 5.0
"""Half the time between two looks of the service, so that each finds a new sample."""


def main() -> None:
    folder, rank, devices = sys.argv[1:]
    path = SlurmFiles(AttemptFolder(Path(folder))).samples(int(rank))
    given = [int(number) for number in expand_numbers(devices)]
    for number in count(1):
        write_sample(path, RankSample(number, site_readings(given)))
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
