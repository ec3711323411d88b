"""Switching to the user of a job: for good, or to access files with its rights."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def switch_to(user: list[int] | None) -> None:
    """Become this user (user id, group id, further groups) for good; None: stay who we are."""
    if user is not None:
        uid, gid, *groups = user
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


@contextmanager
def acting_as(user: list[int] | None) -> Iterator[None]:
    """With the rights of this user on files, of the service that is root; None: with our own."""
    if user is None:
        yield
        return
    uid, gid, *groups = user
    ours, our_group = os.getgroups(), os.getegid()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(our_group)
        os.setgroups(ours)
