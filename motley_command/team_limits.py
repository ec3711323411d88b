"""Quotas and budgets of teams as options: `vision:a100=8:4`, `vision=500/month:hard`, or `…=none`."""

from collections.abc import Iterable
from typing import Any

import typer

QUOTA_FORM = "TEAM:TYPE=GPUS[:BORROWED[:LENT]]"
BUDGET_FORM = "TEAM=GPU-HOURS/PERIOD[:KIND]"
NONE = "none"


def quotas_of(words: Iterable[str]) -> list[dict[str, Any]]:
    """Quotas on GPU types as in REST; `none` is one without GPUs."""
    return [_quota(one) for one in words]


def budgets_of(words: Iterable[str]) -> list[dict[str, Any]]:
    """Budgets as in REST; `none` is one without GPU-hours."""
    return [_budget(one) for one in words]


def _quota(words: str) -> dict[str, Any]:
    place, _, limits = words.rpartition("=")
    team, _, gpu_type = place.rpartition(":")
    gpus, *others = limits.split(":")
    if not team or not gpu_type or len(others) > 2:
        raise _refused("--quota", f"{QUOTA_FORM}, as in vision:a100=8:4 or vision:a100=none")
    borrowed, lent = [*others, "", ""][:2]
    try:
        numbers = {
            "gpus": None if gpus == NONE else int(gpus),
            "borrowing_limit": int(borrowed) if borrowed else None,
            "lending_limit": int(lent) if lent else None,
        }
    except ValueError:
        raise _refused("--quota", f"{QUOTA_FORM}, as in vision:a100=8:4 or vision:a100=none") from None
    return {"team": team, "gpu_type": gpu_type, **numbers}


def _budget(words: str) -> dict[str, Any]:
    team, _, limits = words.rpartition("=")
    if team and limits == NONE:
        return {"team": team, "gpu_hours": None}
    hours, _, when = limits.partition("/")
    period, _, kind = when.partition(":")
    try:
        budget = {"team": team, "gpu_hours": float(hours), "period": period}
    except ValueError:
        raise _refused("--budget", f"{BUDGET_FORM}, as in vision=500/month:hard or vision=none") from None
    if not team or not period:
        raise _refused("--budget", f"{BUDGET_FORM}, as in vision=500/month:hard or vision=none")
    return budget | ({"kind": kind} if kind else {})


def _refused(option: str, form: str) -> typer.BadParameter:
    return typer.BadParameter(f"write {form}", param_hint=option)
