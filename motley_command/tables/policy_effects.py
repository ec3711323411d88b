"""Tables of what a policy would do in the next round, and of what came of it since it was chosen."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from motley_client.responses import (
    AppliedPolicy,
    ChosenPolicy,
    Fate,
    LabPolicyPreview,
    PolicyEffect,
    PolicyGuard,
    PolicyPreview,
)
from motley_command.tables.format import Cell, number, table, text, when
from motley_command.tables.lab import FIGURES, figure_cells
from motley_command.tables.scheduling import policy_details

UNITS = {"avg_jct_h": " h", "queueing_h": " h", "wait_h": " h", "utilization": "%"}


def preview_details(preview: PolicyPreview) -> RenderableType:
    """How many jobs start, stop, move and change their GPUs under either policy, and the jobs that differ."""
    rows = [("present", *_counts(preview["present"])), ("this one", *_counts(preview["chosen"]))]
    jobs = [(*_named(one), _fate(one["present"]), _fate(one["chosen"])) for one in preview["listed"]]
    more = preview["differing"] - len(jobs)
    same = "Both rounds do the same with every job."
    return Group(
        table(("NEXT ROUND", "START", "STOP", "MOVE", "CHANGE GPUS"), rows, empty=""),
        Text(""),
        table(("JOB", "NAME", "TEAM", "CURRENT POLICY", "THIS POLICY"), jobs, empty=same),
        *([Text(f"{more} more jobs differ.")] if more > 0 else []),
    )


def lab_preview_details(preview: LabPolicyPreview) -> RenderableType:
    """The same with what the lab predicted, and why that may not hold."""
    predicted = preview["predicted"]
    rows = [
        ("really", *figure_cells(predicted["actual"])),
        (f"{predicted['present_policy']} simulated", *figure_cells(predicted["present"])),
        (f"{predicted['policy']} simulated", *figure_cells(predicted["chosen"])),
    ]
    prediction = table(("POLICY", *FIGURES.values()), rows, empty="")
    return Group(prediction, Text(""), preview_details(preview), *map(text, preview["cautions"]))


def chosen_details(chosen: ChosenPolicy, guard: PolicyGuard, *, now: datetime) -> RenderableType:
    """The current setting and, if it was chosen from a run of the lab, its effects."""
    details = policy_details(chosen, now=now)
    return details if guard["state"] == "none" else Group(details, Text(""), guard_details(guard, now=now))


def applied_details(applied: AppliedPolicy, *, now: datetime) -> RenderableType:
    return Group(policy_details(applied["setting"], now=now), *map(text, applied["cautions"]))


def guard_details(guard: PolicyGuard, *, now: datetime) -> RenderableType:
    """Each measure with its band, and the verdict."""
    headings = ("EFFECT", "JOBS", "SINCE THE CHANGE", "PREDICTED", "EXPECTED", "VERDICT")
    judged = f" (judged {when(guard['judged_at'], now)})" if guard["judged_at"] else ""
    verdict = text(f"{guard['message'] or 'The effects have not been judged yet.'}{judged}")
    return Group(table(headings, [_effect(one) for one in guard["effects"]], empty=""), verdict)


def _effect(effect: PolicyEffect) -> Sequence[Cell]:
    figures = effect["value"], effect["predicted"], effect["low"], effect["high"]
    value, predicted, low, high = (_amount(figure, effect["measure"]) for figure in figures)
    jobs = number(effect["jobs"], "{}")
    return effect["meaning"], jobs, value, predicted, f"{low} to {high}", effect["state"].replace("_", " ")


def _amount(value: float | None, measure: str) -> str:
    if value is None:
        return "-"
    unit = UNITS.get(measure, "")
    return f"{100 * value if unit == '%' else value:.3g}{unit}"


def _counts(deeds: Mapping[str, int]) -> Iterable[str]:
    return (str(deeds[deed]) for deed in ("start", "stop", "move", "resize"))


def _named(one: Mapping[str, object]) -> tuple[str, str, str]:
    return str(one["job"]), str(one["name"] or ""), str(one["team"] or "")


def _fate(fate: Fate) -> str:
    return f"{fate['deed']}: {fate['gpus']} {fate['gpu_type']}" if fate["gpus"] else fate["deed"]
