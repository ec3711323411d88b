"""The embedded mode in one command: web, scheduler and local engine on this machine."""

import errno
import fcntl
import os
import socket
import sys
from argparse import SUPPRESS
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.checks.registry import registry
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, OperationalError, connections

from cluster_app.models import Node
from connections_app.register_machine import register_this_machine
from database.damage import REMEDY, forget_damage, is_damage
from engines.attempt_files import write_whole
from engines.linux import own_file, sync
from engines.protocol import EngineError
from operations import demo
from operations.children import Program, hear_signals, import_what_they_share, run_until_told
from operations.prepare_host import Host, collect_static_files, prepare_host
from operations.web_programs import folder_of_sockets, listening_at, web_programs

ADMIN, DEMO_USER = "admin", "demo"
LOOPS = ("engines", "rounds")
"""The scheduler's loops, each a process of its own: a solver that holds the interpreter delays no command."""


class Command(BaseCommand):
    """Prepares the service, then executes itself with the settings of this host, as the parent of its processes."""

    help = "Migrates the database, creates the first accounts and a demo cluster, and runs the service until Ctrl-C."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--prepared", type=int, action="append", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["prepared"]:
            self._run(options["prepared"])
            return
        port = _port(os.environ.get("MOTLEY_PORT", "8000"))
        url = f"http://localhost:{port}"
        with _exclusive_data_folder(url) as lock, _listening(port) as listening:
            environment = os.environ | self._prepare(url)
            _execute_prepared(lock, [sock.fileno() for sock in listening], environment)

    def _prepare(self, url: str) -> dict[str, str]:
        """Settings of the service's processes."""
        self.check(tags=sorted(registry.tags_available() - {Tags.urls}))  # with those, later: views take a second
        with _disk_errors_explained():
            forget_damage()
            call_command("migrate", verbosity=0)
            collect_static_files()
            host = _prepared()
            self._accounts(url)
        with_samples = self._slurm_cluster(host) if os.environ.get("SLURM") == "1" else self._inventory()
        return host.environment() | {"MOTLEY_URL": url, "MOTLEY_DEMO": str(int(with_samples))}

    def _run(self, listening: list[int]) -> None:
        """Run the processes of the service, which listens on these descriptors."""
        told = hear_signals()
        self.check()
        import_what_they_share()
        with folder_of_sockets(settings.VAR_DIR.absolute() / "run") as folder:
            programs = [*web_programs(listening, folder), *_programs()]
            self.stdout.write(
                f"\nMotley is at {settings.PUBLIC_URL}  (Ctrl-C stops the service; running jobs continue)\n"
            )
            run_until_told(programs, told)
        self.stdout.write("Stopped. Running jobs continue; `make run` finds them again.")

    def _accounts(self, url: str) -> None:
        """The first accounts; their passwords are printed once, the demo user's is in demo.env."""
        admin = demo.create_login(ADMIN, staff=True)
        if admin:
            self.stdout.write(f"administrator: {admin.username}  password: {admin.password}  (shown only now)")
        login = demo.create_login(DEMO_USER, staff=False)
        demo.create_teams(DEMO_USER)
        path = settings.VAR_DIR / "demo.env"
        if login or not path.exists():
            login = login or demo.renew_password(DEMO_USER)
            self.stdout.write(f"demo user:     {login.username}   password: {login.password}")
            _write_private(path, _demo_env(url, login))
        else:
            lines = [line for line in path.read_text().splitlines() if not line.startswith("export MOTLEY_URL=")]
            _write_private(path, "\n".join([f"export MOTLEY_URL={url}", *lines, ""]))

    def _inventory(self) -> bool:
        """Register real GPUs, or else declare the emulated cluster; returns whether to submit sample jobs."""
        found = register_this_machine()
        if found:
            self.stdout.write(f"found {found}")
            return False
        if os.environ.get("DEMO") == "0":
            return False
        if not Node.objects.exists():
            demo.declare_emulated_cluster()
            self.stdout.write("declared an emulated cluster: 4 A100, 8 V100, 8 T4 on five nodes")
        return bool(Node.objects.filter(emulated=True).exists())

    def _slurm_cluster(self, host: Host) -> bool:
        """Start a private Slurm cluster and schedule on it; returns whether to submit sample jobs."""
        cluster = demo.private_slurm_cluster(settings.VAR_DIR / "slurm")
        try:
            cluster.up()
        except EngineError as error:
            raise CommandError(str(error)) from error
        root = host.engine_root.with_name(f"{host.engine_root.name}-slurm")
        demo.declare_slurm_cluster(cluster, root=root, search_path=host.job_path)
        self.stdout.write(
            f"started a private Slurm cluster of five emulated nodes: SLURM_CONF={cluster.conf} squeue\n"
            f"it goes on when the service stops; `manage.py stopslurm` ends it and its jobs"
        )
        return os.environ.get("DEMO") != "0"


