"""Writing to the audit list."""

from django.contrib.auth.base_user import AbstractBaseUser
from structlog.contextvars import get_contextvars

from audit_app.models import AuditEntry


def note(
    action: str, *, actor: AbstractBaseUser | None, target: str = "", target_id: object = "", message: str = ""
) -> None:
    """Insert an audit entry in the caller's transaction, so that a rollback removes it, too.

    Entry point and request id are those of the current request, if there is one.
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
