"""Stable numbers in place of names: a keyed hash, so that nobody without the service's key can try names."""

from django.utils.crypto import salted_hmac

DIGITS = 12


def numbered(kind: str, name: str) -> str:
    """The kind and a number that is the same in each export of this service: team-402615529317."""
    number = int.from_bytes(salted_hmac("motley.history", f"{kind} {name}", algorithm="sha256").digest()[:8])
    return f"{kind}-{number % 10**DIGITS:0{DIGITS}}"
