"""Formats of dates in the administration; pages of the service have filters of their own."""
