"""Time up to which the ledgers are complete."""

from datetime import datetime

from django.db import models


class LedgerCoverage(models.Model):
    """End of the time that the ledgers cover: one row, written in the transaction of a round."""

    until = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="ledger_coverage_one_row")]

    def __str__(self) -> str:
        return f"ledgers until {self.until:%F %T}"

    @classmethod
    def covered_until(cls) -> datetime | None:
        """End of the covered time; None before the first round."""
        return cls.objects.filter(pk=1).values_list("until", flat=True).first()

    @classmethod
    def extend(cls, now: datetime) -> None:
        """Record that the ledgers reach to now."""
        cls.objects.update_or_create(pk=1, defaults={"until": now})
