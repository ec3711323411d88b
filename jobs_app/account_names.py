"""Names of accounts: one name whatever its case and form, and names that only administrators give away."""

from django.contrib.auth.models import User

RESERVED = frozenset(
    {
        "admin",
        "administrator",
        "anonymous",
        "daemon",
        "motley",
        "nobody",
        "operator",
        "root",
        "staff",
        "support",
        "system",
    }
)
"""Names that read as those of the service, the host or its administrators."""


def normal_name(username: str) -> str:
    """The name in Unicode's form NFKC, in which letters of another width are the usual ones."""
    return str(User.normalize_username(username.strip()))


def names_in_use() -> dict[str, str]:
    """Name of each account by its form without case: SQLite knows upper and lower case of ASCII letters only."""
    names = User.objects.order_by().values_list("username", flat=True)
    return {normal_name(name).casefold(): name for name in names.iterator()}


def same_name(username: str) -> str | None:
    """The name of the account that has this one, whatever the case of its letters; None: it is free."""
    return names_in_use().get(normal_name(username).casefold())


def is_reserved(username: str) -> bool:
    return normal_name(username).casefold() in RESERVED
