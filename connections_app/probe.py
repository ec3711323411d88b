"""Tests of engines (probes): launched, polled and stopped by ticks, without waiting."""

import json
import logging
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from django.contrib.auth.base_user import AbstractBaseUser
from django.utils.crypto import salted_hmac

from audit_app.models import Action
from audit_app.services import note
from cluster_app.engine_reports import why_not_in_service
from cluster_app.models import Engine as EngineRow
from cluster_app.models import Node
from cluster_app.storage import StoragePaths, storage_was_found
from connections_app.engine_registry import engine_named
from connections_app.models import Agent, EngineProbe
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

PATIENCE = timedelta(minutes=3)
GRACE = timedelta(seconds=5)
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Jobs write to the storage, too: through a link of theirs nothing is made."""
MARK_LENGTH = 16
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
given = json.loads(sys.argv[1])
if given["shares_folder"]:
    print("the folder is shared: the service reads these lines there")
missing = []
for name, path in given["storage"]:
    if os.path.exists(path) and os.access(path, os.R_OK):
        print("storage", name, "is", "writable:" if os.access(path, os.W_OK) else "read-only:", path)
    else:
        missing.append(name)
        print("storage", name, "may not be read:" if os.path.exists(path) else "is missing:", path)
if missing:
    sys.exit("Storage that jobs cannot use on this node: " + ", ".join(missing))
"""
"""What a test runs, with the names and paths of storage as JSON; in words that an old Python understands, too."""
ROUTES = """\
import socket, threading, time
rank, addresses, port = int(os.environ["MOTLEY_NODE_RANK"]), given["addresses"], given["port"]
until = time.time() + given["reached_within_s"]
came = set()
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
def take():
    while True:
        connection, _ = listening.accept()
        came.add(connection.recv(16))
        connection.close()
try:
    listening.bind((addresses[rank], port))
    listening.listen(1024)
    threading.Thread(target=take, daemon=True).start()
except OSError as error:  # another process listens there, which is reached as well, or holds the port
    came = None
    print("does not listen at {0}:{1}: {2}".format(addresses[rank], port, error))
def reaches(address):
    while time.time() < until:
        try:
            with socket.create_connection((address, port), timeout=max(until - time.time(), 0.1)) as connection:
                connection.sendall(str(rank).encode())
                return True
        except OSError:  # it does not listen yet, or there is no route
            time.sleep(0.2)
    return False
others = [n for n in range(len(addresses)) if n != rank]
tries = [threading.Thread(target=lambda n=n: found.append(n) if reaches(addresses[n]) else None) for n in others]
found = []
for one in tries:
    one.start()
for one in tries:
    one.join()
while came is not None and len(came) < len(others) and time.time() < until:
    time.sleep(0.1)
cut = ["{0} ({1})".format(given["nodes"][n], addresses[n]) for n in others if n not in found]
print("does not reach " + ", ".join(cut) if cut else "reaches all other servers")
"""
"""What a test of several servers runs after that: each listens at its address, and connects to those of all others."""
SHARED = """\
import time
mark, nodes, rank = given["mark"], given["nodes"], int(os.environ["MOTLEY_NODE_RANK"])
def beside(path, word, number):
    return os.path.join(path, "{0}-{1}-{2}".format(mark, word, number))
def seen(path, word):
    found = os.listdir(path)  # a name that was missing once may be remembered as missing for a while
    return [n for n in range(len(nodes)) if os.path.basename(beside(path, word, n)) in found]
def wait(folders, word):
    until = time.time() + given["wait_s"]
    while time.time() < until and any(len(seen(path, word)) < len(nodes) for _, path in folders):
        time.sleep(0.2)
folders = [(name, path) for name, path in given["storage"] if os.path.isdir(path) and os.access(path, os.W_OK)]
def leave(path, word):
    try:  # others may write there, and have put a link: what it leads to stays as it is
        open(beside(path, word, rank), "x").close()
    except FileExistsError:
        pass
for _, path in folders:
    leave(path, "token")
wait(folders, "token")
strangers = []
for name, path in folders:
    there = seen(path, "token")
    lack = [nodes[n] for n in range(len(nodes)) if n not in there]
    print("storage", name, "is not shared with " + ", ".join(lack) if lack else "is shared by all servers")
    owners = [(nodes[n], os.lstat(beside(path, "token", n)).st_uid) for n in there]
    strangers += ["{0} ({1})".format(*one) for one in owners if one[1] != os.getuid()]
    known = os.path.exists(beside(path, "token", "service"))
    print("storage", name, "is", "seen by the service" if known else "not seen by the service")
    leave(path, "read")
if rank == 0:
    wait(folders, "read")
    for _, path in folders:
        for entry in os.listdir(path):
            if entry.startswith(mark) and not entry.endswith("service"):
                os.remove(os.path.join(path, entry))
elif strangers or cut:  # the first failure ends all: the files are removed before
    until = time.time() + given["wait_s"]
    while time.time() < until and any(os.path.lexists(beside(path, "read", rank)) for _, path in folders):
        time.sleep(0.2)
if strangers:
    text = "Files of the same account have another number here, {0}: give it one number on all servers: {1}"
    sys.exit(text.format(os.getuid(), ", ".join(sorted(set(strangers)))))
if cut:
    text = "Not reached at TCP port {0}: {1}. Open the ports of trainings between the servers, or name other addresses"
    sys.exit(text.format(port, ", ".join(cut)) + " with --address.")
"""
"""What it runs last: each writes a file to each storage, and looks for those of the others
and of the service. The first removes them when all have looked."""
REACHED_WITHIN_S = 20.0
PORT = 49_599
"""The last of those that trainings use (`scheduler_app.round.commit.PORTS`)."""
SEEN_WITHIN_S = 45.0
"""A network file system may remember for half a minute that a file was missing."""


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
    nodes = _nodes_for(probe.engine)
    if not nodes:
        _wait(probe, _no_node(probe.engine))
        return
    if len(nodes) > 1:
        _leave_tokens(probe, nodes[0])
    engine.launch(_command(probe, nodes))
    EngineProbe.objects.filter(pk=probe.pk).update(node=nodes[0], nodes=nodes, launched_at=now, message="")


