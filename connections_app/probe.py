"""Tests of engines (probes): launched, polled and stopped by ticks, without waiting."""

import json
import logging
import shlex
from datetime import datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from django.contrib.auth.base_user import AbstractBaseUser

from audit_app.models import Action
from audit_app.services import note
from cluster_app.engine_reports import why_not_in_service
from cluster_app.models import Engine as EngineRow
from cluster_app.models import Node
from cluster_app.storage import StoragePaths, storage_was_found
from connections_app.engine_registry import engine_named
from connections_app.models import EngineProbe
from engines.protocol import (
    OUTPUT,
    AttemptReport,
    Engine,
    EngineError,
    EngineUnreachable,
    Launch,
    NodeLaunch,
    NodeState,
    Phase,
    StopReason,
)

log = logging.getLogger(__name__)

PATIENCE = timedelta(minutes=2)
GRACE = timedelta(seconds=5)
LOG_BYTES, LOG_SHOWN_BYTES = 65_536, 2048
SCRIPT = """\
import json, os, platform, pwd, sys
users = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == os.getuid()]
print("user", users[0] if users else os.getuid(), "on", platform.node(), "with Python", platform.python_version())
if sys.version_info < (3, 11):
    sys.exit("Python 3.11 or newer is needed: " + sys.executable + " is older.")
path = os.path.join(os.environ["MOTLEY_CHECKPOINT_DIR"], "probe")
with open(path, "w") as file:
    file.write("written")
with open(path) as file:
    assert file.read() == "written", path
os.remove(path)
print("wrote and read", path)
print("the folder is shared: the service reads these lines there")
missing = []
for name, path in json.loads(sys.argv[1]):
    if os.path.exists(path) and os.access(path, os.R_OK):
        print("storage", name, "is", "writable:" if os.access(path, os.W_OK) else "read-only:", path)
    else:
        missing.append(name)
        print("storage", name, "may not be read:" if os.path.exists(path) else "is missing:", path)
if missing:
    sys.exit("Storage that jobs cannot use on this node: " + ", ".join(missing))
"""
"""What a test runs, with the names and paths of storage as JSON; in words that an old Python understands, too."""


def ask_for_probe(engine: EngineRow, *, actor: AbstractBaseUser | None) -> EngineProbe:
    """Ask for a test of the engine; the next tick begins it, and a later test replaces it."""
    note(Action.ENGINE_TEST, actor=actor, target=engine.name, target_id=engine.pk)
    EngineRow.objects.filter(pk=engine.pk).update(retry_at=None)
    return EngineProbe.objects.create(engine=engine, asked_by_id=actor.pk if actor else None)


def advance_probes(now: datetime) -> None:
    """Take every unfinished test one step further."""
    for probe in EngineProbe.objects.filter(ended_at=None).select_related("engine"):
        try:
            _advance(probe, engine_named(probe.engine.name), now)
        except EngineUnreachable as error:
            _wait(probe, str(error))
        except EngineError as error:
            _finish(probe, now, message=str(error))


def _advance(probe: EngineProbe, engine: Engine, now: datetime) -> None:
    if probe.engine.probes.filter(pk__gt=probe.pk).exists():
        _give_up(probe, engine, now, "It was replaced by a newer test.")
    elif probe.engine.fault:
        _give_up(probe, engine, now, f"The engine does not answer: {probe.engine.fault}")
    elif now - probe.asked_at > PATIENCE:
        waited = f" Last: {probe.message}" if probe.message else ""
        _give_up(probe, engine, now, f"It did not end within {PATIENCE.total_seconds():.0f} s.{waited}")
    elif probe.launched_at is None:
        _launch(probe, engine, now)
    else:
        for report in engine.poll([probe.attempt]):
            _note(probe, engine, report, now)


def _give_up(probe: EngineProbe, engine: Engine, now: datetime, message: str) -> None:
    """Stop the test's attempt. If the engine does not answer, the time limit of the launch ends it."""
    _finish(probe, now, message=message)
    if probe.launched_at is not None and not probe.engine.fault:
        engine.stop(probe.attempt, reason=StopReason.CANCEL, grace=timedelta())


