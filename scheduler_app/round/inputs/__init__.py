"""Input rows of a round: their types, and how they are read."""

from scheduler_app.round.inputs.cpu_curves import Gang, MeasuredCurve
from scheduler_app.round.inputs.job_row import DeclaredFor, DeclaredRates, DeclaredSensitivity, JobRow
from scheduler_app.round.inputs.jobs import read_job_rows
from scheduler_app.round.inputs.measured import MeasuredRow, measured_rows, noise_of, read_measured
from scheduler_app.round.inputs.reading import newest_events, read_input_rows
from scheduler_app.round.inputs.rows import AttemptRow, GpuRow, InputRows, NodeRow, TypeQuotaRow, TypeRow

__all__ = [
    "AttemptRow",
    "DeclaredFor",
    "DeclaredRates",
    "DeclaredSensitivity",
    "Gang",
    "GpuRow",
    "InputRows",
    "JobRow",
    "MeasuredCurve",
    "MeasuredRow",
    "NodeRow",
    "TypeQuotaRow",
    "TypeRow",
    "measured_rows",
    "newest_events",
    "noise_of",
    "read_input_rows",
    "read_job_rows",
    "read_measured",
]
