"""First link of a single sign-on identity to an account: revokes all credentials that another person could have set.

Whoever invited a person can have opened the link of the invitation, and knows the password and the tokens then. The
identity provider vouches for one person alone.
"""

from contextlib import suppress

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from audit_app.models import Action
from audit_app.services import note
from jobs_app.errors import JobIsFinished
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.lifecycle.dependencies import PER_TRANSACTION, cancel_queued
from jobs_app.models import Invitation, Job, NotificationTarget, Reason, RecurringJob, Secret, Sweep
from jobs_app.notifications.targets import delete_target
from jobs_app.secrets import delete_secret
from jobs_app.tokens import revoke_tokens_of

LINKED = "Its owner has linked the account to single sign-on."


@transaction.atomic
def clear_for_link(user: User) -> list[str]:
    """Revoke every credential of the account and delete what was prepared in it; returns what was revoked, as text.

    An account that an administrator made or invited keeps its secrets and targets: nobody else has had it.
    """
    is_of_a_lead = _was_invited_by_a_lead(user)
    gone = [*_end_invitation(user), *_end_password(user), *_revoke_tokens(user)]
    if is_of_a_lead:
        gone += _delete_prepared(user)
    note(Action.PERSON_LINK, actor=user, target=user.username, target_id=user.pk, message=_ended(gone))
    return gone


def _was_invited_by_a_lead(user: User) -> bool:
    """Whether a lead invited the person, also if the lead's account has been deleted."""
    return Invitation.objects.filter(user=user).exclude(invited_by__is_staff=True).exists()


def _end_invitation(user: User) -> list[str]:
    """End an open invitation: its maker could renew it, and open it after the link."""
    deleted, _ = Invitation.objects.filter(user=user, used_at=None).delete()
    return ["the open invitation"] if deleted else []


def _end_password(user: User) -> list[str]:
    """End the password, even an unusable one: sessions end with each change of the stored text."""
    had_one = user.has_usable_password()
    user.set_unusable_password()
    user.save(update_fields=["password"])
    return ["the password"] if had_one else []


def _revoke_tokens(user: User) -> list[str]:
    valid = revoke_tokens_of(user)
    return [f"{valid} API token{'s' if valid > 1 else ''}"] if valid else []


def _delete_prepared(user: User) -> list[str]:
    """Delete targets, which would notify somebody else, and secrets, which would use another person's account.

    Jobs that name secrets are cancelled: they would start with those that the person sets from now on. For the same
    reason sweeps are stopped, and recurring jobs are paused, also one that whoever prepared it has paused.
    """
    targets, secrets = NotificationTarget.objects.filter(user=user), Secret.objects.filter(user=user)
    words = ["targets of notifications"] * targets.exists() + ["secrets"] * secrets.exists()
    for target in targets:
        delete_target(target, actor=user)
    for secret in secrets:
        delete_secret(secret, actor=user)
    words += ["jobs with secrets"] * _cancel_jobs_with_secrets(user)
    paused = RecurringJob.objects.filter(owner=user).update(
        paused_at=timezone.now(), paused_because=RecurringJob.OWNER_LINKED
    )
    stopped = Sweep.objects.filter(owner=user, state=Sweep.State.RUNNING).update(
        state=Sweep.State.STOPPING, message=LINKED
    )
    return words + ["recurring jobs"] * bool(paused) + ["sweeps"] * bool(stopped)


def _ended(gone: list[str]) -> str:
    return f"ended: {', '.join(gone)}" if gone else ""


def _cancel_jobs_with_secrets(user: User) -> bool:
    """Cancel the unfinished jobs that name secrets, those that wait in bulk; returns whether there were any."""
    jobs = Job.objects.unfinished().filter(owner=user).exclude(secrets=[]).order_by("pk")
    found = list(jobs.values_list("pk", flat=True))
    for start in range(0, len(found), PER_TRANSACTION):
        cancel_queued(dict.fromkeys(found[start : start + PER_TRANSACTION], LINKED), Reason.CANCELLED_BY_USER)
    for job in jobs:
        with suppress(JobIsFinished):
            cancel_job(job, actor=user, because=LINKED)
    return bool(found)
