"""Validators of columns that several models share."""

from functools import cache
from zoneinfo import available_timezones

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator

name_is_plain = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z", "Use lower-case letters, digits, '.', '_' and '-'; start with a letter or a digit."
)


@cache
def time_zones() -> frozenset[str]:
    """Names of the tz database; to look for them in its files takes longer than to check the rest of a node's row."""
    return frozenset(available_timezones())


def zone_is_known(name: str) -> None:
    if name not in time_zones():
        raise ValidationError(
            "%(name)s is no time zone of the tz database, such as Europe/Berlin.", params={"name": name}
        )
