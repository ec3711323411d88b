"""The embedded mode's secret key: made once, kept in a file that only the service can read."""

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key


def read_or_create(path: Path) -> str:
    """The key in the file; the first process to ask makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        _create(path)
    return path.read_text()


def _create(path: Path) -> None:
    """Write aside and link: a second process that comes at the same moment sees a whole key or none."""
    draft = path.with_suffix(f".{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(get_random_secret_key())
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
