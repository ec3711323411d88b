"""Installation of the agent on a server: `python3 motley-agent.pyz --url URL --token-file FILE`, as root.

First it checks, and prints a line for each check with its remedy; where one fails, nothing is written. Then it unpacks
itself, joins, and starts the agent by systemd, or says how to start it where there is none. On a server that has joined
already it updates the agent: the jobs run on meanwhile.
"""

import argparse
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engines.accounts import ensure_account
from engines.agent.__main__ import join_token
from engines.agent.checks import Asked, Check, Facts, checks_of, facts_of, host_name, number_check, system_numbers
from engines.agent.connection import Connection, Refused, Unheard, checked_url
from engines.agent.machine import EmulatedGpus, machine_digest
from engines.agent.messages import VERSION, Joined, Joining
from engines.agent.program import unpack, use
from engines.protocol import EngineError, GpuReport, NodeReport

PREFIX, STATE, UNIT = (
    Path("/opt/motley-agent"),
    Path("/var/lib/motley-agent"),
    Path("/etc/systemd/system/motley-agent.service"),
)
SYSTEMD = Path("/run/systemd/system")
UNIT_TEXT = """\
[Unit]
Description=Motley's agent: runs jobs of the service on this server
After=network-online.target
Wants=network-online.target

[Service]
WorkingDirectory={folder}
ExecStart={command}
# One that has left, or whose token was revoked, stays ended.
Restart=on-failure
RestartPreventExitStatus=3
RestartSec=2
# The jobs run on under their supervisors.
KillMode=process
Delegate=yes
# They have the limits of this unit: networks as InfiniBand keep much memory in place, and jobs may have many processes.
TasksMax=infinity
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
"""
FAILED = 1
MOST_NUMBER = 2**32 - 2
"""Of an account of Linux."""


