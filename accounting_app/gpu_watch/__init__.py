"""Readings of GPUs by the minute; idle and slow GPUs; data of the pages."""
