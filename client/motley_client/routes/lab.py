"""Runs of the policy lab."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from motley_client.connection import Connection, url_path, without_empty
from motley_client.responses import AppliedPolicy, LabPolicyPreview, LabRun, NodeSavings


class LabRoutes(Connection):
    """Runs of the policy lab."""

    def simulate_policies(
        self,
        policies: Sequence[str],
        *,
        days: int | None = None,
        trace: str | None = None,
        trace_format: str | None = None,
        throughputs: str | None = None,
        round_length_s: float | None = None,
        nodes: Mapping[str, int] | None = None,
        team_weights: Mapping[str, float] | None = None,
        quotas: Sequence[Mapping[str, object]] | None = None,
        budgets: Sequence[Mapping[str, object]] | None = None,
    ) -> LabRun:
        """Ask for a run of the policy lab: your teams' jobs of the last days, or of a trace, under these policies.

        `trace` and `throughputs` are texts; the others are as in REST.
        """
        about = {"round_length_s": round_length_s, "nodes": nodes, "team_weights": team_weights}
        limits = {"quotas": quotas, "budgets": budgets}
        source = {"days": days, "trace": trace, "trace_format": trace_format, "throughputs": throughputs}
        asked = {"policies": list(policies), **without_empty(about), **without_empty(limits), **without_empty(source)}
        return cast("LabRun", self._json("POST", "lab/runs", json=asked))

    def lab_runs(self) -> Iterator[LabRun]:
        """Your runs of the policy lab without their results, newest first."""
        return cast("Iterator[LabRun]", self._pages("lab/runs", {}))

    def lab_run(self, number: int) -> LabRun:
        """One run of the policy lab, with its result once it is done."""
        return cast("LabRun", self._json("GET", url_path("lab", "runs", number)))

    def node_savings(self) -> NodeSavings:
        """Waiting that one more node of each GPU type would save, and one less cost, by prices and as simulated."""
        return cast("NodeSavings", self._json("GET", "lab/node-savings"))

    def cancel_lab_run(self, number: int) -> LabRun:
        return cast("LabRun", self._json("POST", url_path("lab", "runs", number, "cancel")))

    def preview_lab_policy(self, number: int, policy: str) -> LabPolicyPreview:
        """What the next round would do under a policy of the run, and what the lab predicted. Administrators only."""
        path = url_path("lab", "runs", number, "preview")
        return cast("LabPolicyPreview", self._json("POST", path, json={"policy": policy}))

    def apply_lab_policy(
        self,
        number: int,
        policy: str,
        *,
        note: str = "",
        guard_hours: float | None = None,
        undo_by_itself: bool = False,
    ) -> AppliedPolicy:
        """Use a policy of the run from the next round on, and watch its effects. Administrators only."""
        body = {"policy": policy, "note": note, "undo_by_itself": undo_by_itself}
        path = url_path("lab", "runs", number, "apply")
        return cast("AppliedPolicy", self._json("POST", path, json=without_empty(body | {"guard_hours": guard_hours})))
