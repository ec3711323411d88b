"""Figures of `benchmarks.fidelity` from what REST told of a run: completion times, and where attempts spend time."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

Record = Mapping[str, Any]
"""What the service did: jobs with their attempts, and rounds, as REST tells them."""
Row = Mapping[str, Any]

FIGURES = {
    "mean JCT, s": "mean_jct_s",
    "median JCT, s": "median_jct_s",
    "makespan, s": "makespan_s",
    "restarts a job": "restarts",
}


def live_figures(record: Record) -> dict[str, float]:
    """Completion times in s from submission, makespan in s, and restarts per job."""
    came, ended = (np.array([_s(job[name]) for job in record["jobs"]]) for name in ("created_at", "finished_at"))
    attempts = [len(_begun(job)) for job in record["jobs"]]
    return {
        "mean_jct_s": float((ended - came).mean()),
        "median_jct_s": float(np.median(ended - came)),
        "makespan_s": float(ended.max() - came.min()),
        "restarts": float(np.mean(attempts)) - 1,
    }


def table(title: str, live: Mapping[str, float], simulated: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Lines of the comparison in Markdown; each simulation has its figures, and their difference to the live ones."""
    yield f"\n| `{title}` | live | " + " | ".join(f"simulated {words} | " for words in simulated) + "|"
    yield "| --- | ---: |" + " ---: | ---: |" * len(simulated)
    for words, name in FIGURES.items():
        cells = [f"{one[name]:.2f} | {_part(one[name], live[name])}" for one in simulated.values()]
        yield f"| {words} | {live[name]:.2f} | {' | '.join(cells)} |"


def _part(value: float, of: float) -> str:
    return f"{value / of - 1:+.1%}" if of else ""


def breakdown(record: Record) -> Iterator[str]:
    """Lines in Markdown: the seconds that a live run spends between the events of its jobs and attempts."""
    yield "\n| seconds from … to … | number | median | mean | p90 |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for words, seconds in {**_of_rounds(record), **_of_attempts(record)}.items():
        if seconds:
            middle, high = np.percentile(seconds, (50, 90))
            yield f"| {words} | {len(seconds)} | {middle:.2f} | {np.mean(seconds):.2f} | {high:.2f} |"


def _of_rounds(record: Record) -> dict[str, list[float]]:
    """Reaction of the rounds to arrivals and to ends of jobs; the last jobs' ends are followed by no round."""
    began = sorted(_s(one["started_at"]) for one in record["rounds"])
    waits = {"arrival to next round": "created_at", "job's end to next round": "finished_at"}
    return {
        "round to next round": np.diff(began).tolist(),
        **{words: list(_until_next(began, [_s(job[name]) for job in record["jobs"]])) for words, name in waits.items()},
    }


def _until_next(began: Sequence[float], events: Sequence[float]) -> Iterator[float]:
    for event in events:
        place = bisect_left(began, event)
        if place < len(began):
            yield began[place] - event


def _of_attempts(record: Record) -> dict[str, list[float]]:
    decided = {one["number"]: one["started_at"] for one in record["rounds"]}
    attempts = [
        {**one, "decided_at": decided.get(one["round_number"])} for job in record["jobs"] for one in _begun(job)
    ]
    first = [attempt for attempt in attempts if attempt["number"] == 1]
    again = [attempt for attempt in attempts if attempt["number"] > 1]
    return {
        "round to claim": _between(attempts, "decided_at", "claimed_at"),
        "claim to launch, first attempts": _between(first, "claimed_at", "launched_at"),
        "claim to launch, restarts": _between(again, "claimed_at", "launched_at"),
        "launch to start": _between(attempts, "launched_at", "started_at"),
        "start to first step": _between(attempts, "started_at", "first_step_at"),
        "round to first step, first attempts": _between(first, "decided_at", "first_step_at"),
        "round to first step, restarts": _between(again, "decided_at", "first_step_at"),
        "last step to end": _between(attempts, "step_at", "ended_at", lambda a: a["outcome"] == "succeeded"),
        "preemption to end": _between(
            attempts, "stopping_at", "ended_at", lambda a: a["outcome"] in ("preempted", "moved")
        ),
    }


def _between(
    attempts: Sequence[Row], start: str, end: str, chosen: Callable[[Row], bool] = lambda _: True
) -> list[float]:
    return [_s(one[end]) - _s(one[start]) for one in attempts if chosen(one) and one[start] and one[end]]


def _begun(job: Row) -> list[Row]:
    """Attempts whose processes started."""
    return [attempt for attempt in job["attempts"] if attempt["started_at"]]


def _s(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
