"""Servers made nodes of the cluster by the system's ssh: all are checked before anything is written on one of them."""

import ipaddress
import json
import shlex
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""Without questions: a host key that is not known is refused."""
TIMEOUT_S = 120
INSTALL_TIMEOUT_S = 600
SSH_FAILED = 255
SYSTEM_NUMBERS = range(100, 1000)
"""Numbers that `useradd --system` gives to accounts."""
TOKEN_FILE = "/run/motley-join-token"  # noqa: S105 - its path


class Found(NamedTuple):
    """What was found on one server."""

    destination: str
    name: str
    uuids: Sequence[str] = ()
    job_uid: int | None = None
    lines: Sequence[str] = ()
    """What is in order."""
    faults: Sequence[str] = ()
    """What is not, each with its remedy."""
    taken: Collection[int] | None = None
    """Numbers of its accounts of the system; None: the service is of 0.2, and its servers are not told a number."""


def name_of(destination: str) -> str:
    """Name of the node: that of the host, without user and domain."""
    host = destination.rpartition("@")[2]
    return host if host.replace(".", "").isdigit() else host.partition(".")[0].lower()


def why_not_from(url: str, destinations: Sequence[str], *, over_http: bool) -> str:
    """Why servers must not run, as root, what they fetch from this address; empty: they may. Pure.

    At an address of loopback each server would ask itself, where any account may listen.
    """
    parts = urlsplit(url)
    is_local = is_loopback(parts.hostname or "")
    remedy = "Run `motley login https://...` with an address that the servers reach."
    if is_local and (far := [one for one in destinations if not is_loopback(one.rpartition("@")[2])]):
        return f"At {url}, {far[0]} would ask itself and not the service, and run what is there as root. {remedy}"
    if parts.scheme == "https" or (is_local and over_http):
        return ""
    trial = " For a trial on this machine alone: --insecure-http." if is_local else ""
    return f"What comes from {url} can be replaced on the way, and the servers would run it as root. {remedy}{trial}"


def is_loopback(host: str) -> bool:
    """Whether the name means the machine on which it is used."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower().rstrip(".").rpartition(".")[2] in ("localhost", "localdomain")
    return address.is_loopback or address.is_unspecified


def look_at(destination: str, url: str, options: Sequence[str]) -> Found:
    """Check a server; nothing is written there."""
    done = _run(destination, _line(url, ["--check", "--json", *options]), timeout_s=TIMEOUT_S)
    return found_in(destination, done)


def found_in(destination: str, done: "subprocess.CompletedProcess[str]") -> Found:
    """What the check said. Pure."""
    name = name_of(destination)
    try:
        told = json.loads(done.stdout)
        checks = told["checks"]
    except (ValueError, KeyError, TypeError):
        return Found(destination, name, faults=[_why_not(destination, done)])
    said = [(one["passed"], f"{one['name']}: {one['said']}") for one in checks]
    lines, faults = ([text for passed, text in said if passed is wanted] for wanted in (True, False))
    return Found(destination, name, tuple(told["uuids"]), told["job_uid"], lines, faults, told.get("taken"))


def faults_among(servers: Sequence[Found], nodes: Collection[str]) -> dict[str, list[str]]:
    """All faults by destination; `nodes` are those that the service has. Pure."""
    names, gpus = Counter(one.name for one in servers), Counter(uuid for one in servers for uuid in one.uuids)
    numbers = Counter(one.job_uid for one in servers if one.job_uid is not None)
    found = {
        one.destination: [*one.faults, *_name_faults(one, names, nodes), *_gpu_faults(one, gpus)] for one in servers
    }
    if len(numbers) > 1:
        usual = numbers.most_common(1)[0][0]
        for one in servers:
            if one.job_uid not in (None, usual):
                text = (
                    f"account: the account of jobs has the number {one.job_uid} here and {usual} on others: give it one"
                )
                found[one.destination].append(
                    f"{text} (usermod -u {usual}), or files on shared storage are not its own."
                )
    number = number_for(servers)
    for one in servers:
        if one.job_uid is None and number in (one.taken or ()):
            found[one.destination].append(
                f"account: the account of jobs is to have the number {number}, as on others, which another account has "
                f"here: give that one another (usermod -u), or name an account with --job-user that all can have."
            )
    return {destination: faults for destination, faults in found.items() if faults}


