"""Readings of GPUs: kept by the minute, GPUs that are idle or used by nobody's processes, and what pages show."""
