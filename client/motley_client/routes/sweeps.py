"""Sweeps: searches for hyperparameters."""

from collections.abc import Iterator
from typing import cast

from motley_client.connection import Connection, Spec, url_path, with_key
from motley_client.responses import Sweep, SweepDetail, Trial


class SweepRoutes(Connection):
    """Sweeps: searches for hyperparameters."""

    def sweeps(self, *, name: str | None = None, team: str | None = None) -> Iterator[Sweep]:
        """Sweeps of your teams, the newest first."""
        return cast("Iterator[Sweep]", self._pages("sweeps", {"name": name, "team": team}))

    def sweep(self, number: int) -> SweepDetail:
        """The sweep with the counts of its trials, the best one, its cost and its end at the pace so far."""
        return cast("SweepDetail", self._json("GET", url_path("sweeps", number)))

    def trials(self, number: int, *, page_size: int | None = 200) -> Iterator[Trial]:
        """Trials of the sweep by number."""
        return cast("Iterator[Trial]", self._pages(url_path("sweeps", number, "trials"), {"limit": page_size}))

    def start_sweep(self, fields: Spec, *, idempotency_key: str | None = None) -> SweepDetail:
        """Start a sweep: `name`, `metric`, `parameters`, `spec`, and if they are not the defaults `method` (grid,
        random, bayes, population), `early_terminate`, `population`, `run_cap`, `at_a_time`, `max_failed` and `seed`.
        """
        return cast(
            "SweepDetail",
            self._json("POST", "sweeps", json=dict(fields), headers=with_key(idempotency_key)),
        )

    def stop_sweep(self, number: int) -> SweepDetail:
        """Stop it: its open trials are cancelled, and no other is started."""
        return cast("SweepDetail", self._json("POST", url_path("sweeps", number, "stop")))

    def delete_sweep(self, number: int) -> None:
        """Delete a sweep that has ended, with the record of its trials; their jobs stay."""
        self._send("DELETE", url_path("sweeps", number))
