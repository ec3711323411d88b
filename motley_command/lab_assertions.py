"""Assertions about a run of the policy lab: ratios to the current policy, as it was simulated.

`p99 <= 1.03` holds if the 99 % quantile of completion times is at most 3 % above the current policy's;
`team:*.jct <= 1.05` if no team's mean completion time is more than 5 % above.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from motley_client.spec import SpecError

FIGURES = {
    "jct": "avg_jct_h",
    "p99": "p99_jct_h",
    "queueing": "queueing_h",
    "makespan": "makespan_h",
    "utilization": "utilization",
    "restarts": "restarts_per_job",
    "rho": "rho.mean",
    "energy": "energy_kwh",
}
"""Names of figures in assertions, and in the result of a run."""
GROUPS = {"team": "teams", "size": "sizes"}
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
FORM = re.compile(r"\s*(?:(team|size):(.+)\.)?([a-z0-9]+)\s*(<=|>=|<|>)\s*(\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True)
class Assertion:
    """A bound on the ratio of a figure to that of the current policy; of all teams or sizes that match `pattern`."""

    text: str
    kind: str
    pattern: str
    figure: str
    relation: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "Assertion":
        """Raises `SpecError` with the form."""
        if (found := FORM.fullmatch(text)) is None:
            raise SpecError(f"--assert {text}: write a figure, <= or >=, and a ratio to now: 'team:*.jct <= 1.05'.")
        kind, pattern, figure, relation, bound = found.groups()
        known = ["jct"] if kind else [*FIGURES]
        if figure not in known:
            raise SpecError(f"--assert {text}: {figure} is not one of {', '.join(known)}.")
        return cls(text.strip(), kind or "", pattern or "", figure, relation, float(bound))

    def failures(self, result: Mapping[str, Any]) -> Iterator[str]:
        """Sentences on each policy of the result for which it does not hold, or of which it cannot be told."""
        for policy in result["policies"]:
            ratios = dict(self._ratios(policy, result["present"]["figures"]))
            if not ratios:
                yield f"{policy['policy']}: {self.text}: {policy['failed'] or self._nothing()}"
            for name, ratio in ratios.items():
                if ratio is None or not RELATIONS[self.relation](ratio, self.bound):
                    what = f" of {name}" if name else ""
                    is_now = "is not known" if ratio is None else f"is {ratio:.3f} of now"
                    yield f"{policy['policy']}: {self.text} does not hold: {self.figure}{what} {is_now}"

    def _ratios(self, policy: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
        if self.kind:
            for group in policy.get(GROUPS[self.kind], ()):
                if fnmatchcase(str(group[self.kind]), self.pattern) and group["jobs"]:
                    yield str(group[self.kind]), None if group["change"] is None else 1 + group["change"]
        elif policy["figures"]:
            before, after = now.get(FIGURES[self.figure]), policy["figures"].get(FIGURES[self.figure])
            yield "", _ratio(after, before)

    def _nothing(self) -> str:
        return f"no {self.kind} with jobs is named so" if self.kind else "it has no figures"


def _ratio(after: float | None, before: float | None) -> float | None:
    """None: one of them is not known, or nothing became something."""
    if after is None or before is None:
        return None
    if before == 0:
        return 1.0 if after == 0 else None
    return after / before
