"""Files of an attempt that only the Slurm engine knows, on the folder that all nodes share."""

from pathlib import Path
from typing import TypedDict, cast

from engines.attempt_files import AttemptFolder, read_json


class SlurmLaunchFile(TypedDict):
    """Where the ranks run, by rank."""

    nodes: list[str]
    """As Slurm spells them."""
    gpus: list[int]
    cpus: list[int]
    components: list[int]
    """Component of the heterogeneous job; all 0 for a gang with as many GPUs on each node."""
    kill_wait_s: float
    """Seconds between SIGTERM and SIGKILL where Slurm ends a job."""
    silent_after_s: float
    """Seconds without a new heartbeat after which a rank is given up."""
    python: str


class RankFile(TypedDict):
    """Findings of a rank on its node."""

    node: str
    devices: str
    isolation: str


class SlurmFiles:
    """Paths of these files."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._path = folder.path
        self.launch = folder.path / "slurm.json"
        self.submitting = folder.path / "submitting"
        """Its existence means that Slurm may have the job, even if `submitted` is missing."""
        self.submitted = folder.path / "submitted.json"
        self.begun = folder.path / "begun"
        """Made by the Slurm job that runs the attempt (O_EXCL): a second one ends at once."""
        self.over_seen = folder.path / "over_seen"
        """Made when Slurm first said that the job is over: exit.json may come late over a network disk."""
        self.looked = folder.path / "looked"
        """Touched to learn the time of the disk's clock."""

    def outcome(self, rank: int) -> Path:
        return self._path / f"outcome.{rank}.json"

    def heartbeat(self, rank: int) -> Path:
        return self._path / f"alive.{rank}"

    def rank(self, rank: int) -> Path:
        return self._path / f"rank.{rank}.json"

    def samples(self, rank: int) -> Path:
        """File of the last sample of the rank's GPUs."""
        return self._path / f"gpus.{rank}.json"

    def heartbeats(self) -> list[Path]:
        return list(self._path.glob("alive.*"))

    def gpus_by_node(self) -> dict[str, int]:
        """GPUs of the attempt by node, as Motley names it."""
        site = self.read_launch()
        return {name.lower(): n for name, n in zip(site["nodes"], site["gpus"], strict=True)} if site else {}

    def read_launch(self) -> SlurmLaunchFile | None:
        return cast("SlurmLaunchFile | None", read_json(self.launch))

    def read_rank(self, rank: int) -> RankFile | None:
        return cast("RankFile | None", read_json(self.rank(rank)))

    def read_submitted(self) -> int | None:
        content = read_json(self.submitted)
        return int(content["job"]) if content is not None else None
