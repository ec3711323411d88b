"""Loaded by Python at the start of each process that has this folder on PYTHONPATH: what campaigns do to its inside."""

import chaos_clock  # type: ignore[import-not-found]  # beside this file
import chaos_statements  # type: ignore[import-not-found]

chaos_clock.install()
chaos_statements.install()
