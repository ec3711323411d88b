"""Undo of a policy choice: the setting before it is put in force again, unless another has been chosen since."""

from django.contrib.auth.models import User
from django.db import transaction

from audit_app.models import Action
from scheduler_app.errors import ChangedSince
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import KEPT_FIELDS, choose_policy, lock_settings

MOST_NOTE = 300


@transaction.atomic
def undo_choice(chosen: PolicySetting, *, actor: User | None, note: str = "") -> PolicySetting:
    """Put the setting before `chosen` in force; `ChangedSince` if `chosen` is not in force any more."""
    current = lock_settings()
    if current.pk != chosen.pk:
        raise ChangedSince(current)
    before = setting_before(chosen)
    undone = f"undo of {chosen.policy} of {chosen.created_at:%F %H:%M}"
    again = PolicySetting(
        policy=before.policy,
        parameters=before.parameters,
        note="; ".join(filter(None, (undone, note)))[:MOST_NOTE],
        **{name: getattr(before, name) for name in KEPT_FIELDS},
    )
    return choose_policy(again, actor=actor, action=Action.POLICY_UNDO)


def setting_before(chosen: PolicySetting) -> PolicySetting:
    """The setting that was in force before; the defaults, if there was none."""
    before = PolicySetting.objects.filter(pk__lt=chosen.pk).order_by("-pk").first() if chosen.pk else None
    return before or PolicySetting()
