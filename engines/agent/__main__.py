"""Command line of the agent: `python -m engines.agent join | run | leave`.

The token is read from a file or from the environment, never from the command line, which other users of the machine
can see.
"""

import argparse
import fcntl
import logging
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import time, timedelta
from pathlib import Path
from typing import IO, NotRequired, TypedDict

from engines.agent.agent import Agent, lease_path, leave_path, mark_path
from engines.agent.checkpoint_uploads import USUAL, CheckpointUploads, UploadRate
from engines.agent.checks import Asked, uid_of
from engines.agent.condition import Conditions
from engines.agent.connection import Connection, Refused, Unheard, checked_url
from engines.agent.jobs_of_others import Owner, leave_to_others, note_owner
from engines.agent.machine import EmulatedGpus, MachineReports, machine_digest, machine_report
from engines.agent.messages import VERSION, Joining, Lending
from engines.agent.network import OwnNetwork
from engines.agent.program import Program
from engines.agent.update import Updates
from engines.attempt_files import read_json, write_json, write_whole
from engines.linux import own_file
from engines.local.engine import NO_HOOKS, LocalEngine
from engines.protocol import EngineError
from engines.site_command import split_command
from engines.supervision.engine_root import OWN, THROUGH
from engines.supervision.gpu_hooks import GpuHooks

log = logging.getLogger("engines.agent")

DEFAULT_FOLDER = Path.home() / ".local" / "state" / "motley-agent"
JOIN_TOKEN = "MOTLEY_JOIN_TOKEN"  # noqa: S105 - the name of a variable
UNITS = {"s": 1, "m": 60, "h": 3600}
FAILED, USAGE, REFUSED, BUSY = 1, 2, 3, 5


class Identity(TypedDict):
    """Identity of the machine, stored by `join` for `run`."""

    url: str
    token: str
    name: str
    gpus: str
    """Emulated ones, as k80:4; empty: those of the driver."""
    notice_s: float
    job_user: NotRequired[str]
    job_path: NotRequired[str]
    """As given to `join`; those of `run` come first."""
    address: NotRequired[str]
    """On the network that trainings use, as given to `join`."""
    create_accounts: NotRequired[bool]
    site: NotRequired[bool]
    """Whether it is a server of the site; the service decides it."""


