"""Notifications, sent by a thread beside the rounds."""

import logging
import threading
from datetime import datetime, timedelta
from time import monotonic

from django.db import close_old_connections, connection
from django.utils import timezone

from insight_app.late_start_notifications import announce_late_starts
from jobs_app.failure_notifications import announce_failed_shares
from jobs_app.models import Notification
from jobs_app.notifications.sending import send_due

log = logging.getLogger(__name__)
POLL_INTERVAL = timedelta(minutes=1)


class Sender:
    """Detects late starts and failing teams once a minute, and sends due notifications; one thread at a time."""

    def __init__(self) -> None:
        self._polled_at = float("-inf")
        self._thread: threading.Thread | None = None

    def work(self, now: datetime) -> None:
        """Start the thread if there is work and it does not run; returns at once."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._is_time_to_look() or Notification.objects.due(now).exists():
            self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
            self._thread.start()

    def _is_time_to_look(self) -> bool:
        return monotonic() - self._polled_at >= POLL_INTERVAL.total_seconds()

    def _run(self) -> None:
        close_old_connections()
        try:
            if self._is_time_to_look():
                self._polled_at = monotonic()
                look(timezone.now())
            send_due(timezone.now())
        except Exception:  # the next turn tries again
            log.exception("notifications could not be sent")
        finally:
            connection.close()  # of this thread


SENDER = Sender()


def look(now: datetime) -> None:
    """Write notifications of events that belong to no transaction: late starts and shares of failed jobs."""
    announce_late_starts(now)
    announce_failed_shares(now)
