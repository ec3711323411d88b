"""Reports on attempts, from their files on the shared folder and from Slurm's list of jobs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from engines.attempt_files import AttemptFolder, ExitFile, utc_now
from engines.protocol import AttemptReport, Phase, SiteReason
from engines.slurm.files import SlurmFiles
from engines.slurm.parsing import ENDINGS, SlurmJob, waiting_reason
from engines.slurm.site import Site
from engines.supervision.engine_root import EngineRoot, read_progress

STOPPED_BEFORE_START = 143
KILLED = 137
ON_PURPOSE = (SiteReason.CANCELLED, SiteReason.PREEMPTED, SiteReason.TIME_LIMIT)
ENFORCE_AFTER_S = 15.0
"""Time after the end of a grace period after which Slurm is told to kill the attempt."""
Ending = tuple[SiteReason | None, str]
"""Why the site ended an attempt, None if it did not, and in words."""


class Reports:
    """Reports on the attempts below `root`; `late_disk_s` is how long a report may be late on the shared folder."""

    def __init__(self, root: EngineRoot, site: Site, *, late_disk_s: float) -> None:
        self._root = root
        self._site = site
        self._late_disk_s = late_disk_s
        self._devices: dict[int, dict[str, str]] = {}

    def of(self, attempt: int, jobs: Mapping[int, Sequence[SlurmJob]] | None) -> AttemptReport | None:
        """Report on the attempt; `jobs` is None if Slurm does not answer. None: nothing new can be said."""
        mine = jobs.get(attempt, []) if jobs is not None else None
        report = self._of(attempt, mine)
        return replace(report, site_job=str(mine[0].number)) if report is not None and mine else report

    def _of(self, attempt: int, mine: Sequence[SlurmJob] | None) -> AttemptReport | None:
        folder = self._root.attempt(attempt)
        files = SlurmFiles(folder)
        if (ended := folder.read_exit()) is not None:
            return self._ended(attempt, folder, ended, mine)
        started = folder.read_started()
        began = datetime.fromisoformat(started["at"]) if started is not None else None
        if mine is None:
            return self._running(attempt, folder, began) if began is not None else None
        if active := [job for job in mine if job.is_active]:
            files.over_seen.unlink(missing_ok=True)
            self._enforce_stop(folder, active)
            return self._running(attempt, folder, began) if began is not None else _launching(attempt, active)
        if began is None and not files.submitting.exists() and not files.begun.exists():
            return AttemptReport(attempt, Phase.UNKNOWN, proven_gone=True)
        return self._over(attempt, folder, mine, began)

    def is_over(self, attempt: int) -> bool:
        """Whether nothing more will be written to the attempt's logs."""
        folder = self._root.attempt(attempt)
        return folder.exit.exists() or self._over_for_s(SlurmFiles(folder)) > self._late_disk_s

    def _ended(
        self, attempt: int, folder: AttemptFolder, ended: ExitFile, mine: Sequence[SlurmJob] | None
    ) -> AttemptReport:
        """Report on an attempt with exit.json; its processes are proven ended once Slurm has released its nodes."""
        active = mine is None or any(job.is_active for job in mine)
        named = ended.get("silent_nodes", [])
        silent = self._site.unproven(named) if mine is not None else named
        reason, words = self._ending(folder, mine, silent)
        if ended.get("node_failed"):
            reason = SiteReason.NODE_FAILED
        began = datetime.fromisoformat(ended["started_at"]) if ended["started_at"] else None
        report = self._running(attempt, folder, began)
        if reason is None and active and _is_by_site(folder):
            return report  # why the site ended it is known when Slurm is done
        return replace(
            report,
            phase=Phase.LOST if reason is SiteReason.NODE_FAILED else Phase.ENDED,
            proven_gone=not active and not silent,
            exit_code=ended["exit_code"],
            ended_at=datetime.fromisoformat(ended["ended_at"]),
            ran_s=ended.get("ran_s"),
            message=" ".join(part for part in (words, ended["message"]) if part),
            reason=reason or (SiteReason.STORAGE_MISSING if ended.get("missing_storage") else None),
            silent_nodes=silent,
            missing_storage=ended.get("missing_storage", {}),
        )

    def _ending(self, folder: AttemptFolder, mine: Sequence[SlurmJob] | None, silent: Sequence[str]) -> Ending:
        if dead := [name for name in silent if self._site.is_down(name)]:
            return SiteReason.NODE_FAILED, f"Slurm does not hear from {', '.join(dead)}."
        known = self._known(folder, mine) if mine is not None else None
        state, by_site = _state_of(known), _is_by_site(folder)
        if state == "OUT_OF_MEMORY" or (by_site and state in ENDINGS):
            return ENDINGS[state]
        forgotten = by_site and known is not None and not known
        return ENDINGS["CANCELLED"] if forgotten else (None, "")

    def _known(self, folder: AttemptFolder, mine: Sequence[SlurmJob]) -> Sequence[SlurmJob]:
        """The Slurm job of the attempt, from the accounting if Slurm itself has forgotten it."""
        number = SlurmFiles(folder).read_submitted() if not mine else None
        return self._site.accounted(number) if number is not None else mine

    def _over(
        self, attempt: int, folder: AttemptFolder, mine: Sequence[SlurmJob], began: datetime | None
    ) -> AttemptReport | None:
        """Report on an attempt whose Slurm job is over without exit.json, which is late or was never written."""
        files = SlurmFiles(folder)
        if not files.over_seen.exists() or self._still_beats(files):
            files.over_seen.touch()
        never_placed = bool(mine) and began is None and not any(job.nodes for job in mine)
        if not never_placed and self._over_for_s(files) < self._late_disk_s:
            os.listdir(folder.path)  # noqa: PTH208 - makes an NFS client look again
            return self._running(attempt, folder, began) if began else AttemptReport(attempt, Phase.LAUNCHING)
        if (ended := folder.read_exit()) is not None:  # written since it was looked for
            return self._ended(attempt, folder, ended, mine)
        known = self._known(folder, mine)
        if began is None and not files.begun.exists():
            return _never_began(attempt, folder, known)
        return self._lost(attempt, folder, known, began)

    def _lost(
        self, attempt: int, folder: AttemptFolder, mine: Sequence[SlurmJob], began: datetime | None
    ) -> AttemptReport:
        """Report on an attempt whose supervisor ended without a report; no failure if the site ended it on purpose."""
        silent = self._site.unproven(SlurmFiles(folder).gpus_by_node())
        reason, words = ENDINGS.get(_state_of(mine), (None, "Its supervisor ended without a report."))
        on_purpose = reason in ON_PURPOSE
        if on_purpose and folder.read_stop() is not None and not _is_by_site(folder):
            reason, words = None, "It was killed after its grace period."
        return replace(
            self._running(attempt, folder, began),
            phase=Phase.ENDED if on_purpose else Phase.LOST,
            proven_gone=not silent,
            exit_code=KILLED if on_purpose else None,
            ended_at=utc_now() if on_purpose else None,
            message=words,
            reason=reason,
            silent_nodes=silent,
        )

    def _over_for_s(self, files: SlurmFiles) -> float:
        """Seconds since Slurm said that the job is over; 0 if it did not."""
        try:
            return _age_s(files.over_seen, files)
        except FileNotFoundError:
            return 0.0

    def _still_beats(self, files: SlurmFiles) -> bool:
        """Whether a rank lives, whatever Slurm says: times of two files on one disk are compared."""
        seen_s = files.over_seen.stat().st_mtime
        return any(path.stat().st_mtime > seen_s for path in files.heartbeats())

    def _running(self, attempt: int, folder: AttemptFolder, began: datetime | None) -> AttemptReport:
        progress, invalid_lines = read_progress(folder)
        return AttemptReport(
            attempt,
            Phase.RUNNING,
            started_at=began,
            progress=progress,
            invalid_lines=invalid_lines,
            peak_memory_mib=folder.most_memory_mib(),
            **folder.start_times(),
            devices=self._devices_of(attempt, SlurmFiles(folder)),
        )

    def _devices_of(self, attempt: int, files: SlurmFiles) -> dict[str, str]:
        """The physical GPUs by node, kept once all ranks have said theirs."""
        if attempt in self._devices:
            return self._devices[attempt]
        site = files.read_launch()
        ranks = [files.read_rank(rank) for rank in range(len(site["nodes"]))] if site is not None else []
        found = {rank["node"].lower(): rank["devices"] for rank in ranks if rank is not None and rank["devices"]}
        if ranks and all(rank is not None for rank in ranks):
            self._devices[attempt] = found
        return found

    def _enforce_stop(self, folder: AttemptFolder, active: Sequence[SlurmJob]) -> None:
        """Kill an attempt in Slurm whose supervisor does not do it, and a second job of the same attempt."""
        stop = folder.read_stop()
        files = SlurmFiles(folder)
        if stop is not None and _age_s(folder.stop, files) > stop["grace_s"] + ENFORCE_AFTER_S:
            self._site.slurm.cancel({job.number for job in active}, "--full", "--signal=KILL")
        elif len({job.number for job in active}) > 1 and files.begun.exists():
            first = files.begun.read_text()
            self._site.slurm.cancel({job.number for job in active if str(job.number) != first})


