"""A week of runs on a thousand GPUs, with forecasts, outages, drains and windows, written as rows."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import numpy as np
from django.contrib.auth.models import User

from cluster_app.models import Gpu, GpuType, Node, NodeEvent, NodeInterval
from connections_app.register_machine import gpu_type_columns
from insight_app.models import JobForecast
from jobs_app.models import Attempt, GpuClaim, Job, Team
from scheduler_app.models import Round, TimeWindow

GANGS = ((8,), (4, 4), (4, 2, 2), (4, 2, 1, 1), (2, 2, 2, 2))
"""How the GPUs of a node are divided, node by node."""
WEEK = timedelta(days=7)
SPREAD = 1.5
"""Standard deviation of the logarithm of durations: one run in forty is too short to be seen."""
WAITING = 200
PORT = 29_600


def fill_week(now: datetime, *, nodes: int = 125, attempts: int = 10_000, seed: int = 0) -> User:
    """Write at least so many attempts, of twelve teams; return a user who is a member of the first three."""
    rng = np.random.default_rng(seed)
    teams = Team.objects.bulk_create([Team(name=f"team-{n:02}") for n in range(12)])
    member = User.objects.create_user("member")
    member.teams.add(*teams[:3])
    Round.objects.create(number=1, started_at=now, result="committed", policy="motley", shares_since=now)
    gangs = [GANGS[n % len(GANGS)] for n in range(nodes)]
    runs = round(attempts / sum(map(len, gangs)))
    kinds = [GpuType.objects.create(name=name, **gpu_type_columns(name)) for name in ("a100", "t4", "v100")]
    for n, gang in enumerate(gangs):
        gpus = _node(f"node-{n:03}", kinds[n % len(kinds)])
        for first, size in zip(accumulate(gang, initial=0), gang, strict=False):
            held, owners = gpus[first : first + size], rng.integers(0, len(teams), runs)
            _write(held, kinds[n % len(kinds)], [teams[i] for i in owners], list(_spans(rng, runs, now)), member)
        if n % 10 == 0:
            _out_of_service(held[0].node, now)
    _windows(kinds[0], teams[0], now)
    _forecast(rng, teams, member, now)
    return member


def _node(name: str, kind: GpuType) -> list[Gpu]:
    node = Node.objects.create(name=name, gpu_type=kind, cpus=64, memory_mib=2**19, health=Node.Health.HEALTHY)
    return Gpu.objects.bulk_create([Gpu(node=node, index=index) for index in range(sum(GANGS[0]))])


def _spans(rng: np.random.Generator, runs: int, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """So many runs one after the other in the week; the last goes on."""
    lengths = np.exp(SPREAD * rng.standard_normal(runs))
    edges = np.concatenate([[0], np.cumsum(lengths / lengths.sum())])
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield now - WEEK + start * WEEK, now - WEEK + end * WEEK


def _write(gpus: list[Gpu], kind: GpuType, teams: list[Team], spans: list[tuple[datetime, datetime]], by: User) -> None:
    """The jobs, attempts and claims of one division of a node."""
    jobs, attempts = [], []
    for place, (team, (start, end)) in enumerate(zip(teams, spans, strict=True)):
        goes_on = place == len(spans) - 1
        job = _job(
            f"train-{gpus[0].pk}-{place}", team, by, len(gpus), start, state="running" if goes_on else "succeeded"
        )
        job.finished_at = None if goes_on else end
        jobs.append(job)
        over: dict[str, Any] = {"state": "ended", "outcome": "succeeded", "ended_at": end, "gone_at": end}
        over = {"state": "running"} if goes_on else over
        about = {"gpu_type": kind, "gpu_count": len(gpus), "nodes": [gpus[0].node.name], "engine": "local"}
        times = {"claimed_at": start, "launched_at": start, "started_at": start}
        attempts.append(Attempt(job=job, number=1, master_port=PORT, round_number=1, **about, **times, **over))
    Job.objects.bulk_create(jobs)
    written = Attempt.objects.bulk_create(attempts)
    GpuClaim.objects.bulk_create(
        GpuClaim(gpu=gpu, attempt=one, held_from=one.claimed_at, released_at=one.gone_at)
        for one in written
        for gpu in gpus
    )


def _job(name: str, team: Team, owner: User, gpus: int, at: datetime, *, state: str) -> Job:
    size = {"gpus_min": gpus, "gpus_max": gpus}
    return Job(name=name, team=team, owner=owner, command="true", workload="w", state=state, created_at=at, **size)


def _out_of_service(node: Node, now: datetime) -> None:
    """Events of a node that was down for two hours and drained for five; one in fifty is drained now."""
    down = now - timedelta(days=3)
    NodeInterval.objects.create(node=node, up=False, started_at=down, ended_at=down + timedelta(hours=2), end="changed")
    NodeEvent.objects.create(node=node, at=now - timedelta(days=1), kind="drained", message="a fan is loud")
    if node.name.endswith("50"):
        Node.objects.filter(pk=node.pk).update(state=Node.State.DRAINED, reason="a fan is loud")
    else:
        NodeEvent.objects.create(node=node, at=now - timedelta(hours=19), kind="resumed")


def _windows(kind: GpuType, team: Team, now: datetime) -> None:
    """A maintenance of ten nodes each night, and a reservation tomorrow."""
    two_h, night = timedelta(hours=2), now.replace(hour=2, minute=0) - WEEK
    nightly = TimeWindow.objects.create(reason="updates", begins_at=night, ends_at=night + two_h, cron="0 2 * * *")
    nightly.nodes.set(Node.objects.order_by("name")[:10])
    times = {"begins_at": now + timedelta(days=1), "ends_at": now + timedelta(days=1) + two_h}
    TimeWindow.objects.create(kind="reservation", reason="a paper", team=team, gpu_type=kind, gpus=64, **times)


def _forecast(rng: np.random.Generator, teams: list[Team], owner: User, now: datetime) -> None:
    waiting = [_job(f"waits-{n}", teams[n % 12], owner, 1 + n % 4, now, state="queued") for n in range(WAITING)]
    Job.objects.bulk_create(waiting)
    running = Job.objects.filter(state="running").values_list("pk", flat=True)
    rows = [
        JobForecast(job=pk, made_at=now, place=0, queue=WAITING, **_quantiles("finish", now, rng)) for pk in running
    ]
    for place, job in enumerate(waiting, 1):
        start = _quantiles("start", now, rng)
        finish = _quantiles("finish", start["start_high"], rng)
        on = {"gpu_type": ("a100", "t4", "v100")[place % 3], "type_part": 0.9}
        rows.append(JobForecast(job=job.pk, made_at=now, place=place, queue=WAITING, **start, **finish, **on))
    JobForecast.objects.bulk_create(rows)


def _quantiles(event: str, after: datetime, rng: np.random.Generator) -> dict[str, datetime]:
    at = after + timedelta(hours=float(rng.exponential(8)))
    apart = (at - after) / 3
    return {f"{event}_low": at - apart, f"{event}_median": at, f"{event}_high": at + apart}
