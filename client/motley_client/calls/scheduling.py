"""Who gets what, and by which policy: teams, rounds, policies."""

from collections.abc import Iterator, Mapping
from typing import cast

from motley_client.answers import ChosenPolicy, Decision, Policy, Round, RoundInFull, Team
from motley_client.calls.connection import Connection, given, place


class SchedulingCalls(Connection):
    def teams(self) -> Iterator[Team]:
        """Your own; for staff all of them."""
        return cast("Iterator[Team]", self._pages("teams", {}))

    def team(self, name: str) -> Team:
        return cast("Team", self._json("GET", place("teams", name)))

    def rounds(self, *, page_size: int | None = None) -> Iterator[Round]:
        """Rounds of the scheduler, the newest first."""
        return cast("Iterator[Round]", self._pages("rounds", {"limit": page_size}))

    def round(self, number: int) -> RoundInFull:
        return cast("RoundInFull", self._json("GET", place("rounds", number)))

    def decisions(self, number: int) -> Iterator[Decision]:
        """What the round gave to each job that you may see."""
        return cast("Iterator[Decision]", self._pages(place("rounds", number, "decisions"), {}))

    def policies(self) -> Iterator[Policy]:
        """The policies that there are to choose."""
        return cast("Iterator[Policy]", self._pages("policies", {}))

    def current_policy(self) -> ChosenPolicy:
        return cast("ChosenPolicy", self._json("GET", "policies/current"))

    def policy_history(self) -> Iterator[ChosenPolicy]:
        """The choices so far, the latest first."""
        return cast("Iterator[ChosenPolicy]", self._pages("policies/history", {}))

    def choose_policy(
        self,
        policy: str,
        *,
        parameters: Mapping[str, object] | None = None,
        round_length_s: float | None = None,
        min_run_s: float | None = None,
        solve_limit_part: float | None = None,
        note: str | None = None,
    ) -> ChosenPolicy:
        """Decide by this policy from the next round on; what is left out stays as it is. For staff."""
        times = {"round_length_s": round_length_s, "min_run_s": min_run_s, "solve_limit_part": solve_limit_part}
        body = given({"policy": policy, "parameters": parameters, "note": note, **times})
        return cast("ChosenPolicy", self._json("PUT", "policies/current", json=body))

    def choose_policy_again(self, choice: int) -> ChosenPolicy:
        """Go back to a choice of the history. For staff."""
        return cast("ChosenPolicy", self._json("POST", place("policies", "history", choice, "choose")))
