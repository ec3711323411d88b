"""The timeline, and how accurate forecasts and estimates were."""

from typing import cast

from motley_client.connection import Connection, without_empty
from motley_client.responses import DeadlineAccuracy, Estimates, ForecastJudgement, TeamForecast, Timeline


class InsightRoutes(Connection):
    """The timeline, and how accurate forecasts and estimates were."""

    def timeline(self, *, window: str | None = None, gpu_type: str | None = None) -> Timeline:
        """What ran on the GPUs in a window, as "7d", and what is expected to run."""
        query = without_empty({"window": window, "gpu_type": gpu_type})
        return cast("Timeline", self._json("GET", "timeline", params=query))

    def estimates(self) -> Estimates:
        """How accurate the durations and rates were that the scheduler counted on, by source."""
        return cast("Estimates", self._json("GET", "estimates"))

    def forecast_accuracy(self) -> list[ForecastJudgement]:
        """How accurate forecasts of starts and ends were, by how far ahead they were made."""
        return cast("list[ForecastJudgement]", self._json("GET", "forecasts/accuracy"))

    def deadline_accuracy(self) -> DeadlineAccuracy:
        """How accurate probabilities of meeting deadlines were."""
        return cast("DeadlineAccuracy", self._json("GET", "forecasts/accuracy/deadlines"))

    def forecast_accuracy_of_teams(self) -> list[TeamForecast]:
        """How accurate forecasts were for the jobs of each of your teams."""
        return cast("list[TeamForecast]", self._json("GET", "forecasts/accuracy/teams"))
