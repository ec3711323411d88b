"""The model of durations of each night: fitted by a process of its own, stored with its card, read by rounds and pages.

The service's loops never load scikit-learn: a command fits (`manage.py fitdurations`), and what it stores are numbers.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Self

from django.conf import settings
from django.db import transaction

from accounting_app.durations.duration_history import OBSERVED, EndedJob, observations, submission_of
from accounting_app.models import DurationModel
from estimation.accuracy import Accuracy
from estimation.boosted_durations import (
    FEWEST_JOBS,
    MOST_LEARNED,
    BoostedDurations,
    Comparison,
    ModelCard,
    fit_durations,
)
from estimation.duration_features import FEATURES_VERSION, EndedSubmission
from estimation.durations import Basis
from estimation.gradient_boosting import QuantileTrees

log = logging.getLogger(__name__)

NIGHT = timedelta(hours=3)
"""After midnight, UTC."""
LONGEST_FIT = timedelta(minutes=10)
MOST_KEPT = 30
"""Cards; of models only the newest is kept."""
TOO_FEW = f"Fewer than {FEWEST_JOBS} jobs have ended from which a model can learn."


# -- when ----------------------------------------------------------------------------------------------------------


def fit_when_due(now: datetime) -> None:
    """Start a fit in a process of its own, once each night, as soon as enough jobs have ended."""
    if claim_fit(now):
        threading.Thread(target=_fit_in_a_process, name="fit of durations", daemon=True).start()


def claim_fit(now: datetime) -> bool:
    """Whether this night's fit is due; claims it, so that one process fits."""
    day = _night_of(now)
    if DurationModel.objects.filter(pk=day).exists() or not _enough_have_ended():
        return False
    return DurationModel.objects.get_or_create(pk=day)[1]


def _night_of(now: datetime) -> date:
    return (now - NIGHT).date()


def _enough_have_ended() -> bool:
    return observations()[FEWEST_JOBS:].exists()


def _fit_in_a_process() -> None:
    command = ["nice", sys.executable, str(settings.BASE_DIR / "manage.py"), "fitdurations", "--skip-checks"]
    at_most_s, nowhere = LONGEST_FIT.total_seconds(), subprocess.DEVNULL
    try:
        subprocess.run(command, check=True, timeout=at_most_s, cwd=settings.BASE_DIR, stdout=nowhere)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        log.exception("the model of durations was not fitted; the next night tries again")


# -- fit -----------------------------------------------------------------------------------------------------------


def fit_model(now: datetime) -> DurationModel:
    """Fit and store the model of this night; where that fails, the row says why, and nothing else changes."""
    row, _ = DurationModel.objects.get_or_create(pk=_night_of(now))
    try:
        fitted = fit_durations(_ended_submissions())
    except Exception as error:  # whatever scikit-learn raises: estimates go on without a model
        log.exception("the fit of the model of durations failed")
        return _store_failure(row, f"{type(error).__name__}: {error}")
    return _store(row, *fitted, now) if fitted else _store_failure(row, TOO_FEW)


def _ended_submissions() -> list[EndedSubmission]:
    """The jobs that succeeded last, up to ten times as many as a round reads."""
    rows = observations().values_list("ended_at", *OBSERVED)[:MOST_LEARNED]
    jobs = ((ended_at, EndedJob(*columns)) for ended_at, *columns in rows)
    return [EndedSubmission(submission_of(job), ended_at, job.seconds) for ended_at, job in jobs]


def _store_failure(row: DurationModel, message: str) -> DurationModel:
    row.message = message[:500]
    row.save(update_fields=["message"])
    return row


@transaction.atomic
def _store(row: DurationModel, model: BoostedDurations, card: ModelCard, now: datetime) -> DurationModel:
    """Store the model in place of the last one, and drop the oldest cards."""
    row.fitted_at, row.jobs, row.trees, row.message = now, card.jobs, model.trees.to_bytes(), ""
    row.features_version = FEATURES_VERSION
    row.comparisons = [_as_json(one) for one in card.comparisons]
    log.info("the model of durations was fitted to %s jobs", card.jobs)
    row.save()
    DurationModel.objects.exclude(pk=row.pk).exclude(trees=None).update(trees=None)
    kept = DurationModel.objects.values_list("pk", flat=True)[:MOST_KEPT]
    DurationModel.objects.exclude(pk__in=list(kept)).delete()
    return row


def _as_json(one: Comparison) -> dict[str, Any]:
    return {"basis": one.basis, "rolling": one.rolling._asdict(), "boosted": one.boosted._asdict()}


# -- read ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedCard:
    """Card of a stored model."""

    fitted_at: datetime
    card: ModelCard

    @classmethod
    def of(cls, row: DurationModel) -> Self | None:
        return cls(row.fitted_at, ModelCard(row.jobs, _comparisons(row.comparisons))) if row.fitted_at else None


def read_card() -> FittedCard | None:
    """Card of the model that is in use; None: there is no model."""
    row = DurationModel.objects.exclude(trees=None).defer("trees").first()
    return FittedCard.of(row) if row else None


def read_failure() -> str:
    """Why the newest night has no model; empty: it has one, or has not tried yet."""
    return DurationModel.objects.values_list("message", flat=True).first() or ""


def read_model() -> BoostedDurations | None:
    """The newest model; None if there is none with the present features, or it is not better than the estimate."""
    present = DurationModel.objects.exclude(trees=None).filter(features_version=FEATURES_VERSION)
    key = present.values_list("pk", "fitted_at").first()
    return _model(*key) if key else None


@lru_cache(maxsize=1)
def _model(day: date, fitted_at: datetime) -> BoostedDurations | None:
    """The model of that night; read once in each process."""
    row = DurationModel.objects.filter(pk=day, fitted_at=fitted_at).first()
    if row is None:  # the next night's has just replaced it
        return None
    try:
        return _model_of(row)
    except Exception:  # whatever a damaged file raises: NumPy, zipfile and zlib have errors of their own
        log.exception("the stored model of durations cannot be read; the rolling estimate is used")
        return None


def _model_of(row: DurationModel) -> BoostedDurations | None:
    card = ModelCard(row.jobs, _comparisons(row.comparisons))
    trees = QuantileTrees.from_bytes(bytes(row.trees or b""))
    return BoostedDurations(trees, row.jobs, card.used_for) if card.used_for else None


def _comparisons(stored: Iterable[dict[str, Any]]) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(
            Basis(one["basis"]) if one["basis"] else None, Accuracy(**one["rolling"]), Accuracy(**one["boosted"])
        )
        for one in stored
    )