def number_for(servers: Sequence[Found]) -> int | None:
    """Number of the account of jobs for the servers that have none yet; None where none is to be created. Pure.

    That of the others, or the highest that no account has on any of them, as `useradd --system` takes it on one.
    """
    if all(one.job_uid is not None for one in servers) or any(one.taken is None for one in servers):
        return None
    if known := {one.job_uid for one in servers if one.job_uid is not None}:
        return min(known)
    taken = {number for one in servers for number in one.taken or ()}
    return next((number for number in reversed(SYSTEM_NUMBERS) if number not in taken), None)


def look_again(destination: str, url: str, token: str, options: Sequence[str]) -> Found:
    """Check a server once more, now with its token: the service says whether it may join. Nothing is written there."""
    return found_in(destination, _run_with(token, destination, url, ["--check", "--json", *options], TIMEOUT_S))


def install(destination: str, url: str, token: str, options: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Install the agent."""
    return _run_with(token, destination, url, options, INSTALL_TIMEOUT_S)


def _run_with(
    token: str, destination: str, url: str, options: Sequence[str], timeout_s: float
) -> "subprocess.CompletedProcess[str]":
    """Run the script with a token, which goes through standard input: other users do not see that."""
    run = _line(url, ["--token-file", TOKEN_FILE, *options])
    line = f"trap 'rm -f {TOKEN_FILE}' EXIT; trap 'exit 1' HUP INT TERM; (umask 077; cat > {TOKEN_FILE}) && {run}"
    return _run(destination, line, given=token, timeout_s=timeout_s)


def _name_faults(one: Found, names: Mapping[str, int], nodes: Collection[str]) -> Iterator[str]:
    if names[one.name] > 1:
        yield f"name: {names[one.name]} of these servers are called {one.name}: add them one by one with --name."
    elif one.name in nodes:
        yield f"name: the cluster has a node {one.name} already: choose another with --name."


def _gpu_faults(one: Found, gpus: Mapping[str, int]) -> Iterator[str]:
    if twice := [uuid for uuid in one.uuids if gpus[uuid] > 1]:
        yield f"gpus: another of these servers has {', '.join(twice)}, too: is it the same machine twice?"


def _line(url: str, options: Sequence[str]) -> str:
    """Fetch the script, whole, and run it; the status is that of what failed."""
    only = "--proto '=https' " if url.startswith("https://") else ""
    fetched = f"script=$(curl {only}-fsS {shlex.quote(url)}/agent/install)"
    return f"{fetched} && printf '%s\\n' \"$script\" | sh -s -- {shlex.join(options)}"


def _run(destination: str, line: str, *, timeout_s: float, given: str = "") -> "subprocess.CompletedProcess[str]":
    command = [*SSH, "--", destination, f"exec sh -c {shlex.quote(line)}"]  # the account's own shell may be another
    try:
        return subprocess.run(  # noqa: S603 - the system's ssh, with words of the administrator
            command, input=given, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, SSH_FAILED, "", f"it did not answer within {timeout_s:.0f} s")
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, SSH_FAILED, "", "this machine has no ssh")


def _why_not(destination: str, done: "subprocess.CompletedProcess[str]") -> str:
    """The remedy where the check could not run."""
    said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if "host key" in done.stderr.lower():
        return f"ssh: the host key of {destination} is not known, or is another one: `ssh {destination}` shows it."
    if done.returncode == SSH_FAILED:
        return f"ssh: {destination} is not reached ({said}): try `ssh {destination} true`."
    return said.removeprefix("FAIL ")
