"""Settings that are generated, read from a file or checked at start-up: secret key, secrets, OpenID Connect issuer."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key

from engines.linux import sync

ON_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def read_or_create(path: Path) -> str:
    """Read the secret key of the embedded mode from a file of the service alone; the first process creates it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _create(path)
    return path.read_text()


def _create(path: Path) -> None:
    """Create the file atomically by a hard link: neither a concurrent process nor a power cut sees a partial key."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(get_random_secret_key())
    sync(draft)
    try:
        path.hardlink_to(draft)
        sync(path.parent)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def is_issuer(text: str) -> None:
    """Refuse an address without TLS: whoever can change what is sent could log in as anybody."""
    url = urlsplit(text)
    if text and url.scheme != "https" and not (url.scheme == "http" and url.hostname in ON_THIS_MACHINE):
        raise ImproperlyConfigured(f"MOTLEY_OIDC_ISSUER is {text!r}: write the https:// address of the provider.")


def text_of_file(path: str) -> str:
    """What the file has, without the line's end; empty if there is no path."""
    return Path(path).read_text().strip() if path else ""
