"""Validators of columns that several models share."""

from zoneinfo import available_timezones

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator

name_is_plain = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z", "Use lower-case letters, digits, '.', '_' and '-'; start with a letter or a digit."
)


def zone_is_known(name: str) -> None:
    if name not in available_timezones():
        raise ValidationError(
            "%(name)s is no time zone of the tz database, such as Europe/Berlin.", params={"name": name}
        )
