"""Addresses of targets: parsed and checked by kind, with a form that shows no secret."""

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from jobs_app.errors import InvalidSpec
from jobs_app.models import NotificationTarget
from jobs_app.notifications.address_guard import AddressRefused, literal_address, refuse_private

MOST_CHARACTERS = 1000
SLACK = re.compile(r"\Ahttps://hooks\.slack\.com/services/([A-Za-z0-9]+)/([A-Za-z0-9]+)/([A-Za-z0-9]+)/?\Z")
MAIL = re.compile(r"\A[\w.!#$%&*+/=?^`{|}~-]+@[\w.-]+\Z", re.ASCII)
PLAIN = re.compile(r"\A[\x21-\x7e]+\Z")
Kind = NotificationTarget.Kind


class ParsedAddress(NamedTuple):
    """Address in full, which is encrypted, and the form that is shown."""

    text: str
    shown: str


def parse_address(kind: NotificationTarget.Kind, text: str) -> ParsedAddress:
    """Check the address of a target; raises `InvalidSpec` with the fault and its remedy."""
    if len(text) > MOST_CHARACTERS:
        raise _wrong(f"An address may have at most {MOST_CHARACTERS} characters.")
    return PARSERS[kind](text.strip())


def slack_tokens(address: str) -> tuple[str, str, str]:
    """The three parts of a Slack address, which are secret."""
    found = SLACK.match(address)
    if found is None:
        raise _wrong("Write the address of an incoming webhook of Slack: https://hooks.slack.com/services/T…/B…/…")
    first, second, third = found.groups()
    return first, second, third


def _mail(text: str) -> ParsedAddress:
    if not settings.MOTLEY_MAIL_URL:
        raise _wrong(
            "This site sends no mail: its administrator has to set MOTLEY_MAIL_URL. Choose Slack or a webhook."
        )
    if not is_one_mail_address(text):
        raise _wrong(f"{text!r} is not a mail address: write one, as ada@example.org.")
    domains = settings.MOTLEY_MAIL_DOMAINS
    if domains and text.rpartition("@")[2].lower() not in map(str.lower, domains):
        raise _wrong(f"This site sends mail only to addresses at {', '.join(domains)} (MOTLEY_MAIL_DOMAINS).")
    return ParsedAddress(text, text)


def is_one_mail_address(text: str) -> bool:
    """Whether a mail server reads one address there: in quotes, and with an apostrophe, Apprise finds another one."""
    try:
        validate_email(text)
    except ValidationError:
        return False
    return MAIL.match(text) is not None


def _slack(text: str) -> ParsedAddress:
    slack_tokens(text)
    return ParsedAddress(text, "hooks.slack.com/…")


def _webhook(text: str) -> ParsedAddress:
    url = _split(text)
    host = url.hostname or ""
    _refuse_literal(host, encrypted=url.scheme == "https")
    port = f":{url.port}" if url.port else ""
    return ParsedAddress(text, f"{url.scheme}://{f'[{host}]' if ':' in host else host}{port}/…")


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0 and PLAIN.match(text)
    except ValueError:  # a port or an IPv6 address that is none
        usable = None
    if not usable:
        raise _wrong("Write the address of a webhook, as https://example.org/hook, in ASCII and without spaces.")
    if url.username is not None or url.password is not None:
        raise _wrong("Leave name and password out of the address: messages are signed (docs/notifications.md).")
    return url


def _refuse_literal(host: str, *, encrypted: bool) -> None:
    """Refuse literal addresses that delivery would refuse; names are resolved only at delivery."""
    address = literal_address(host)
    try:
        if address is not None:
            refuse_private(host, [address], settings.MOTLEY_WEBHOOK_NETWORKS, encrypted=encrypted)
        elif not encrypted and not settings.MOTLEY_WEBHOOK_NETWORKS:
            raise AddressRefused("Write https://: this site sends nothing without encryption.")
    except AddressRefused as error:
        raise _wrong(f"{error} An administrator allows networks by MOTLEY_WEBHOOK_NETWORKS.") from error


def _wrong(detail: str) -> InvalidSpec:
    return InvalidSpec.at("/address", "invalid_address", detail)


PARSERS: dict[NotificationTarget.Kind, Callable[[str], ParsedAddress]] = {
    Kind.MAIL: _mail,
    Kind.SLACK: _slack,
    Kind.WEBHOOK: _webhook,
}
