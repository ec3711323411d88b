"""Jobs over REST."""

from jobs_app.api.seen import jobs_seen_by

__all__ = ["jobs_seen_by"]
