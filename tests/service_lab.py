"""A small emulated cluster in this process, with real jobs, and the words in which its tests are written."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.utils import timezone

from accounting_app.models import DurationForecast
from cluster_app.models import GpuType, Node
from cluster_app.services import add_node
from connections_app.engine_registry import engine_named
from connections_app.register_machine import gpu_type_columns
from engines.attempt_files import AttemptFolder
from engines.protocol import Stream
from engines.supervision.processes import kill, marked
from jobs_app.models import Attempt, GpuClaim, Job, Team
from jobs_app.submission.submit import submit_job
from operations.loops import both_turns, engine_turn
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy
from scheduler_app.round.dispatch import promote_waiting_claims
from scheduler_app.round.lease import Fence, Loop, acquire_lease
from scheduler_app.round.tick import round_turn, send_commands

Found = TypeVar("Found")
GIVE_UP_AFTER_S = 300.0
PAUSE_S = 0.1
"""A turn takes half as long: with shorter pauses the turns take the time of the processes that are waited for."""
HASTE = timedelta(seconds=0.3)
"""How far the scheduler's clock runs ahead with each look, so that rounds are not waited for."""
UNTIL_LET_GO = 'while [ ! -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do sleep 0.05; done'
"""A job that runs until the test lets it go."""


ON_THE_WAY = (Attempt.State.CLAIMED, Attempt.State.LAUNCHING, Attempt.State.STOPPING)


