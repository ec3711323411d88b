"""How often the guard of a policy is wrong: windows of queues whose long-run means the lab predicted exactly, or not.

    python -m benchmarks.policy_guard [--runs 300] [--hours 6]

A queue of c servers, Poisson arrivals and lognormal durations (first come, first served) plays the cluster. The lab
predicted its long-run means; each run is a window after a change, judged every ten minutes. A false alarm is a run in
which the guard once said "worse". Below, durations or waits of the same queue are longer than predicted.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace

import django
import numpy as np

from allocation.types import Floats

with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": folder}
    django.setup()

from insight_app.policy_effects.guard import Observed, Predicted, State, judge, window_spread  # needs Django's apps

SERVERS = 20
SPREAD = 1.5
"""Standard deviation of the logarithm of durations: about that of training jobs."""
EVERY_H = 1 / 6
LOOK_BACK_H = 50
"""Played before each window, so that its beginning is one of a queue that has run for long."""


@dataclass(frozen=True)
class Queue:
    """A long run of the queue: jobs in the order of their arrival, in hours."""

    came: Floats
    began: Floats
    ended: Floats


def played(rng: np.random.Generator, *, load: float, mean_h: float, hours: float, slower: float = 1.0) -> Queue:
    jobs = rng.poisson(load * SERVERS / mean_h * hours)
    came = np.sort(rng.uniform(0, hours, jobs))
    lasts = slower * mean_h * rng.lognormal(-(SPREAD**2) / 2, SPREAD, jobs)
    free, began = [0.0] * SERVERS, np.empty(jobs)
    heapify(free)
    for row, (at, lasting) in enumerate(zip(came.tolist(), lasts.tolist(), strict=True)):
        began[row] = max(at, free[0])
        heapreplace(free, began[row] + lasting)
    return Queue(came, began, began + lasts)


def figures(queue: Queue, hours: float) -> dict[str, float]:
    """Long-run means, as the lab tells them."""
    busy_h = np.clip(queue.ended, 0, hours) - np.clip(queue.began, 0, hours)
    return {
        "avg_jct_h": float((queue.ended - queue.came).mean()),
        "queueing_h": float((queue.began - queue.came).mean()),
        "restarts_per_job": 0.0,
        "utilization": float(busy_h.sum() / SERVERS / hours),
    }


def observed(queue: Queue, since: float, now: float) -> Observed:
    """As the service reads it."""
    ended = np.flatnonzero((queue.ended >= since) & (queue.ended < now))
    ended = ended[np.argsort(queue.ended[ended])]
    came = (queue.came >= since) & (queue.came < now)
    busy_h = np.clip(queue.ended, since, now) - np.clip(queue.began, since, now)
    return Observed(
        hours=now - since,
        jct_h=(queue.ended - queue.came)[ended],
        queueing_h=(queue.began - queue.came)[ended],
        restarts=np.zeros(len(ended)),
        came_after=queue.came[ended] >= since,
        waits_h=np.minimum(queue.began[came], now) - queue.came[came],
        arrivals=int(came.sum()),
        utilization=float(busy_h.sum() / SERVERS / (now - since)),
    )


def verdicts(queue: Queue, predicted: Predicted, *, hours: float) -> Iterator[State]:
    for look in np.arange(EVERY_H, hours + 1e-9, EVERY_H):
        yield judge(predicted, observed(queue, LOOK_BACK_H, LOOK_BACK_H + float(look))).state


def told_worse(runs: int, *, load: float, mean_h: float, hours: float, slower: float, error: float) -> float:
    """Part of the runs in which the guard once said that the policy is worse."""
    long = 40_000 * mean_h / SERVERS
    usual = figures(played(np.random.default_rng(0), load=load, mean_h=mean_h, hours=long), long)
    actual = {name: value * (1 + error) for name, value in usual.items()}
    predicted = Predicted(usual, usual, actual, load * SERVERS / mean_h, list(_spreads(load, mean_h)))
    worse = 0
    for seed in range(1, runs + 1):
        rng = np.random.default_rng(seed)
        queue = played(rng, load=load, mean_h=mean_h, hours=LOOK_BACK_H + hours, slower=slower)
        worse += State.WORSE in verdicts(queue, predicted, hours=hours)
    return worse / runs


def _spreads(load: float, mean_h: float) -> Iterator[dict[str, float | None]]:
    """Between windows of a week, as the service measures them."""
    queue = played(np.random.default_rng(0), load=load, mean_h=mean_h, hours=192)
    week = observed(queue, 24.0, 192.0)
    ends = np.sort(queue.ended[(queue.ended >= 24) & (queue.ended < 192)])
    busy = np.array([observed(queue, float(at), float(at) + 1).utilization for at in range(24, 192)], dtype=float)
    for hours in (1.0, 2.0, 4.0):
        yield {
            "hours": hours,
            "avg_jct_h": window_spread(ends, week.jct_h, hours),
            "queueing_h": window_spread(ends, week.queueing_h, hours),
            "restarts_per_job": 0.0,
            "utilization": window_spread(np.arange(24.0, 192.0), busy, hours),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--hours", type=float, default=6)
    asked = parser.parse_args()
    print("| mean duration, h | load | jobs | durations | lab's error | told worse |")
    print("| ---: " * 6 + "|")
    for mean_h in (0.25, 1.0):
        for load in (0.7, 0.9):
            for slower, error in ((1.0, 0.0), (1.0, 0.2), (1.1, 0.0), (1.3, 0.0), (2.0, 0.0)):
                if load * slower > 1.45:
                    continue
                part = told_worse(asked.runs, load=load, mean_h=mean_h, hours=asked.hours, slower=slower, error=error)
                jobs = load * SERVERS / mean_h * asked.hours
                print(f"| {mean_h} | {load} | {jobs:.0f} | x {slower} | {error:.0%} | {part:.0%} |", flush=True)


if __name__ == "__main__":
    main()