def _nodes_for(engine: EngineRow) -> list[str]:
    """A healthy node of the inventory, else one that the engine reports, so that it can be tested before it is added.

    Of the site's servers all healthy ones, which are tested together. None that was put to sleep: its health says
    nothing, and an engine may report it for a while.
    """
    nodes = Node.objects.filter(engine=engine, health=Node.Health.HEALTHY, engine_reason="", power=None)
    off = set(Node.objects.filter(engine=engine).exclude(power=None).values_list("name", flat=True))
    reported = [name for name, found in sorted(engine.inventory.items()) if found.get("state") == NodeState.OK]
    known = list(nodes.order_by("name").values_list("name", flat=True)) or [one for one in reported if one not in off]
    return known if engine.kind == EngineRow.Kind.SERVERS else known[:1]


def _no_node(engine: EngineRow) -> str:
    """Why there is no node to test on."""
    node = Node.objects.filter(engine=engine).first()
    return (why_not_in_service(node, engine) if node else "") or f"The engine {engine.name} reports no healthy node."


def _command(probe: EngineProbe, nodes: Sequence[str]) -> Launch:
    python = str(probe.engine.options.get("python", "python3"))
    given = {
        "storage": _storage(probe.engine, nodes[0]),
        "shares_folder": not probe.engine.has_agents,
        "mark": _mark_of(probe),
        "nodes": list(nodes),
        "addresses": _addresses_of(nodes),
        "port": PORT,
        "reached_within_s": REACHED_WITHIN_S,
        "wait_s": SEEN_WITHIN_S,
    }
    script = SCRIPT + ROUTES + SHARED if len(nodes) > 1 else SCRIPT
    of_ranks = {"CUDA_VISIBLE_DEVICES": "", "MOTLEY_NUM_NODES": str(len(nodes))}
    return Launch(
        attempt=probe.attempt,
        job=str(uuid5(NAMESPACE_URL, f"motley:probe:{probe.engine.name}")),
        command=shlex.join([python, "-c", script, json.dumps(given)]),
        tasks=[NodeLaunch(node, {**of_ranks, "MOTLEY_NODE_RANK": str(rank)}) for rank, node in enumerate(nodes)],
        log_limit_bytes=LOG_BYTES,
        grace=GRACE,
        time_limit=PATIENCE,
    )


def _addresses_of(nodes: Sequence[str]) -> list[str]:
    """Addresses of servers on the network that trainings use, in the order of the nodes."""
    reports = dict(Agent.objects.filter(name__in=nodes).values_list("name", "node_report"))
    return [reports.get(node, {}).get("address", "") for node in nodes]


def _mark_of(probe: EngineProbe) -> str:
    """Beginning of the names of the files of a test of several servers, that jobs with the storage cannot guess."""
    return f".motley-test-{salted_hmac(__name__, str(probe.pk)).hexdigest()[:MARK_LENGTH]}"


def _tokens(probe: EngineProbe, node: str) -> Iterator[Path]:
    """The files of the service in a test of several servers."""
    for _, path in _storage(probe.engine, node):
        yield Path(path) / f"{_mark_of(probe)}-token-service"


def _leave_tokens(probe: EngineProbe, node: str) -> None:
    """Write a file to each storage that this machine has under the same path."""
    for token in _tokens(probe, node):
        with suppress(OSError):  # it is not mounted here, or is not ours to write
            os.close(os.open(token, NEW_FILE, 0o644))


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
            for node in probe.nodes if passed else ():
                storage_was_found(node)
        case Phase.UNKNOWN:  # the launch was lost: it is sent again
            EngineProbe.objects.filter(pk=probe.pk).update(launched_at=None)
        case _ if report.message and report.message != probe.message:
            _wait(probe, report.message)


def _log_of(probe: EngineProbe, engine: Engine) -> str:
    """The last bytes of what each rank printed, errors after output."""
    return "\n".join(_log_of_rank(probe, engine, rank) for rank in range(max(len(probe.nodes), 1))).replace("\0", "")


def _log_of_rank(probe: EngineProbe, engine: Engine, rank: int) -> str:
    data = b"".join(engine.logs(probe.attempt, stream, rank, 0, 2 * LOG_BYTES).data for stream in OUTPUT)
    head = f"{probe.nodes[rank]}:\n" if len(probe.nodes) > 1 else ""
    return head + data[-LOG_SHOWN_BYTES:].decode(errors="replace")


def _wait(probe: EngineProbe, message: str) -> None:
    EngineProbe.objects.filter(pk=probe.pk, ended_at=None).update(message=message[:500])


def _finish(probe: EngineProbe, now: datetime, *, message: str, passed: bool = False, log: str = "") -> None:
    ended = {"ended_at": now, "passed": passed, "message": message[:500], "log": log}
    EngineProbe.objects.filter(pk=probe.pk, ended_at=None).update(**ended)
    for token in _tokens(probe, probe.node) if len(probe.nodes) > 1 else ():
        with suppress(OSError):
            token.unlink()