class Lab:
    """The service's rules on real rows and real processes. The clock is an argument, so a test may put it forward."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ahead = timedelta()
        self._stopped_at: datetime | None = None

    @property
    def now(self) -> datetime:
        return (self._stopped_at or timezone.now()) + self.ahead

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """Time passes by `ahead` alone: a busy machine adds nothing between two ticks."""
        self._stopped_at = timezone.now()
        yield
        self.ahead -= timezone.now() - self._stopped_at
        self._stopped_at = None

    # -- what there is ------------------------------------------------------------------------------------------

    def node(self, name: str, gpu_type: str = "a100", *, gpus: int = 2, cpus: int = 64, memory_gib: int = 512) -> Node:
        """An emulated node, healthy before its engine is asked."""
        kind, _ = GpuType.objects.get_or_create(name=gpu_type, defaults=gpu_type_columns(gpu_type))
        add_node(name, kind, gpus=gpus, cpus=cpus, memory_mib=memory_gib * 1024, emulated=True)
        Node.objects.filter(name=name, health=Node.Health.UNKNOWN).update(health=Node.Health.HEALTHY)
        return Node.objects.get(name=name)

    def team(self, name: str = "vision", **columns: Any) -> Team:
        return Team.objects.get_or_create(name=name, defaults=columns)[0]

    def user(self, name: str = "ada", *teams: str, staff: bool = False) -> User:
        """A member of these teams, of `vision` if none is named."""
        user, _ = User.objects.get_or_create(username=name, defaults={"is_staff": staff, "is_superuser": staff})
        user.teams.add(*(self.team(team) for team in teams or ("vision",)))
        return user

    def policy(
        self, name: str = "max_min_fairness", *, round_s: float = 1, min_run_s: float = 0, **parameters: Any
    ) -> None:
        setting = PolicySetting(policy=name, parameters=parameters, round_length_s=round_s, min_run_s=min_run_s)
        choose_policy(setting, actor=None)

    def submit(self, command: str | list[str] = "true", *, owner: User | None = None, **spec: Any) -> Job:
        """By ada, if no owner is given; a restart costs nothing unless given, so that jobs have no lease."""
        checkpoint = {"restore_seconds": 0, **spec.pop("checkpoint", {})}
        size = {} if "replicas" in spec else {"gpus": 1}
        given = {"name": "job", "command": command, **size, "checkpoint": checkpoint, **spec}
        return submit_job(given, owner=owner or self.user())

    def attempt(self, job: Job, **columns: Any) -> Attempt:
        """One written by hand, of which no engine knows."""
        number = job.attempts.count() + 1
        if "gpu_type" not in columns:
            columns["gpu_type"] = GpuType.objects.get()
        fixed = {"gpu_count": 1, "engine": "local", "round_number": 1, "master_port": 29_600}
        return Attempt.objects.create(job=job, **(fixed | {"number": number} | columns))

    def succeeded(
        self,
        name: str,
        *seconds: float,
        gpus: int = 1,
        owner: User | None = None,
        team: str = "vision",
        **columns: Any,
    ) -> None:
        """Jobs of that name that took so long each, the last of which ended last; they are not in the database."""
        for of_one in seconds:
            known = DurationForecast.objects.count()
            DurationForecast.objects.create(
                job=UUID(int=known + 1),
                owner=owner or self.user(),
                team=self.team(team),
                name=name,
                gpus=gpus,
                seconds=of_one,
                ended_at=self.now - timedelta(hours=1) + timedelta(seconds=known),
                **columns,
            )

    # -- what happens -------------------------------------------------------------------------------------------

    def tick(self) -> None:
        assert both_turns("lab", self.now)

    @property
    def fence(self) -> Fence:
        """The lease of the loop of engines, as this lab."""
        assert acquire_lease("lab", self.now, Loop.ENGINES)
        return Fence.of("lab")

    def round(self) -> None:
        """A tick in which a round is due."""
        self.ahead += timedelta(seconds=PolicySetting.objects.current().round_length_s)
        self.tick()

    def decide(self) -> None:
        """A round, of which nothing is carried out: no process is started."""
        self.ahead += timedelta(seconds=PolicySetting.objects.current().round_length_s)
        assert round_turn("lab", self.now)

    def recorded_as_running(self, *jobs: Job) -> None:
        """As rows say after a round has given them GPUs: there is no process, and no engine knows of one."""
        self.decide()
        promote_waiting_claims(self.now)
        Attempt.objects.filter(job__in=jobs).update(state=Attempt.State.RUNNING, started_at=self.now)
        for job in jobs:
            started = Job.objects.filter(pk=job.pk, state=Job.State.STARTING)
            assert started.update(state=Job.State.RUNNING, started_at=self.now) == 1, _standing()
            job.refresh_from_db()

    def recorded_as_ended(self, job: Job) -> Path:
        """As rows say of a job that has succeeded: it had no process. Returns the folder for its files."""
        times = dict.fromkeys(("launched_at", "started_at", "ended_at", "gone_at"), self.now)
        end = {"state": Attempt.State.ENDED, "outcome": Attempt.Outcome.SUCCEEDED, "exit_code": 0}
        self.attempt(job, nodes=[Node.objects.values_list("name", flat=True)[0]], **times, **end)
        Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, finished_at=self.now, attempt_count=1)
        job.refresh_from_db()
        folder = self.root / "jobs" / str(job.pk)
        for part in ("work", "checkpoints"):
            (folder / part).mkdir(parents=True)
        return folder

    def until(self, look: Callable[[], Found | None], *, seconds: float = GIVE_UP_AFTER_S) -> Found:
        """What `look` finds, as soon as that is something, the scheduler working meanwhile.

        It looks after turns of the engines, too: on a busy machine the next round may stop a job that has just started.
        """
        give_up_at = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < give_up_at, f"what was waited for did not come: {_standing()}"
            assert engine_turn("lab", self.now)
            if found := look():
                return found
            assert round_turn("lab", self.now)
            self._carry_out()
        return found

    def carried_out(self) -> None:
        """Once what rounds decided is carried out; no round is decided meanwhile."""
        give_up_at = time.monotonic() + GIVE_UP_AFTER_S
        while Attempt.objects.filter(state__in=ON_THE_WAY).exists():
            assert time.monotonic() < give_up_at, f"it was not carried out: {_standing()}"
            assert engine_turn("lab", self.now)
            self._carry_out()

    def _carry_out(self) -> None:
        assert send_commands("lab", self.now)
        time.sleep(PAUSE_S)
        self.ahead += HASTE

    def until_state(self, job: Job, state: Job.State) -> Job:
        """The job, once it is in that state; it must not end in another."""

        def reached() -> bool:
            job.refresh_from_db()
            assert job.state == state or not job.is_final, f"{job} is {job.state}: {job.message}"
            return job.state == state

        self.until(reached)
        return job

    def running(self, *jobs: Job) -> None:
        for job in jobs:
            self.until_state(job, Job.State.RUNNING)

    def let_go(self, *jobs: Job) -> None:
        """What runs `UNTIL_LET_GO` ends."""
        for job in jobs:
            (self.root / "jobs" / str(job.pk) / "checkpoints" / "go").touch()

    # -- what came of it ----------------------------------------------------------------------------------------

    def attempts(self, job: Job) -> list[Attempt]:
        return list(job.attempts.select_related("gpu_type").order_by("number"))

    def output(self, job: Job, *, rank: int = 0) -> str:
        """What the job's latest attempt printed."""
        attempt = self.attempts(job)[-1]
        return engine_named(attempt.engine).logs(attempt.pk, Stream.STDOUT, rank, 0, 10**6).data.decode()

    def environment(self, job: Job, *, rank: int = 0) -> dict[str, str]:
        """What a job that ran `env` has printed."""
        return dict(line.split("=", 1) for line in self.output(job, rank=rank).splitlines() if "=" in line)

    def gpus_held(self, job: Job) -> set[str]:
        """As node/index."""
        return {str(claim.gpu) for claim in GpuClaim.objects.holding().filter(attempt__job=job)}

    def processes(self) -> list[int]:
        """Of all jobs, with their supervisors."""
        folders = [AttemptFolder(path) for path in (self.root / "attempts").glob("*")]
        return [pid for folder in folders for pid in _processes_of(folder)]

    def end_everything(self) -> None:
        """No supervisor and no process of a job is left."""
        while left := self.processes():
            kill(left)
            time.sleep(0.01)


def lab_of_rows() -> Lab:
    """A lab for shared rows: its policy is chosen, and it has no folder for processes."""
    lab = Lab(Path("/nonexistent"))
    lab.policy(round_s=60)  # the time limit of its rounds is long enough on a busy machine, too
    return lab


def _processes_of(folder: AttemptFolder) -> list[int]:
    launch = folder.read_launch()
    jobs = marked(launch["mark"]) if launch is not None else []
    return _with_word(str(folder.path)) + jobs


def _with_word(word: str) -> list[int]:
    """Processes that have the word on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:  # it has just ended
                continue
            found += [int(entry.name)] if word in words else []
    return found


def _standing() -> list[str]:
    return [f"{job} is {job.state} ({job.reason}: {job.message})" for job in Job.objects.all()]
