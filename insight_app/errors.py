"""Errors of the policy lab, of explanations and of forecasts."""

from collections.abc import Iterable

from web.rest.errors import Fault, InvalidRequest


class InsightError(Exception):
    """Base class of the errors of explanations, forecasts and the lab."""

    code = "insight"
    faults: tuple[Fault, ...] = ()


class HistoryTooLong(InsightError):
    """More jobs ran in the period than a trace may have."""

    code = "history_too_long"


class InvalidLabRun(InsightError, InvalidRequest):
    """A lab run was asked for that cannot be; the message holds the details for pages."""

    code = "invalid_lab_run"

    def __init__(self, faults: Iterable[Fault]) -> None:
        super().__init__(faults)
        self.args = (" ".join(fault["detail"] for fault in self.faults),)


class TooManyLabRuns(InsightError):
    """The person has as many unfinished lab runs as one may have."""

    code = "too_many_lab_runs"


class LabRunHasEnded(InsightError):
    """A lab run that has ended cannot be cancelled."""

    code = "lab_run_has_ended"


class CannotApply(InsightError):
    """A run of the lab has no result for this policy that could be applied."""

    code = "cannot_apply"


class TooManySolves(InsightError):
    """This process solves as many rounds for requests as it may, or one for the same user."""

    code = "too_many_solves"

    def __init__(self) -> None:
        super().__init__("Other questions of this kind are being answered, each of which plans rounds: try again.")
