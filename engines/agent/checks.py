"""Checks of a server before anything is written on it: what is there, and what to do about what is not."""

import email.utils
import os
import pwd
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypedDict

from engines.accounts import ACCOUNT_NAME
from engines.agent.kept_connection import tls_terms
from engines.agent.machine import EmulatedGpus
from engines.agent.network import interfaces, is_loopback, source_address
from engines.attempt_files import read_json
from engines.nvml import this_machine
from engines.protocol import NodeReport

LEAST_FREE_GIB = 5.0
MOST_CLOCK_S = 60.0
TIMEOUT_S = 10.0
GIB = 1 << 30
SYSTEM_NUMBERS = range(100, 1000)
"""Numbers that `useradd --system` gives to accounts."""


class Asked(NamedTuple):
    """What the administrator asked for."""

    url: str
    address: str
    job_user: str
    emulated: str
    state: Path
    prefix: Path = Path("/opt/motley-agent")


class Facts(NamedTuple):
    """What was found on the server."""

    gpu_type: str
    uuids: tuple[str, ...]
    faulty: Mapping[str, str]
    """UUID of a GPU -> what its driver says is wrong."""
    no_answer: str
    """Why the service does not answer; empty: it does."""
    clock_s: float
    """By how much our clock is ahead of the service's."""
    address: str
    own_addresses: frozenset[str]
    free_gib: float
    is_root: bool
    job_uid: int | None
    """Number of the account of jobs; None: it is still to be created."""
    joined_url: str | None
    """The service that this server has joined already; None: none."""
    closed: tuple[Path, ...] = ()
    """Folders of the installation in which we may not write."""

    def has_joined(self, url: str) -> bool:
        """Whether it is a server of this service, whose agent is updated."""
        return self.joined_url is not None and self.joined_url.rstrip("/") == url.rstrip("/")


class Check(TypedDict):
    """One line for the administrator."""

    name: str
    passed: bool
    said: str


def facts_of(asked: Asked) -> Facts:
    """Look at this machine, and ask the service for its time. Nothing is written."""
    return facts_with(this_machine() if not asked.emulated else None, asked)


def facts_with(found: NodeReport | None, asked: Asked) -> Facts:
    """The facts with these GPUs of the driver."""
    no_answer, clock_s = _clock_against(asked.url)
    return Facts(
        gpu_type=found.gpu_type if found is not None else asked.emulated.partition(":")[0],
        uuids=tuple(gpu.uuid for gpu in found.gpus) if found is not None else (),
        faulty={gpu.uuid: gpu.fault for gpu in found.gpus if gpu.fault} if found is not None else {},
        no_answer=no_answer,
        clock_s=clock_s,
        address=asked.address or source_address(asked.url),
        own_addresses=frozenset(interfaces()),
        free_gib=_free_gib(asked.state),
        is_root=os.geteuid() == 0,
        job_uid=uid_of(asked.job_user),
        joined_url=_joined_url(asked.state),
        closed=tuple(one for one in (asked.prefix, asked.state) if not os.access(_nearest(one), os.W_OK | os.X_OK)),
    )


def checks_of(asked: Asked, facts: Facts) -> Iterator[Check]:
    """What was found, and the remedy of what is wrong; an update leaves GPUs, address and account as they are. Pure."""
    is_update = facts.has_joined(asked.url)
    if facts.joined_url is not None:
        yield _joined(asked, facts)
    if not is_update:
        yield _gpus(asked, facts)
    if facts.no_answer:
        said = f"The service does not answer at {asked.url} ({facts.no_answer})"
        yield Check(name="service", passed=False, said=f"{said}: check its name, the route and its certificate.")
    else:
        yield Check(name="service", passed=True, said=f"{asked.url} answers.")
        yield _clock(facts)
    if not is_update:
        yield _address(asked, facts)
    enough = facts.free_gib >= LEAST_FREE_GIB
    more = "" if enough else f": it needs {LEAST_FREE_GIB:.0f} GiB; free some, or name another folder with --state"
    yield Check(name="disk", passed=enough, said=f"{facts.free_gib:.0f} GiB are free at {asked.state}{more}.")
    if not is_update:
        yield _account(asked, facts)


def _joined(asked: Asked, facts: Facts) -> Check:
    anew = f"revoke its agent there, end it here (systemctl stop motley-agent), and remove {asked.state}/identity.json"
    if facts.has_joined(asked.url):
        said = f"It has joined {asked.url}: its agent is updated, with the options of before. To join anew: {anew}."
        return Check(name="joined", passed=True, said=said)
    where = facts.joined_url or "a service"
    return Check(name="joined", passed=False, said=f"This server has joined {where} already: {anew}.")


