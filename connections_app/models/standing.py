"""Standing of a machine that joined, and what each may: one table, which docs/servers.md shows."""

from typing import NamedTuple

from django.db import models


class Standing(models.TextChoices):
    """Whose machine it is. An administrator decides it with the join token; no message of the machine changes it."""

    VOLUNTEER = "volunteer", "a volunteer's machine"
    TRUSTED = "trusted", "a volunteer's machine that is trusted"
    SERVER = "server", "a server of the site"

    @classmethod
    def of(cls, *, site: bool, trusted: bool) -> "Standing":
        if site:
            return cls.SERVER
        return cls.TRUSTED if trusted else cls.VOLUNTEER


class Rights(NamedTuple):
    """What the agent of a machine may be given."""

    gangs: bool
    """Ranks of gangs over several machines."""
    storage: bool
    """Jobs with a `workdir`, which lies on a file system of the site."""
    accounts: bool
    """The account of the job's team (`MOTLEY_JOB_USER`)."""
    sessions: bool
    """Shells, commands and ports in a running rank, over a connection that the agent opens."""
    secrets: bool


RIGHTS: dict[Standing, Rights] = {
    Standing.VOLUNTEER: Rights(gangs=False, storage=False, accounts=False, sessions=False, secrets=False),
    Standing.TRUSTED: Rights(gangs=False, storage=False, accounts=False, sessions=False, secrets=True),
    Standing.SERVER: Rights(gangs=True, storage=True, accounts=True, sessions=True, secrets=True),
}
