"""Commands of `manage.py` in a process of their own, and a thread of the service that waits for it."""

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import connection


def manage_command(*words: str, niceness: int = 10) -> list[str]:
    """The command line; system checks have been made by the service itself."""
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py"), *words, "--skip-checks"]
    return ["nice", "-n", str(niceness), *manage]


def run_manage(*words: str, at_most: timedelta) -> None:
    """Run a command to its end, without its output; raises OSError or SubprocessError where it does not end well."""
    subprocess.run(  # noqa: S603 - our own program
        manage_command(*words),
        check=True,
        timeout=at_most.total_seconds(),
        cwd=settings.BASE_DIR,
        stdout=subprocess.DEVNULL,
    )


def start_in_a_thread(work: Callable[[], None], *, name: str) -> None:
    """Start the work in a thread that does not keep the service from ending, and close its connection at the end."""

    def whole() -> None:
        try:
            work()
        finally:
            connection.close()

    threading.Thread(target=whole, name=name, daemon=True).start()
