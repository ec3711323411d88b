"""Policy settings: validate a policy with its parameters, put it in force, and undo that."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from allocation.policies import POLICIES
from allocation.policies.parameters import (
    InvalidParameter,
    Parameter,
    Policy,
    parameters_of,
    read_parameters,
    with_parameters,
)
from audit_app.models import Action
from audit_app.services import note
from scheduler_app.errors import ChangedSince, InvalidChoice, NoSuchPolicy, NothingToUndo
from scheduler_app.models import PolicySetting
from web.rest.errors import Fault, encodable, escaped

Parameters = dict[str, Any]
LONGEST_S = 7 * 86_400
"""Longest round length, and longest minimum run before a preemption."""
LEAST_PART = 0.01
"""Smallest time limit of a decision, as a fraction of the round length."""
KEPT_FIELDS = ("round_length_s", "min_run_s", "solve_limit_part", "cpu_memory")
"""The other fields of a setting; they keep their values when another policy is chosen."""
MOST_NOTE = 300
"""Characters of a note."""
SIMULATED = (
    "is for simulations only, because a GPU of the service belongs to one job at a time. "
    "Leave it out, or try it with `motley simulate run … --policy {policy}:{name}=true`."
)


def validated_parameters(policy: str, given: Mapping[str, Any]) -> Parameters:
    """All parameters of the policy, with defaults for those not given; `InvalidChoice` with every fault."""
    if faults := list(policy_faults(policy, given)):
        raise InvalidChoice(faults)
    known = live_parameters(policy)
    return {name: parameter.read(given.get(name, parameter.default)) for name, parameter in known.items()}


def live_parameters(policy: str) -> dict[str, Parameter]:
    """The policy's parameters that the service supports; some exist for simulations only."""
    known = parameters_of(POLICIES[policy])
    return {name: parameter for name, parameter in known.items() if not parameter.simulated}


def policy_function(name: str, parameters: Mapping[str, Any]) -> Policy:
    """The policy as a function of a problem; `NoSuchPolicy` or `InvalidParameter` if it no longer exists so."""
    if name not in POLICIES:
        raise NoSuchPolicy(name)
    return with_parameters(POLICIES[name], parameters)


def with_defaults(policy: str, chosen: Mapping[str, Any]) -> Parameters:
    """The chosen parameters, with defaults for the others."""
    known = live_parameters(policy) if policy in POLICIES else {}
    return {name: parameter.default for name, parameter in known.items()} | dict(chosen)


def format_parameters(parameters: Mapping[str, Any]) -> str:
    """Format parameters as in `power=-0.5, strict=true, first=old`."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in parameters.items()
    )


def policy_faults(policy: str, given: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for an unknown policy, or for each parameter that is unknown or out of range."""
    if policy not in POLICIES:
        detail = f"There is no policy {policy!r}; there are {', '.join(POLICIES)}."
        yield Fault(pointer="/policy", code="invalid_choice", detail=encodable(detail))
        return
    for name, value in given.items():
        if reason := parameter_fault(policy, name, value):
            yield Fault(pointer=encodable(f"/parameters/{escaped(name)}"), code="invalid", detail=encodable(reason))


def inherited_parameters(
    policy: str, given: Mapping[str, Any] | None, *, before: str, kept: Parameters
) -> Mapping[str, Any]:
    """Parameters where none are given: the current ones for the same policy, the defaults for another."""
    if given is not None:
        return given
    return kept if policy == before else {}


def parameter_fault(policy: object, name: str, value: object) -> str:
    """Why the parameter is refused, and what is accepted; empty if it is valid or the policy is unknown."""
    if not isinstance(policy, str) or policy not in POLICIES:
        return ""
    if name in parameters_of(POLICIES[policy]).keys() - live_parameters(policy).keys():
        return f"{name} {SIMULATED.format(policy=policy, name=name)}"
    try:
        read_parameters(live_parameters(policy), {name: value})
    except InvalidParameter as error:
        return f"{name} {_sentence(error.reason)}"
    return ""


def _sentence(reason: str) -> str:
    """`unknown; this policy has p` becomes "is unknown: …"."""
    kind, _, known = reason.partition("; ")
    return f"is {kind}: {known}." if known else f"{reason}."


def lock_settings() -> PolicySetting:
    """The current setting, which nobody else changes before the transaction ends.

    The lock is that of the oldest row, which stays the same: of those who wait for the newest, some would wait for the
    one after it.
    """
    list(PolicySetting.objects.select_for_update().order_by("id").values_list("pk")[:1])
    return PolicySetting.objects.select_related("created_by").current()


@transaction.atomic
def choose_policy(
    setting: PolicySetting, *, actor: User | None, action: Action = Action.POLICY_CHOOSE
) -> PolicySetting:
    """Put the policy in force as a new row; `InvalidChoice` with every fault. The old row stays as history."""
    setting.parameters = validated_parameters(setting.policy, setting.parameters)
    lock_settings()
    message = "; ".join(filter(None, (format_parameters(setting.parameters), setting.note)))
    setting.pk, setting.created_by, setting.created_at = None, actor, timezone.now()
    setting.save(force_insert=True)
    note(action, actor=actor, target=setting.policy, target_id=setting.pk, message=message)
    return setting


def restore_policy(setting: PolicySetting, *, actor: User | None) -> PolicySetting:
    """Put a past setting in force again. `InvalidChoice` if the policy or a parameter no longer exists."""
    setting.note = f"back to the setting of {setting.created_at:%F %H:%M} UTC"
    return choose_policy(setting, actor=actor)


@transaction.atomic
def undo_choice(chosen: PolicySetting, *, actor: User | None, note: str = "") -> PolicySetting:
    """Put the setting before `chosen` in force.

    Raise `ChangedSince` if `chosen` is not in force any more, `NothingToUndo` if there was none before it.
    """
    current = lock_settings()
    if current.pk != chosen.pk:
        raise ChangedSince(current)
    earlier = PolicySetting.objects.filter(pk__lt=chosen.pk).order_by("-pk")
    if (before := earlier.first() or setting_before_the_first(chosen)) is None:
        raise NothingToUndo
    undone = f"undo of {chosen.policy} of {chosen.created_at:%F %H:%M} UTC"
    again = PolicySetting(
        policy=before.policy,
        parameters=before.parameters,
        note="; ".join(filter(None, (undone, note)))[:MOST_NOTE],
        **{name: getattr(before, name) for name in KEPT_FIELDS},
    )
    return choose_policy(again, actor=actor, action=Action.POLICY_UNDO)


def setting_before_the_first(first: PolicySetting) -> PolicySetting | None:
    """The defaults, if a person chose the first setting; None: the service began with it."""
    return PolicySetting() if first.created_by_id else None
