"""Logs of jobs: reading, and server-sent events."""