def _gpus(asked: Asked, facts: Facts) -> Check:
    if asked.emulated:
        try:
            EmulatedGpus.of(asked.emulated)
        except ValueError as error:
            return Check(name="gpus", passed=False, said=f"--gpus: {error}")
        return Check(name="gpus", passed=True, said=f"{asked.emulated} are emulated: a trial.")
    if not facts.uuids:
        said = "No driver answers: install NVIDIA's, so that nvidia-smi lists the GPUs. For a trial: --gpus k80:4."
        return Check(name="gpus", passed=False, said=said)
    if facts.faulty:
        said = "; ".join(f"{uuid}: {fault}" for uuid, fault in facts.faulty.items())
        return Check(name="gpus", passed=False, said=f"{said}. Repair or remove it first.")
    return Check(name="gpus", passed=True, said=f"{len(facts.uuids)} x {facts.gpu_type}.")


def _clock(facts: Facts) -> Check:
    ahead = facts.clock_s > 0
    off = f"{abs(facts.clock_s):.0f} s {'ahead of' if ahead else 'behind'} the service"
    if abs(facts.clock_s) > MOST_CLOCK_S:
        return Check(name="clock", passed=False, said=f"The clock is {off}: set it by NTP (timedatectl set-ntp true).")
    return Check(name="clock", passed=True, said=f"The clock is {off}.")


def _address(asked: Asked, facts: Facts) -> Check:
    others = ", ".join(sorted(one for one in facts.own_addresses if not is_loopback(one)))
    if not facts.address:
        return Check(name="address", passed=False, said="No address was found: name one with --address.")
    if is_loopback(facts.address) and not asked.address:
        said = f"It reaches the service at {facts.address}, where no other server reaches it: name one with --address"
        return Check(name="address", passed=False, said=f"{said}, as {others}." if others else f"{said}.")
    if facts.address not in facts.own_addresses and not is_loopback(facts.address):
        said = f"No interface has the address {facts.address}: name one of {others} with --address."
        return Check(name="address", passed=False, said=said)
    return Check(name="address", passed=True, said=f"Trainings reach it at {facts.address}.")


def _account(asked: Asked, facts: Facts) -> Check:
    if fault := _account_fault(asked, facts):
        return Check(name="account", passed=False, said=fault)
    if not facts.is_root:
        said = "It is not root: jobs of all teams run as this account, and nothing separates them."
        return Check(name="account", passed=True, said=said)
    what = f"has the number {facts.job_uid}" if facts.job_uid is not None else "is created"
    return Check(name="account", passed=True, said=f"The account {asked.job_user} of jobs {what}.")


def _account_fault(asked: Asked, facts: Facts) -> str:
    """Why this account may not install, or that of jobs may not run them; empty: they may."""
    if facts.closed:
        folders = " and ".join(map(str, facts.closed))
        remedy = "is the disk read-only?" if facts.is_root else "log in as root (root@HOST)"
        return f"This account may not write to {folders}: {remedy}, or name others with --prefix and --state."
    if facts.is_root and facts.job_uid == 0:
        return f"Jobs cannot run as {asked.job_user}, which is root: choose another with --job-user."
    if facts.is_root and facts.job_uid is None and not ACCOUNT_NAME.fullmatch(asked.job_user):
        said = f"{asked.job_user!r} is not a valid user name"
        return f"{said}: use lower-case letters, digits, - and _ for --job-user."
    return ""


def number_check(asked: Asked, facts: Facts, number: int | None) -> Iterator[Check]:
    """What is wrong where the account of jobs is to be created with this number, which another one has."""
    if number is None or facts.job_uid is not None or not facts.is_root:
        return
    with suppress(KeyError):
        owner = pwd.getpwuid(number).pw_name
        said = f"The account {asked.job_user} of jobs is to have the number {number}, as on the other servers"
        remedy = f"give {owner} another (usermod -u), or name an account with --job-user that all servers can have"
        yield Check(name="account", passed=False, said=f"{said}, and {owner} has it here: {remedy}.")


def system_numbers() -> list[int]:
    """Numbers of accounts of the system that are taken here, as far as they can be listed."""
    return sorted({one.pw_uid for one in pwd.getpwall()} & {*SYSTEM_NUMBERS})


def _clock_against(url: str) -> tuple[str, float]:
    """Why the service does not answer, and by how much our clock is ahead of it (half the way there taken off)."""
    began_s = time.time()
    try:
        asks = urllib.request.urlopen(f"{url}/livez", timeout=TIMEOUT_S, context=tls_terms())  # noqa: S310 - `checked_url`
        with asks as answer:
            said = answer.headers["Date"]
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return str(reason), 0.0
    there_s = email.utils.parsedate_to_datetime(said).timestamp() if said else began_s
    return "", (began_s + time.time()) / 2 - there_s


def _joined_url(state: Path) -> str | None:
    try:
        found = read_json(state / "identity.json")
    except (OSError, ValueError):  # it is there, and not ours to read
        return ""
    return None if found is None else str(found.get("url", ""))


def _free_gib(folder: Path) -> float:
    return shutil.disk_usage(_nearest(folder)).free / GIB


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    while not _is_there(folder):
        folder = folder.parent
    return folder


def _is_there(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where we may not look


def uid_of(account: str) -> int | None:
    with suppress(KeyError):
        return pwd.getpwnam(account).pw_uid if account else None
    return None


def host_name() -> str:
    """Name of this machine without its domain."""
    return socket.gethostname().partition(".")[0].lower()
