"""Writing down who did what."""

from django.contrib.auth.base_user import AbstractBaseUser
from structlog.contextvars import get_contextvars

from audit_app.models import AuditEntry


def note(
    action: str, *, actor: AbstractBaseUser | None, target: str = "", target_id: object = "", message: str = ""
) -> None:
    """One line of the audit list; inside the caller's transaction, so that what was undone is not listed.

    The door and the request's id come from the request at hand, if there is one.
    """
    request = get_contextvars()
    AuditEntry.objects.create(
        actor_id=actor.pk if actor else None,
        actor_name=actor.get_username() if actor else "",
        door=request.get("door", AuditEntry.Door.SERVICE),
        action=action,
        target=target[:200],
        target_id=str(target_id)[:64],
        message=message[:500],
        request_id=str(request.get("request_id", ""))[:64],
    )
