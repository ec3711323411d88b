"""Policies, and the rounds that they decided."""

from collections.abc import Iterator, Mapping
from typing import cast

from motley_client.connection import Connection, url_path, without_empty
from motley_client.responses import ChosenPolicy, Decision, Policy, PolicyGuard, PolicyPreview, Round, RoundDetail


class PolicyRoutes(Connection):
    """Policies, and the rounds that they decided."""

    def rounds(self, *, page_size: int | None = None) -> Iterator[Round]:
        """Scheduling rounds, newest first."""
        return cast("Iterator[Round]", self._pages("rounds", {"limit": page_size}))

    def round(self, number: int) -> RoundDetail:
        """One round with its decisions."""
        return cast("RoundDetail", self._json("GET", url_path("rounds", number)))

    def decisions(self, number: int) -> Iterator[Decision]:
        """The round's decision on each job that you may see."""
        return cast("Iterator[Decision]", self._pages(url_path("rounds", number, "decisions"), {}))

    def policies(self) -> Iterator[Policy]:
        """Available scheduling policies."""
        return cast("Iterator[Policy]", self._pages("policies", {}))

    def current_policy(self) -> ChosenPolicy:
        """The current policy with its parameters and round times."""
        return cast("ChosenPolicy", self._json("GET", "policies/current"))

    def policy_history(self) -> Iterator[ChosenPolicy]:
        """Policy settings so far, newest first."""
        return cast("Iterator[ChosenPolicy]", self._pages("policies/history", {}))

    def choose_policy(
        self,
        policy: str,
        *,
        parameters: Mapping[str, object] | None = None,
        round_length_s: float | None = None,
        min_run_s: float | None = None,
        solve_limit_part: float | None = None,
        cpu_memory: str | None = None,
        note: str | None = None,
    ) -> ChosenPolicy:
        """Use this policy from the next round on; what is not given stays as it is. Administrators only."""
        times = {"round_length_s": round_length_s, "min_run_s": min_run_s, "solve_limit_part": solve_limit_part}
        words = {"cpu_memory": cpu_memory, "note": note}
        body = without_empty({"policy": policy, "parameters": parameters, **words, **times})
        return cast("ChosenPolicy", self._json("PUT", "policies/current", json=body))

    def preview_policy(
        self,
        policy: str,
        *,
        parameters: Mapping[str, object] | None = None,
        round_length_s: float | None = None,
        min_run_s: float | None = None,
        solve_limit_part: float | None = None,
        cpu_memory: str | None = None,
    ) -> PolicyPreview:
        """The next round under this policy beside the next under the present one. Administrators only."""
        times = {"round_length_s": round_length_s, "min_run_s": min_run_s, "solve_limit_part": solve_limit_part}
        body = without_empty({"policy": policy, "parameters": parameters, "cpu_memory": cpu_memory, **times})
        return cast("PolicyPreview", self._json("POST", "policies/preview", json=body))

    def policy_guard(self) -> PolicyGuard:
        """Effects of the current policy compared with what the policy lab predicted; `none`: there is no prediction."""
        return cast("PolicyGuard", self._json("GET", "policies/guard"))

    def undo_policy(self, choice: int, *, note: str = "") -> ChosenPolicy:
        """Restore the settings before those with this id, if these are still the current ones. Administrators only."""
        path = url_path("policies", "history", choice, "undo")
        return cast("ChosenPolicy", self._json("POST", path, json={"note": note}))

    def choose_policy_again(self, choice: int) -> ChosenPolicy:
        """Restore the policy settings with this id of the history. Administrators only."""
        return cast("ChosenPolicy", self._json("POST", url_path("policies", "history", choice, "choose")))
