"""The subtree of cgroup v2 in which the service may make cgroups: found, tried, and turned into limits of ranks.

Nothing is written outside of it, and no process but those of jobs is moved.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engines.attempt_files import CgroupFile, RankLimits
from engines.nvml import gpu_minors
from engines.protocol import CpuLimit, Launch, NodeLaunch, NodeShare
from engines.supervision.device_filter import attach_device_filter

CONTROLLERS = ("memory", "cpu", "pids")
PERIOD_US = 100_000
FULL_WEIGHT = 10_000
DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a cgroup that it leaves to its service (`Delegate=yes`)."""
NOT_ALLOWED = "the service may make no cgroups (docs/jobs-and-their-host.md says how it may)"


class CgroupSubtree(NamedTuple):
    """Folder below which cgroups are made, and the controllers that work there."""

    path: Path | None
    controllers: frozenset[str] = frozenset()
    why_not: str = ""
    closes_gpus: bool = False
    """Whether jobs can be kept from the GPUs of others."""

    @classmethod
    def find(cls, setting: str) -> "CgroupSubtree":
        """The subtree of this path; of `auto`, the one that systemd has delegated to us; of `none`, none."""
        if setting == "none":
            return cls(None, why_not="the site has switched cgroups off")
        path = _delegated() if setting == "auto" else Path(setting)
        if path is None:
            return cls(None, why_not=NOT_ALLOWED)
        return _tried(path)

    @property
    def is_there(self) -> bool:
        return self.path is not None and self.path.is_dir()

    def limits(self, name: str, launch: Launch, task: NodeLaunch) -> RankLimits:
        """Limits of one rank of the launch, in a cgroup of this name; limits that it enforces are not set twice."""
        cgroup = self._cgroup(name, launch, task)
        by_kernel = cgroup["limits"] if cgroup is not None else {}
        return RankLimits(
            memory_mib=task.memory_mib if launch.limits_memory and "memory.max" not in by_kernel else 0,
            processes=launch.most_processes if "pids.max" not in by_kernel else 0,
            cgroup=cgroup,
        )

    def _cgroup(self, name: str, launch: Launch, task: NodeLaunch) -> CgroupFile | None:
        if self.path is None:
            return None
        limits = {
            name: text
            for name, text in _limits(launch, task)
            if name.partition(".")[0] in self.controllers  # memory.max is of the controller `memory`
        }
        minors = _minors(launch, task) if self.closes_gpus else None
        return CgroupFile(path=str(self.path / name), limits=limits, gpu_minors=minors)

    def in_words(self) -> str:
        """Which limits of jobs are enforced on this machine, and how."""
        by_kernel = [word for name, word in _WORDS.items() if name in self.controllers]
        otherwise = [text for name, text in _WITHOUT.items() if name not in self.controllers]
        said = f"The kernel limits {_listed(by_kernel)} of each job (cgroup v2)" if by_kernel else ""
        gpus = "the GPUs of others are closed to it" if self.closes_gpus else "the GPUs of others are open to it"
        why = f" ({self.why_not})" if self.why_not else ""
        text = "; ".join([*([said] if said else []), *otherwise, gpus])
        return f"{text[0].upper()}{text[1:]}{why}."


_WORDS = {"memory": "memory", "cpu": "CPU time", "pids": "processes"}
_WITHOUT = {
    "memory": "a job's memory is added up once a second",
    "cpu": "its CPU time is not limited",
    "pids": "processes are counted by account",
}


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _limits(launch: Launch, task: NodeLaunch) -> Iterator[tuple[str, str]]:
    if launch.limits_memory and task.memory_mib:
        yield "memory.max", str(task.memory_mib * 2**20)
        yield "memory.swap.max", "0"
        yield "memory.oom.group", "1"  # half of a job is no job
    if launch.limits_cpus is not CpuLimit.NONE:
        yield "cpu.weight", _weight(task.cpus or task.gpus or 1)
    if launch.limits_cpus is CpuLimit.QUOTA and task.cpus:
        yield "cpu.max", _quota(task.cpus)
    if launch.most_processes:
        yield "pids.max", str(launch.most_processes)


