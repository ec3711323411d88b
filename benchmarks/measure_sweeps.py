"""Sweeps with 1,000 trials: their pages, REST, a suggestion and a turn of the scheduler."""

from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import import_module
from random import Random
from time import perf_counter, process_time

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from benchmarks.figures import Figure, percentile
from benchmarks.measure_pages import visit_ms
from cluster_app.models import Gpu, GpuType, Node
from connections_app.register_machine import gpu_type_columns
from jobs_app.models import Job, ProgressCurve, Sweep, SweepTrial, Team
from jobs_app.submission.enqueue import enqueue
from scheduler_app.sweeps.admission import admitted_sweep, admitted_trial
from scheduler_app.sweeps.advance import advance_sweeps
from scheduler_app.sweeps.decisions import past_of
from scheduler_app.sweeps.parameters import space_of
from sweeps.suggestion import Method, suggest

TRIALS, SWEEPS, TIMES, POINTS = 1000, 20, 20, 500
RUNGS = (740, 2222, 6667, 20000)
SWEEP = {
    "name": "search",
    "method": "bayes",
    "metric": {"name": "val_loss"},
    "parameters": {
        "lr": {"min": 1e-5, "max": 1e-1, "distribution": "log_uniform_values"},
        "width": {"values": [64, 128, 256]},
        "dropout": {"min": 0.0, "max": 0.5},
        "depth": {"min": 2, "max": 12},
    },
    "early_terminate": {"min_iter": 500, "max_iter": 20000, "eta": 3},
    "run_cap": TRIALS + 100,
    "seed": 1,
    "spec": {"command": "train --lr {lr} --width {width}", "gpus": 1, "team": "vision"},
}


def measure() -> list[Figure]:
    ada = _person()
    first = _fill(ada, timezone.now())
    import_module("config.wsgi")  # as in a web process that has started: it sets up the garbage collector
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    visitor = Client()
    visitor.force_login(ada)
    paths = {
        f"page of a sweep, {TRIALS:,} trials": f"/sweeps/{first.pk}",
        f"page of {SWEEPS} sweeps, {TRIALS:,} trials each": "/sweeps",
        "REST: a sweep": f"/api/v1/sweeps/{first.pk}",
        "REST: 200 trials": f"/api/v1/sweeps/{first.pk}/trials?limit=200",
        f"REST: {SWEEPS} sweeps": "/api/v1/sweeps",
    }
    figures = [figure for what, path in paths.items() for figure in _visits(visitor, what, path)]
    return [*figures, *_suggestion(first), *_turn(first)]


def _person() -> User:
    kind = GpuType.objects.create(name="a100", **gpu_type_columns("a100"))
    node = Node.objects.create(name="n1", gpu_type=kind, cpus=64, memory_mib=2**19, health=Node.Health.HEALTHY)
    Gpu.objects.bulk_create([Gpu(node=node, index=index) for index in range(8)])
    ada = User.objects.create_user("ada")
    ada.teams.add(Team.objects.create(name="vision"))
    return ada


def _fill(owner: User, now: datetime) -> Sweep:
    """The sweeps; the first one is the newest, has jobs with curves, and its trials stand at all rungs."""
    draw = Random(1)
    for n in range(SWEEPS - 1):
        one = admitted_sweep(SWEEP | {"name": f"old-{n}"}, owner=owner, now=now)
        one.state, one.ended_at = Sweep.State.FINISHED, now
        one.save()
        SweepTrial.objects.bulk_create(_trial(one, number, draw, now) for number in range(TRIALS))
    first = admitted_sweep(SWEEP, owner=owner, now=now - timedelta(days=1))
    first.save()
    trials = [_trial(first, number, draw, now) for number in range(TRIALS)]
    jobs = [admitted_trial(first, trial.number, trial.params) for trial in trials]
    enqueue(jobs)
    for trial, job in zip(trials, jobs, strict=True):
        trial.job_id = job.id
    SweepTrial.objects.bulk_create(trials)
    _end_jobs(trials, now)
    ProgressCurve.objects.bulk_create([_curve(trial, draw, now) for trial in trials], batch_size=200)
    return first


