"""Values of the settings of login: the address of an identity provider, and a secret that a file has."""

from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def is_issuer(text: str) -> None:
    """Refuse an address without TLS: whoever can change what is sent could log in as anybody."""
    url = urlsplit(text)
    if text and url.scheme != "https" and not (url.scheme == "http" and url.hostname in ON_THIS_MACHINE):
        raise ImproperlyConfigured(f"MOTLEY_OIDC_ISSUER is {text!r}: write the https:// address of the provider.")


def text_of_file(path: str) -> str:
    """What the file has, without the line's end; empty if there is no path."""
    return Path(path).read_text().strip() if path else ""