def _age_s(path: Path, files: SlurmFiles) -> float:
    """Seconds since the file was written, by the clock of its disk: that of a file server may differ from ours."""
    last = path.stat().st_mtime
    files.looked.touch()
    return files.looked.stat().st_mtime - last


def _launching(attempt: int, active: Sequence[SlurmJob]) -> AttemptReport:
    if not all(job.is_waiting for job in active) or not active[0].reason:
        return AttemptReport(attempt, Phase.LAUNCHING)
    reason, words = waiting_reason(active[0].reason)
    return AttemptReport(attempt, Phase.LAUNCHING, reason=reason, message=words)


def _never_began(attempt: int, folder: AttemptFolder, mine: Sequence[SlurmJob]) -> AttemptReport:
    """Report on an attempt that was never started: it is not lost, unless its node failed."""
    reason, words = _why_never_began(folder, mine)
    lost = words == "" or reason is SiteReason.NODE_FAILED
    return AttemptReport(
        attempt,
        Phase.LOST if lost else Phase.ENDED,
        proven_gone=True,
        exit_code=None if lost else STOPPED_BEFORE_START,
        ended_at=utc_now(),
        message=words or "Slurm ended it before it began.",
        reason=reason,
    )


def _why_never_began(folder: AttemptFolder, mine: Sequence[SlurmJob]) -> Ending:
    if folder.read_stop() is not None:
        return None, "The attempt was stopped before it started."
    if not mine:
        return SiteReason.CANCELLED, "Slurm has forgotten it before it began."
    return ENDINGS.get(mine[0].state, (None, ""))


def _state_of(mine: Sequence[SlurmJob] | None) -> str:
    return mine[0].state if mine else ""


def _is_by_site(folder: AttemptFolder) -> bool:
    """Whether the site, not the service, asked for its end."""
    stop = folder.read_stop()
    return stop is not None and stop.get("by_site", False)
