"""Rows that are retired instead of deleted."""

from typing import Self, TypeVar

from django.db import models

Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)


class RetiringQuerySet(models.QuerySet[Row_co]):
    """Rows with a past, which are retired instead of deleted."""

    def current(self) -> Self:
        """Those that are not retired."""
        return self.filter(retired_at=None)


RETIRED_AT = "Since when it is out of use for good, and kept because the history refers to it. Empty: it is in use."