def main(words: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(words)
    asked = Asked(given.url, given.address, given.job_user, given.gpus, given.state, given.prefix)
    facts = facts_of(asked)
    checks = [*checks_of(asked, facts)]
    joined, more = _asked_of_service(given, facts, is_in_order=all(one["passed"] for one in checks))
    checks += more
    job_uid = joined.job_uid if joined is not None and joined.job_uid is not None else given.job_uid
    checks += number_check(asked, facts, job_uid)
    if given.json:
        accounts = {"job_uid": facts.job_uid, "taken": system_numbers()}
        found = {"host": host_name(), "uuids": facts.uuids, "checks": checks}
        print(json.dumps(found | accounts))  # noqa: T201
    else:
        _tell(checks)
    if not all(one["passed"] for one in checks):
        sys.stderr.write("Nothing was written.\n")
        return FAILED
    try:
        if given.check:
            return 0
        return _update(given) if facts.has_joined(given.url) else _install(given, job_uid)
    except (EngineError, OSError) as error:
        sys.stderr.write(f"FAIL {error}\n")
        return FAILED


def account_number(text: str) -> int:
    """The number of an account, as --job-uid gives it."""
    if not text.isdecimal() or not 0 < int(text) <= MOST_NUMBER:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of an account: give one from 1 to {MOST_NUMBER}")
    return int(text)


def _token_faults(given: argparse.Namespace) -> Iterator[Check]:
    """What would have joining fail when the program is installed already."""
    try:
        join_token(given)
    except (OSError, ValueError) as error:
        yield Check(name="token", passed=False, said=str(error))


def _asked_of_service(
    given: argparse.Namespace, facts: Facts, *, is_in_order: bool
) -> tuple[Joined | None, list[Check]]:
    """The service's answer, and what is wrong with the token or, by that answer, with this server.

    A server that has joined is not asked about, nor one that is looked at without a token.
    """
    if facts.joined_url is not None:
        return None, []
    if faults := [*_token_faults(given)]:
        return None, [] if given.check else faults
    return _trial(given, facts) if is_in_order else (None, [])


def _trial(given: argparse.Namespace, facts: Facts) -> tuple[Joined | None, list[Check]]:
    """Ask the service whether this server may join as it is, before anything is written."""
    uuids = [""] * EmulatedGpus.of(given.gpus).number if given.gpus else facts.uuids
    gpus = [GpuReport(number, uuid) for number, uuid in enumerate(uuids)]
    node = NodeReport("joining", facts.gpu_type, gpus, cpus=os.cpu_count() or 1, memory_mib=1)
    own = f"agent_{secrets.token_urlsafe(32)}"
    asks = Joining(VERSION, machine_digest(), own, node, gangs=True, emulated=bool(given.gpus), trial=True)
    try:
        return Connection(given.url, join_token(given)).join(replace(asks, job_uid=facts.job_uid)), []
    except (Refused, Unheard) as error:
        return None, [Check(name="joining", passed=False, said=str(error))]


def _tell(checks: Sequence[Check]) -> None:
    for one in checks:
        line = f"{'ok  ' if one['passed'] else 'FAIL'} {one['name']}: {one['said']}"
        print(line, flush=True)  # noqa: T201 - before what `join` prints, which is a process of its own


def _update(given: argparse.Namespace) -> int:
    """Put this release in the place of the agent's; what `join` stored stays."""
    folder = use(unpack(Path(sys.argv[0]), given.prefix))
    code = _start(folder, _running(given))
    if code == 0:
        print("The agent is updated.")  # noqa: T201
    return code


def _running(given: argparse.Namespace) -> list[str]:
    """Command of the agent."""
    return [sys.executable, "-m", "engines.agent", "run", "--state", str(given.state)]


def _install(given: argparse.Namespace, job_uid: int | None) -> int:
    """`job_uid`: of the account of jobs on the other servers, which a new one gets, too."""
    if os.geteuid() == 0:
        ensure_account(given.job_user, uid=job_uid)
    folder = use(unpack(Path(sys.argv[0]), given.prefix))
    state = ["--state", str(given.state)]
    jobs_as = ["--job-user", given.job_user, "--create-accounts"] if os.geteuid() == 0 else []
    named = [("--address", given.address), ("--gpus", given.gpus), ("--job-path", given.job_path)]
    more = [word for option, value in named if value for word in (option, value)]
    token = ["--token-file", str(given.token_file)] if given.token_file is not None else []
    agent = [sys.executable, "-m", "engines.agent"]
    join = [*agent, "join", "--url", given.url, *token, *jobs_as, *more, *state]
    if (code := subprocess.run(join, cwd=folder, check=False).returncode) != 0:  # noqa: S603 - our own program
        return code
    return _start(folder, _running(given))


def _start(folder: Path, command: Sequence[str]) -> int:
    """Start the agent by systemd, or anew the one that runs; where that fails, this program can be run once more."""
    by_hand = f"cd {folder} && {shlex.join(command)}"
    if not SYSTEMD.exists() or os.geteuid() != 0:
        why = "This account is not root" if SYSTEMD.exists() else "There is no systemd"
        print(f"{why}: start the agent with `{by_hand}`.")  # noqa: T201
        return 0
    try:
        UNIT.write_text(_unit(folder, command))
        for words in (["daemon-reload"], ["enable", UNIT.name], ["restart", UNIT.name]):
            subprocess.run(["systemctl", *words], check=True)  # noqa: S603, S607 - our own words
    except (OSError, subprocess.CalledProcessError) as error:
        remedy = f"run this again when that is mended, or start the agent with `{by_hand}`"
        sys.stderr.write(f"The server has joined, and its agent could not be started ({error}): {remedy}.\n")
        return FAILED
    print("The agent runs: systemctl status motley-agent.")  # noqa: T201
    return 0


def _unit(folder: Path, command: Sequence[str]) -> str:
    """The unit's file. systemd reads names after `%` everywhere, and variables after `$` in commands."""
    here, words = (text.replace("%", "%%") for text in (str(folder), shlex.join(command)))
    return UNIT_TEXT.format(folder=here, command=words.replace("$", "$$"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make this machine a server of a Motley cluster.")
    parser.add_argument("--url", required=True, type=checked_url, help="the service, as https://motley.example.org")
    parser.add_argument("--token-file", type=Path, help="file with the join token; default: $MOTLEY_JOIN_TOKEN")
    parser.add_argument("--check", action="store_true", help="check alone; nothing is written")
    parser.add_argument("--json", action="store_true", help="what was found as JSON")
    parser.add_argument("--address", default="", help="on the network that trainings use; default: that to the service")
    parser.add_argument("--job-user", default="motley-job", help="account of jobs that name none; default motley-job")
    parser.add_argument("--job-uid", type=account_number, help="number of that account where it is created")
    parser.add_argument("--job-path", default="", help="put before the PATH of jobs: where their python is")
    parser.add_argument("--gpus", default="", help="emulated GPUs for a trial, as k80:4")
    parser.add_argument("--prefix", type=Path, default=PREFIX, help=f"folder of the program; default {PREFIX}")
    parser.add_argument("--state", type=Path, default=STATE, help=f"folder of the agent; default {STATE}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
