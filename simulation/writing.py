"""The files that a comparison leaves behind."""

import json
from pathlib import Path

from simulation.comparing import Comparison
from simulation.report import report
from simulation.summary import figures_csv, jobs_csv, told_of


def write_comparison(comparison: Comparison, folder: Path, command: str) -> None:
    """Write the report, the figures as JSON and CSV, and a table of all jobs."""
    (folder / "figures.json").write_text(json.dumps(told_of(comparison, command), indent=1) + "\n")
    (folder / "figures.csv").write_text(figures_csv(comparison))
    (folder / "jobs.csv").write_text(jobs_csv(comparison))
    (folder / "report.html").write_text(report(comparison, command))
