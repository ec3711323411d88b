"""Comparison of runs: summary, charts, report, timeline."""
