"""A round: read, decide, write; policy settings, time windows, leases."""
