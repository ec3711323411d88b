"""Unix accounts of jobs, for a service that runs as root: one for each team, or one for all."""

import hashlib
import os
import pwd
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engines.protocol import EngineError

TEAM = "{team}"
"""What the team's name takes the place of in the name of an account."""
NO_TEAM = "job"
ACCOUNT_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
LONGEST_NAME = 32
ADMIN_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DIGEST_LENGTH = 6
TAKEN = re.compile(rf"{NO_TEAM}|.*-[0-9a-f]{{{DIGEST_LENGTH}}}")
"""Names that a team without a digest in its own could share with another."""


def account_name(pattern: str, team: str | None = None) -> str:
    """Name of the account of a team's jobs: `pattern` with the team's name, or with "job" for what no team runs.

    A name that must be changed for that, since accounts have lower-case letters, digits and "-" only and 32 characters
    at most, gets a part of its SHA-256, so that no two teams share an account.
    """
    longest = LONGEST_NAME - len(pattern.replace(TEAM, ""))
    return pattern.replace(TEAM, NO_TEAM if team is None else _short_name(team, longest))


def _short_name(team: str, longest: int) -> str:
    plain = re.sub(r"[^a-z0-9-]+", "-", team.lower())
    if plain == team and len(plain) <= longest and not TAKEN.fullmatch(plain):
        return plain
    digest = hashlib.sha256(team.encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{plain[: max(longest - DIGEST_LENGTH - 1, 0)]}-{digest}"


def ensure_account(name: str, *, uid: int | None = None) -> None:
    """Create the system user, without home and login, if it does not exist; with this number where one is given."""
    if _exists(name):
        return
    if not ACCOUNT_NAME.fullmatch(name):
        raise EngineError(f"{name!r} is not a valid user name: use lower-case letters, digits, - and _.")
    options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    options += ["--uid", str(uid)] if uid is not None else []
    command = ["useradd", *options, "--shell", "/usr/sbin/nologin", name]
    try:
        subprocess.run(command, env={"PATH": ADMIN_PATH}, capture_output=True, text=True, check=True)  # noqa: S603 - a name of letters and digits
    except (OSError, subprocess.CalledProcessError) as error:
        if not _exists(name):  # created by another process meanwhile
            words = str(getattr(error, "stderr", "") or error).strip()[-500:]
            raise EngineError(f"The user {name} could not be created: create it by hand. {words}") from error


def reachable_by(path: Path, user: str) -> bool:
    """Whether the user, with only its own group, may traverse every folder on this path and enter it."""
    account = pwd.getpwnam(user)
    return all(_may_enter(place, account) for place in _on_the_way(path.absolute()))


@dataclass(frozen=True)
class Account:
    """Account of a job on every node."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """The other groups that it is in."""

    @classmethod
    def of(cls, entry: pwd.struct_passwd) -> "Account":
        if entry.pw_uid == 0:
            raise EngineError(f"Jobs cannot run as {entry.pw_name}, which is root: choose another account.")
        groups = set(os.getgrouplist(entry.pw_name, entry.pw_gid)) - {entry.pw_gid}
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(sorted(groups)))

    @property
    def ids(self) -> list[int]:
        """User id, group id, and the other groups."""
        return [self.uid, self.gid, *self.groups]


@dataclass(frozen=True)
class Accounts:
    """The accounts that an engine runs jobs as, below its folder `root`.

    `default` is for launches that name none; None, or a service that is not root, leaves jobs the service's account.
    With `create`, accounts that this machine lacks are created.
    """

    root: Path
    default: str | None = None
    create: bool = False

    def check(self) -> None:
        """Raise `EngineError` if jobs cannot run as the default account."""
        self.for_launch("")

    def for_launch(self, name: str, *, home: Path | None = None) -> Account | None:
        """Account of a launch that names one.

        A job keeps the account that owns `home`, the working folder of its earlier attempts: no setting that has
        changed since shall lock it out of its own files.
        """
        if self.default is None or os.geteuid() != 0:
            return None
        owner = home.stat().st_uid if home is not None and home.exists() else 0
        return _account(owner, name or self.default, self.root, self.create)


@cache
def _account(owner: int, name: str, root: Path, create: bool) -> Account:
    """Account by the owner of a folder, unless that is root, else by name. Only what succeeds is remembered."""
    account = Account.of(_by_number(owner) if owner else _by_name(name, create))
    if not reachable_by(root, account.name):
        raise EngineError(
            f"The user {account.name} cannot reach {root}: choose a folder outside private ones, such as "
            "/var/lib/motley, or let others pass through (chmod o+x)."
        )
    return account


def _by_name(name: str, create: bool) -> pwd.struct_passwd:
    if create:
        ensure_account(name)
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise EngineError(
            f"There is no user {name} on this machine: create it, on all nodes of a cluster with the same number, or "
            "configure another."
        ) from None


def _by_number(owner: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(owner)
    except KeyError:
        raise EngineError(
            f"The user {owner}, to whom the job's folder belongs, does not exist any more: create it again, or submit "
            "the job again."
        ) from None


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _on_the_way(path: Path) -> Iterator[Path]:
    """Every path that the kernel resolves: a link may lead through a private folder to a public file."""
    if path != path.parent:
        yield from _on_the_way(path.parent)
    yield path  # before its target: in a cycle of links the first one is refused already
    if os.path.islink(path):  # noqa: PTH114 - Path.is_symlink raises where we may not look
        yield from _on_the_way(path.parent / path.readlink())


def _may_enter(place: Path, account: pwd.struct_passwd) -> bool:
    if account.pw_uid == 0:
        return place.exists()
    try:
        status = place.stat()
    except OSError:
        return False
    if status.st_uid == account.pw_uid:
        needed = stat.S_IXUSR
    elif status.st_gid == account.pw_gid:
        needed = stat.S_IXGRP
    else:
        needed = stat.S_IXOTH
    return bool(status.st_mode & needed)
