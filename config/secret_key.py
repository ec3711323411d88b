"""Secret key of the embedded mode: generated once, stored in a file that only the service can read."""

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key

from engines.linux import sync


def read_or_create(path: Path) -> str:
    """Read the key; the first process creates it."""
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
