"""Python client and training helper of the Motley GPU cluster scheduler."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motley_client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> object:
    """Import `Client` on first use (PEP 562): `motley_client.training` must load without third-party packages."""
    if name == "Client":
        from motley_client.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
