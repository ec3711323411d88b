"""Registry of engines: each row of `cluster_app.models.Engine` becomes an engine by the factory of its kind."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypedDict

from django.conf import settings

from cluster_app.models import Engine as EngineRow
from cluster_app.models import Node
from connections_app.agents.engine import AgentEngine
from engines.accounts import account_name
from engines.local.engine import LocalEngine
from engines.protocol import (
    AttemptReport,
    CheckpointTimes,
    Engine,
    EngineError,
    GpuReading,
    JobFile,
    Launch,
    LogChunk,
    NodeReport,
    NodeShare,
    OpenedFile,
    PowerCommand,
    SessionCommand,
    StopReason,
    Stream,
    WatchedGpu,
)
from engines.slurm.engine import SlurmEngine
from engines.slurm.options import SlurmOptions, refuse_unknown
from engines.supervision.gpu_hooks import GpuHooks

MOST_CACHED = 4096
"""More than there are: an engine that is made anew each turn would forget what it knows of its machine."""


class EngineSetup(NamedTuple):
    """What an engine is made of; engines are cached by it."""

    name: str
    kind: str
    options: str
    """As JSON with sorted keys."""
    emulated: tuple[str, ...] = ()
    """Names of its emulated nodes, which it cannot find by itself."""


class Engines(dict[str, Engine]):
    """Engines by name; a name without a row has an engine that raises an error saying so."""

    def __missing__(self, name: str) -> Engine:
        return UnusableEngine(f"There is no engine {name}: add it again in the administration, under Engines.")


def registered_engines() -> list[tuple[EngineRow, Engine]]:
    """Every row with its engine; for one that cannot be made, an engine that raises the reason."""
    emulated: dict[str, list[str]] = defaultdict(list)
    for engine, node in Node.objects.filter(emulated=True).order_by("name").values_list("engine__name", "name"):
        emulated[engine].append(node)
    return [(row, _made(setup_of(row, emulated[row.name]))) for row in EngineRow.objects.all()]


def engines() -> Engines:
    """The registered engines by name."""
    return Engines({row.name: engine for row, engine in registered_engines()})


def engine_named(name: str) -> Engine:
    """The engine of that name without its emulated nodes: for logs, which need none."""
    row = EngineRow.objects.filter(name=name).first()
    return _made(setup_of(row)) if row else Engines()[name]


def setup_of(row: EngineRow, emulated: Iterable[str] = ()) -> EngineSetup:
    return EngineSetup(row.name, row.kind, json.dumps(row.options, sort_keys=True), tuple(emulated))


@lru_cache(MOST_CACHED)
def engine_over(setup: EngineSetup) -> Engine:
    """The engine of that set-up; cached."""
    return FACTORIES[setup.kind](setup)


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raise `EngineError` if an engine of that kind cannot have these options."""
    OPTIONS[kind](options)


def _made(setup: EngineSetup) -> Engine:
    try:
        return engine_over(setup)
    except EngineError as error:
        return UnusableEngine(str(error))


class UnusableEngine:
    """Placeholder of an engine that cannot be made: every method raises the reason."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def nodes(self) -> list[NodeReport]:
        self._refuse()

    def sync_drains(self, wanted: Mapping[str, str]) -> dict[str, str]:
        self._refuse()

    def power_command(self, node: str, *, wake: bool) -> PowerCommand | None:
        self._refuse()

    def launch(self, launch: Launch) -> None:
        self._refuse()

    def stop(self, attempt: int, *, reason: StopReason, grace: timedelta) -> None:
        self._refuse()

    def set_share(self, attempt: int, shares: Sequence[NodeShare]) -> None:
        self._refuse()

    def set_checkpoint_times(self, attempt: int, times: CheckpointTimes) -> None:
        self._refuse()

    def poll(self, attempts: Iterable[int]) -> list[AttemptReport]:
        self._refuse()

    def read_gpus(self, gpus: Sequence[WatchedGpu]) -> list[GpuReading]:
        self._refuse()

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        self._refuse()

    def list_files(self, job: str, path: str) -> list[JobFile]:
        self._refuse()

    def open_file(self, job: str, path: str) -> OpenedFile:
        self._refuse()

    def session(self, attempt: int, rank: int) -> SessionCommand:
        self._refuse()

    def attempts(self) -> dict[int, bool]:
        self._refuse()

    def sizes(self, jobs: Mapping[str, Sequence[int]]) -> dict[str, int]:
        self._refuse()

    def discard(self, jobs: Mapping[str, Sequence[int]]) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EngineError(self._fault)


def _local(setup: EngineSetup) -> Engine:
    return LocalEngine(
        settings.MOTLEY_ENGINE_ROOT,
        declared=setup.emulated,
        **_accounts(),
        path_prefix=settings.MOTLEY_JOB_PATH,
        cgroup=settings.MOTLEY_CGROUP,
        containers=settings.MOTLEY_CONTAINERS,
        hooks=GpuHooks(
            settings.MOTLEY_GPU_HOOK_BEFORE,
            settings.MOTLEY_GPU_HOOK_AFTER,
            settings.MOTLEY_GPU_HOOK_TIMEOUT.total_seconds(),
        ),
    )


def _slurm(setup: EngineSetup) -> Engine:
    return SlurmEngine(SlurmOptions.of(json.loads(setup.options)), **_accounts())


def _accounts() -> "_AccountOptions":
    """The account of launches that name none, and whether accounts are created."""
    return {
        "job_user": account_name(settings.MOTLEY_JOB_USER) or None,
        "create_accounts": settings.MOTLEY_CREATE_ACCOUNTS,
    }


class _AccountOptions(TypedDict):
    job_user: str | None
    create_accounts: bool


FACTORIES: dict[str, Callable[[EngineSetup], Engine]] = {
    EngineRow.Kind.LOCAL.value: _local,
    EngineRow.Kind.SLURM.value: _slurm,
    EngineRow.Kind.AGENT.value: lambda setup: AgentEngine(setup.name),
    EngineRow.Kind.SERVERS.value: lambda setup: AgentEngine(setup.name),
}
OPTIONS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    EngineRow.Kind.LOCAL.value: lambda options: refuse_unknown(options, []),
    EngineRow.Kind.SLURM.value: SlurmOptions.of,
    EngineRow.Kind.AGENT.value: lambda options: refuse_unknown(options, []),
    EngineRow.Kind.SERVERS.value: lambda options: refuse_unknown(options, []),
}