def _trial(sweep: Sweep, number: int, draw: Random, now: datetime) -> SweepTrial:
    """Of a thousand at the first rung a third goes on, and so forth; the last ten are open."""
    rung = next(rung for rung in (3, 2, 1, 0) if number % 3**rung == 0)
    values = [draw.random() / (1 + n) for n in range(rung + 1)]
    is_open = number >= TRIALS - 10
    state = "running" if is_open else "succeeded" if rung == len(RUNGS) - 1 else "stopped_early"
    return SweepTrial(
        sweep=sweep,
        number=number,
        job_id=f"00000000-0000-0000-{sweep.pk:04x}-{number:012x}",
        params={
            "lr": 10 ** draw.uniform(-5, -1),
            "width": draw.choice([64, 128, 256]),
            "dropout": draw.uniform(0, 0.5),
            "depth": draw.randint(2, 12),
        },
        state=state,
        values=[] if is_open else values,
        value=None if is_open else values[-1],
        target=rung,
        created_at=now,
        ended_at=None if is_open else now,
    )


def _end_jobs(trials: list[SweepTrial], now: datetime) -> None:
    states = {"succeeded": Job.State.SUCCEEDED, "stopped_early": Job.State.CANCELLED}
    for state, of_job in states.items():
        ids = [trial.job_id for trial in trials if trial.state == state]
        figures = {"step": 2000, "attained_gpu_s": 600, "ran_s": 600, "finished_at": now}
        Job.objects.filter(pk__in=ids).update(state=of_job, **figures)


def _curve(trial: SweepTrial, draw: Random, now: datetime) -> ProgressCurve:
    """As many points as are kept, with three metrics."""
    points = [
        [1000 * n, 40 * n, 1 / (n + 1), {name: [40 * n, draw.random()] for name in ("val_loss", "accuracy", "norm")}]
        for n in range(POINTS)
    ]
    return ProgressCurve(job_id=trial.job_id, spacing_s=2, last_at=now, points=points)


def _visits(visitor: Client, what: str, path: str) -> list[Figure]:
    visit_ms(visitor, path)
    times, cpu = zip(*[_visit(visitor, path) for _ in range(TIMES)], strict=True)
    with CaptureQueriesContext(connection) as captured:
        visit_ms(visitor, path)
    queries = len(captured)
    size = len(visitor.get(path).content)
    return [
        Figure(f"{what}: p95", percentile(times, 95), "ms", 300),
        Figure(f"{what}: p95 of the processor time of the web process", percentile(cpu, 95), "ms"),
        Figure(f"{what}: size", size / 1024, "KiB"),
        Figure(f"{what}: queries", queries, "queries"),
    ]


def _visit(visitor: Client, path: str) -> tuple[float, float]:
    """Wall time and CPU time of this process, in milliseconds."""
    began = process_time()
    return visit_ms(visitor, path), (process_time() - began) * 1000


def _suggestion(sweep: Sweep) -> list[Figure]:
    past = past_of(sweep, list(sweep.trials.all()))
    space = space_of(sweep.parameters)
    times = [_ms(lambda: suggest(Method.BAYES, space, sweep.seed, past)) for _ in range(TIMES)]
    return [Figure(f"a suggestion after {len(past):,} trials: p95", percentile(times, 95), "ms", 200)]


def _turn(sweep: Sweep) -> list[Figure]:
    """Whole turns of the scheduler, each of which starts a trial."""
    before, now = sweep.trials.count(), timezone.now()
    times = [_ms(lambda n=n: advance_sweeps(now + timedelta(minutes=n))) for n in range(1, 6)]  # type: ignore[misc]
    assert sweep.trials.count() > before
    return [Figure(f"a turn of the scheduler with {before:,} trials: longest of {len(times)}", max(times), "ms")]


def _ms(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return (perf_counter() - began) * 1000