def limits_of_share(limits: Mapping[str, str], share: NodeShare) -> dict[str, str]:
    """New values of those of a rank's limits that its share changes.

    `memory.high` in place of `memory.max`: above it the kernel takes caches back and slows the job, and kills nothing.
    With all of `memory.max` there is none: a job that wants still more is ended as before, and does not stall.
    """
    of_cpus = {"cpu.weight": _weight(share.cpus), "cpu.max": _quota(share.cpus)} if share.cpus else {}
    changed = {name: text for name, text in of_cpus.items() if name in limits}
    if share.memory_mib and "memory.max" in limits:
        most = share.memory_mib * 2**20
        changed["memory.high"] = (
            str(most) if most < int(limits["memory.max"]) else "max"
        )  # a leak ends, and does not stall
    return changed


def _weight(cpus: int) -> str:
    return str(min(cpus * 100, FULL_WEIGHT))


def _quota(cpus: int) -> str:
    return f"{cpus * PERIOD_US} {PERIOD_US}"


def _minors(launch: Launch, task: NodeLaunch) -> list[int] | None:
    """Minor numbers of a rank's GPUs, without emulated ones; None if not all are known."""
    names = task.env.get("CUDA_VISIBLE_DEVICES", "")
    if "MOTLEY_EMULATED" in launch.env or not names:
        return []
    uuids = [name for name in names.split(",") if name.startswith("GPU-")]
    return gpu_minors(uuids) if len(uuids) == len(names.split(",")) else None


def _delegated() -> Path | None:
    """The nearest cgroup above ours that systemd has marked as delegated.

    Not ours itself: controllers work below a cgroup that has no processes of its own (DelegateSubgroup= of the unit).
    """
    mount, own = _mount_of_cgroup2(), _own_cgroup()
    if mount is None or own is None:
        return None
    above = [mount / Path(*parts) for end in range(len(own.parts) - 1, 0, -1) if (parts := own.parts[:end])]
    return next((path for path in above if _is_delegated(path)), None)


def _is_delegated(path: Path) -> bool:
    for name in DELEGATED:
        with suppress(OSError):
            return os.getxattr(path, name) == b"1"
    return False


def _mount_of_cgroup2() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 ") and before.split()[3] == "/":
            return Path(before.split()[4])
    return None


def _own_cgroup() -> Path | None:
    """Our cgroup, relative to the root of the hierarchy."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next((Path(line[len("0::/") :]) for line in lines if line.startswith("0::/")), None)


def _tried(path: Path) -> CgroupSubtree:
    """The subtree there, if a process of ours can be moved into it; its controllers are switched on."""
    trial = path / f"trial-{os.getpid()}"
    try:
        for name in CONTROLLERS:
            with suppress(OSError):  # it is not there, or not ours to switch on
                (path / "cgroup.subtree_control").write_text(f"+{name}")
        trial.mkdir()
    except OSError as error:
        return CgroupSubtree(None, why_not=f"no cgroup can be made in {path}: {error.strerror}")
    try:
        moving = ["/bin/sh", "-c", 'echo 0 >"$1"', "sh", str(trial / "cgroup.procs")]
        moved = subprocess.run(moving, capture_output=True, check=False)  # noqa: S603 - words of ours and a path
        on = frozenset((path / "cgroup.subtree_control").read_text().split())
        closes_gpus = _can_close_gpus(trial)
    except OSError as error:
        return CgroupSubtree(None, why_not=f"{path} is no cgroup of version 2: {error.strerror}")
    finally:
        with suppress(OSError):
            trial.rmdir()
    if moved.returncode:
        return CgroupSubtree(None, why_not=f"no process may be moved into {path}")
    return CgroupSubtree(path, on & {*CONTROLLERS}, closes_gpus=closes_gpus)


def _can_close_gpus(cgroup: Path) -> bool:
    """Whether the kernel and our rights allow a device filter: it takes root."""
    try:
        attach_device_filter(str(cgroup), [])
    except OSError:
        return False
    return True