def _launch(probe: EngineProbe, engine: Engine, now: datetime) -> None:
    node = _node_for(probe.engine)
    if node is None:
        _wait(probe, _no_node(probe.engine))
        return
    engine.launch(_command(probe, node))
    EngineProbe.objects.filter(pk=probe.pk).update(node=node, launched_at=now, message="")


def _node_for(engine: EngineRow) -> str | None:
    """A healthy node of the inventory, else one that the engine reports, so that it can be tested before it is added.

    None that was put to sleep: its health says nothing, and an engine may report it for a while.
    """
    nodes = Node.objects.filter(engine=engine, health=Node.Health.HEALTHY, engine_reason="", power=None)
    off = set(Node.objects.filter(engine=engine).exclude(power=None).values_list("name", flat=True))
    reported = (name for name, found in sorted(engine.inventory.items()) if found.get("state") == NodeState.OK)
    return nodes.order_by("name").values_list("name", flat=True).first() or next(
        (name for name in reported if name not in off), None
    )


def _no_node(engine: EngineRow) -> str:
    """Why there is no node to test on."""
    node = Node.objects.filter(engine=engine).first()
    return (why_not_in_service(node, engine) if node else "") or f"The engine {engine.name} reports no healthy node."


def _command(probe: EngineProbe, node: str) -> Launch:
    python = str(probe.engine.options.get("python", "python3"))
    return Launch(
        attempt=probe.attempt,
        job=str(uuid5(NAMESPACE_URL, f"motley:probe:{probe.engine.name}")),
        command=shlex.join([python, "-c", SCRIPT, json.dumps(_storage(probe.engine, node))]),
        tasks=[NodeLaunch(node, {"CUDA_VISIBLE_DEVICES": ""})],
        log_limit_bytes=LOG_BYTES,
        grace=GRACE,
        time_limit=PATIENCE,
    )


def _storage(engine: EngineRow, node: str) -> list[tuple[str, str]]:
    """Name and path of the storage that the node should have."""
    known = Node.objects.filter(engine=engine, name=node).values_list("gpu_type__name", flat=True).first()
    gpu_type = known or str(engine.inventory.get(node, {}).get("gpu_type", ""))
    return sorted(StoragePaths.read().on(engine.name, gpu_type).items())


def _note(probe: EngineProbe, engine: Engine, report: AttemptReport, now: datetime) -> None:
    """Act on a report."""
    match report.phase:
        case Phase.ENDED | Phase.LOST:
            passed = report.phase is Phase.ENDED and report.exit_code == 0
            said = report.message or f"It exited with {report.exit_code}."
            _finish(probe, now, message="" if passed else said, passed=passed, log=_log_of(probe, engine))
            if passed:
                storage_was_found(probe.node)
        case Phase.UNKNOWN:  # the launch was lost: it is sent again
            EngineProbe.objects.filter(pk=probe.pk).update(launched_at=None)
        case _ if report.message and report.message != probe.message:
            _wait(probe, report.message)


def _log_of(probe: EngineProbe, engine: Engine) -> str:
    """The last bytes of what it printed, errors after output."""
    data = b"".join(engine.logs(probe.attempt, stream, 0, 0, 2 * LOG_BYTES).data for stream in OUTPUT)
    return data[-LOG_SHOWN_BYTES:].decode(errors="replace").replace("\0", "")


def _wait(probe: EngineProbe, message: str) -> None:
    EngineProbe.objects.filter(pk=probe.pk, ended_at=None).update(message=message[:500])


def _finish(probe: EngineProbe, now: datetime, *, message: str, passed: bool = False, log: str = "") -> None:
    ended = {"ended_at": now, "passed": passed, "message": message[:500], "log": log}
    EngineProbe.objects.filter(pk=probe.pk, ended_at=None).update(**ended)