def _execute_prepared(lock: int, listening: list[int], environment: dict[str, str]) -> None:
    """Start anew in this process: settings are read once, when Django is set up. The lock and the sockets stay open."""
    command = [sys.executable, *sys.orig_argv[1:]]
    for number in listening:
        command += ["--prepared", str(number)]
    for number in (lock, *listening):
        os.set_inheritable(number, True)
    connections.close_all()
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell is wanted


def _programs() -> list[Program]:
    """The loops of the scheduler, and the submission of sample jobs."""
    programs = [Program(name, partial(call_command, "schedule", only=name)) for name in LOOPS]
    if settings.MOTLEY_DEMO:
        programs.append(Program("samples", partial(call_command, "demojobs", owner=DEMO_USER), may_end=True))
    return programs


@contextmanager
def _disk_errors_explained() -> Iterator[None]:
    try:
        yield
    except (OSError, DatabaseError) as error:
        if is_damage(error):
            raise CommandError(f"{REMEDY} ({error})") from error
        if not isinstance(error, OSError | OperationalError):
            raise
        raise CommandError(
            f"Motley could not write its data in {settings.VAR_DIR} ({error}): check that the disk is not full, that "
            "you may write there, and that no other program has locked the database."
        ) from error


def _prepared() -> Host:
    try:
        return prepare_host()
    except EngineError as error:
        raise CommandError(str(error)) from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**16):
        raise CommandError(f"MOTLEY_PORT is {text!r}: write a port from 1 to 65535, as MOTLEY_PORT=8001 make run")
    return int(text)


@contextmanager
def _exclusive_data_folder(url: str) -> Iterator[int]:
    """Hold a file lock on the data folder, which the kernel releases however the process ends; yields its number."""
    settings.VAR_DIR.mkdir(parents=True, exist_ok=True)
    with own_file(settings.VAR_DIR / "serving") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            there = f"Motley runs with the data in {settings.VAR_DIR} already, at {file.read()}"
            remedy = (
                "stop that one, or give this one data of its own: MOTLEY_VAR=/another/folder MOTLEY_PORT=8001 make run"
            )
            raise CommandError(f"{there}: {remedy}") from error
        file.truncate(0)
        print(url, end="", file=file, flush=True)
        yield file.fileno()


def _local_addresses() -> list[str]:
    """The addresses of `localhost`: a job that could listen on one of them would be sent people's tokens."""
    with socket.socket(socket.AF_INET6) as probe, suppress(OSError):
        probe.bind(("::1", 0))
        return ["127.0.0.1", "::1"]
    return ["127.0.0.1"]


@contextmanager
def _listening(port: int) -> Iterator[list[socket.socket]]:
    """The listening sockets of the service, held from its start to its end."""
    with ExitStack() as stack:
        try:
            yield [stack.enter_context(listening_at(address, port)) for address in _local_addresses()]
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            remedy = "stop what listens there, or choose another one: MOTLEY_PORT=8001 make run"
            raise CommandError(f"Port {port} is in use: {remedy}") from error


def _demo_env(url: str, login: demo.Login) -> str:
    values = {
        "MOTLEY_URL": url,
        "MOTLEY_USER": login.username,
        "MOTLEY_PASSWORD": login.password,
        "MOTLEY_TOKEN": demo.create_token(login.username),
    }
    return "".join(f"export {name}={value}\n" for name, value in values.items())


def _write_private(path: Path, text: str) -> None:
    """A file of the service alone, which lasts through a power cut."""
    write_whole(path, text)
    sync(path.parent)
