"""Pages with 100,000 jobs in the database: the service's own time, and how many queries each costs."""

from time import perf_counter

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from benchmarks.figures import Figure, percentile
from benchmarks.filling import fill
from jobs_app.models import Job, JobArray
from scheduler_app.round.lease import acquire_lease
from scheduler_app.round.run_round import run_round

JOBS, TIMES = 100_000, 40
VISITORS = ("staff", "of-giant", "of-small")
HOLDER = "benchmark"
TASKS = 1000
ARRAYS = """
    UPDATE jobs_app_job job SET array_id = numbered.id, array_index = n %% %(tasks)s
    FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS k FROM jobs_app_jobarray) numbered,
        (SELECT id AS pk, split_part(name, '-', 3)::bigint AS n FROM jobs_app_job) counted
    WHERE counted.pk = job.id AND n / %(tasks)s %% 2 = 1 AND numbered.k = n / %(tasks)s / 2
"""


def measure() -> list[Figure]:
    fill(JOBS)
    now = timezone.now()
    acquire_lease(HOLDER, now)
    record = run_round(HOLDER, now)
    assert record.result == "committed", record.message
    figures = [figure for page in ("home", "jobs", "job", "job, why") for figure in _page(page)]
    _put_half_into_arrays()
    return [*figures, *_page("jobs", "jobs, half in arrays")]


def _put_half_into_arrays() -> None:
    """Every second thousand of the jobs, by age, becomes an array."""
    JobArray.objects.bulk_create([JobArray(start=0, end=TASKS - 1) for _ in range(JOBS // TASKS // 2)])
    with connection.cursor() as cursor:
        cursor.execute(ARRAYS, {"tasks": TASKS})
        cursor.execute("VACUUM ANALYZE")


def _page(page: str, title: str = "") -> list[Figure]:
    times, queries = [], []
    for username in VISITORS:
        visitor, path = visitor_named(username), _path(page, username)
        visit_ms(visitor, path)
        times += [visit_ms(visitor, path) for _ in range(TIMES)]
        with CaptureQueriesContext(connection) as captured:
            visit_ms(visitor, path)
        queries.append(len(captured))
    return [
        Figure(f"page {title or page}, 100,000 jobs: p95", percentile(times, 95), "ms", 300),
        Figure(f"page {title or page}: most queries of any visitor", max(queries), "queries"),
    ]


def visitor_named(username: str) -> Client:
    visitor = Client()
    visitor.force_login(User.objects.get(username=username))
    return visitor


def _path(page: str, username: str) -> str:
    newest = Job.objects.visible_to(User.objects.get(username=username)).order_by("-pk")[0]
    paths = {"home": "/", "jobs": "/jobs", "job": f"/jobs/{newest.pk}", "job, why": f"/jobs/{newest.pk}?tab=why"}
    return paths[page]


def visit_ms(visitor: Client, path: str) -> float:
    began = perf_counter()
    answer = visitor.get(path)
    milliseconds = (perf_counter() - began) * 1000
    assert answer.status_code == 200, (path, answer.status_code)
    return milliseconds