def main(words: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        return int(given.act(given))
    except Refused as error:
        sys.stderr.write(f"The service refused: {error}\n")
        return REFUSED
    except (EngineError, Unheard, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except OSError as error:  # a token that cannot be read, say
        if given.act is run:
            raise  # of a process that works for months the place matters
        sys.stderr.write(f"{error}\n")
        return FAILED


def join(given: argparse.Namespace) -> int:
    """Join the service once, and store what `run` needs."""
    if _identity(given.state) is not None:
        path = _identity_path(given.state)
        raise ValueError(f"This machine has joined already: {path} says where. To join anew, end the agent, remove it.")
    given.state.mkdir(parents=True, exist_ok=True)
    given.state.chmod(THROUGH if given.job_user else OWN)  # the account of jobs must pass
    gpus = EmulatedGpus.of(given.gpus) if given.gpus else None
    found = machine_report("joining", gpus, _engine(given, "joining").nodes())
    joining = Joining(
        VERSION,
        machine_digest(),
        _own_token(given.state),
        found,
        emulated=gpus is not None,
        lending=_lending(given),
        notice=given.notice,
        gangs=True,
        job_uid=uid_of(given.job_user),
    )
    joined = Connection(given.url, join_token(given)).join(joining)
    identity = Identity(
        url=given.url,
        token=joining.token,
        name=joined.node,
        gpus=given.gpus,
        notice_s=given.notice.total_seconds(),
        job_user=given.job_user,
        job_path=given.job_path,
        address=given.address,
        create_accounts=given.create_accounts,
        site=joined.site,
    )
    left = leave_to_others(given.state, Owner(url=given.url, service=joined.service))
    mark_path(given.state).unlink(missing_ok=True)
    write_json(_identity_path(given.state), identity)
    _token_path(given.state).unlink()  # one that joins anew has a new one
    print(f"{joined.node} has joined {given.url} with {len(found.gpus)} x {found.gpu_type}.")  # noqa: T201
    if left:
        where = given.state / "engine" / "jobs"
        print(f"{len(left)} folders of jobs of another service stay in {where}: remove them by hand.")  # noqa: T201
    return 0


def run(given: argparse.Namespace) -> int:
    """Work for the service until the machine leaves."""
    identity = _identity(given.state)
    if identity is None:
        raise ValueError(f"This machine has not joined: run `python -m engines.agent join --state {given.state}`.")
    program = Program.own()
    updates = Updates(given.state, program)
    _go_back_if_not_heard(updates)
    given.job_user = given.job_user or identity.get("job_user", "")
    given.job_path = given.job_path or identity.get("job_path", "")
    given.create_accounts = given.create_accounts or identity.get("create_accounts", False)
    with _only_one(given.state):
        with suppress(OSError):  # of a full disk: the next start does it
            note_owner(given.state, identity["url"])
        with suppress(FileNotFoundError):
            leave_path(given.state).unlink()  # of the time before
        hooks = GpuHooks(given.gpu_hook_before, given.gpu_hook_after, given.gpu_hook_timeout.total_seconds())
        engine = _engine(given, identity["name"], lease=lease_path(given.state), hooks=hooks)
        gpus = EmulatedGpus.of(identity["gpus"]) if identity["gpus"] else None
        connection = Connection(identity["url"], identity["token"])
        pace = UploadRate(pause_s=given.checkpoints_every.total_seconds())
        site = identity.get("site", False)
        network = OwnNetwork(given.address or identity.get("address", ""), identity["url"])
        agent = Agent(
            given.state,
            connection,
            engine,
            MachineReports(identity["name"], gpus, engine.nodes, lambda: network().address),
            notice=timedelta(seconds=identity["notice_s"]),
            uploads=CheckpointUploads(given.state, connection, engine, pace),
            network=network,
            condition=Conditions(program, asked=_checks(given, identity) if site else None, failure=updates.failure),
            updates=updates,
            site=site,
        )
        return agent.run()


def _go_back_if_not_heard(updates: Updates) -> None:
    """Before all else: a program that ends before its first turn is taken back when it is started once more."""
    try:
        updates.watch()
    except Exception:
        log.exception("the program could not be changed")


def _checks(given: argparse.Namespace, identity: Identity) -> Asked:
    """What is checked of a server while it runs."""
    address = given.address or identity.get("address", "")
    return Asked(identity["url"], address, given.job_user, identity["gpus"], given.state, Program.own().prefix)


def leave(given: argparse.Namespace) -> int:
    """Have the running agent leave with its notice; it ends when its jobs are away."""
    identity = _identity(given.state)
    if identity is None:
        raise ValueError("This machine has not joined.")
    notice_s = given.notice.total_seconds() if given.notice is not None else identity["notice_s"]
    write_whole(leave_path(given.state), str(notice_s))
    print("The agent leaves: it ends when its jobs are away.")  # noqa: T201
    return 0


def _engine(
    given: argparse.Namespace, name: str, *, lease: Path | None = None, hooks: GpuHooks = NO_HOOKS
) -> LocalEngine:
    if os.geteuid() == 0 and not given.job_user:
        raise ValueError("As root, name the account that jobs run as: --job-user, one that owns nothing here.")
    return LocalEngine(
        given.state / "engine",
        declared=[name],
        job_user=given.job_user or None,
        create_accounts=given.create_accounts,
        path_prefix=given.job_path,
        lease=lease,
        hooks=hooks,
    )


def _own_token(folder: Path) -> str:
    """The token that the machine will show; stored before it is sent, so that `join` can be repeated."""
    token: str = read_json(_token_path(folder)) or f"agent_{secrets.token_urlsafe(32)}"
    write_json(_token_path(folder), token)
    return token


def _token_path(folder: Path) -> Path:
    return folder / "token.json"


def join_token(given: argparse.Namespace) -> str:
    text = given.token_file.read_text() if given.token_file is not None else os.environ.get(JOIN_TOKEN, "")
    if not text.strip():
        raise ValueError(f"The join token is missing: name its file with --token-file, or set {JOIN_TOKEN}.")
    return text.strip()


def _lending(given: argparse.Namespace) -> Lending | None:
    if not given.lend:
        return None
    begins, _, ends = given.lend.partition("-")
    try:
        return Lending(time.fromisoformat(begins), time.fromisoformat(ends), given.zone)
    except ValueError:
        raise ValueError(f"{given.lend!r} are no hours, as 20:00-08:00.") from None


def _identity_path(folder: Path) -> Path:
    return folder / "identity.json"


def _identity(folder: Path) -> Identity | None:
    found: Identity | None = read_json(_identity_path(folder))
    return found


def _only_one(folder: Path) -> IO[str]:
    """Lock of the folder, until it is closed. Jobs pass the folder: a file that they can open they could lock first."""
    file = own_file(folder / "agent.lock")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"Another agent works in {folder}.") from None
    return file


def _duration(text: str) -> timedelta:
    """From `10m`, `90s` or `2h`."""
    if text[-1:] not in UNITS or not text[:-1].isdigit():
        raise argparse.ArgumentTypeError("write a number with s, m or h, as 10m")
    return timedelta(seconds=int(text[:-1]) * UNITS[text[-1]])


def _hook(text: str) -> str:
    """A command that can be split into words."""
    try:
        split_command(text, gpu="")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it cannot be split into words: {error}") from None
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engines.agent", description="Lend this machine to Motley.")
    acts = parser.add_subparsers(required=True)
    joining = acts.add_parser("join", help="join a service, once, with a join token")
    joining.add_argument("--url", required=True, type=checked_url, help="the service, as https://motley.example.org")
    joining.add_argument(
        "--token-file", type=Path, help=f"file with the join token; default: the variable {JOIN_TOKEN}"
    )
    joining.add_argument("--gpus", default="", help="emulated GPUs for a trial, as k80:4; default: those of the driver")
    joining.add_argument("--lend", default="", help="hours at which the machine is lent, as 20:00-08:00")
    joining.add_argument("--zone", default="UTC", help="time zone of these hours, as Europe/Berlin")
    joining.add_argument("--notice", type=_duration, default=timedelta(minutes=5), help="as 10m; default 5m")
    running = acts.add_parser("run", help="run jobs until the machine leaves; SIGTERM: leave with notice")
    running.add_argument(
        "--checkpoints-every",
        type=_duration,
        default=timedelta(seconds=USUAL.pause_s),
        help="least time between two uploads of what a running job has saved, as 10m; default 1m",
    )
    for when in ("before", "after"):
        running.add_argument(
            f"--gpu-hook-{when}",
            type=_hook,
            default="",
            help=f"command for each GPU {when} a job, with {{gpu}} for its UUID: one on which it fails gets no job",
        )
    running.add_argument("--gpu-hook-timeout", type=_duration, default=timedelta(minutes=1), help="as 30s; default 1m")
    leaving = acts.add_parser("leave", help="have the agent of this machine leave with notice")
    leaving.add_argument("--notice", type=_duration, help="as 10m; default: that of join")
    for command, act in ((joining, join), (running, run), (leaving, leave)):
        command.set_defaults(act=act)
        command.add_argument("--state", type=Path, default=DEFAULT_FOLDER, help="folder of the agent")
    for command in (joining, running):
        command.add_argument("--job-user", default="", help="account that jobs run as, where the agent is root")
        command.add_argument("--job-path", default="", help="put before the PATH of jobs: where their python is")
        command.add_argument(
            "--create-accounts", action="store_true", help="of a server: create the accounts of teams that it lacks"
        )
        command.add_argument(
            "--address",
            default="",
            help="of a server, on the network that trainings use; default: that from which it reaches the service",
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
