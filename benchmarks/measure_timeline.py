"""The timeline of a week with 1,000 GPUs and 10,000 attempts: the server's time, and the first paint in a browser."""

import shutil
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from playwright._impl._api_structures import SetCookieParam
from playwright.sync_api import Browser, sync_playwright

from benchmarks.figures import Figure, percentile
from benchmarks.measure_pages import visit_ms
from benchmarks.measure_submissions import web_service
from benchmarks.week_of_runs import fill_week
from jobs_app.models import Attempt

TIMES, PAINTS = 20, 5
SERIES = 2
"""Other work on the machine makes them differ: of the slower visitor the fastest series counts."""
BY = ("node", "team", "job")
DRAWN = ".chart .scatterlayer path"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def measure() -> list[Figure]:
    member = fill_week(timezone.now())
    import_module("config.wsgi")  # as in a web process that has started: it sets up the garbage collector
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    staff = User.objects.create_user("staff", is_staff=True)
    figures = [Figure("attempts of the week", Attempt.objects.count(), "attempts")]
    for by in BY:
        figures += _server(by, [member, staff])
    return figures + _paints(staff)


def _server(by: str, visitors: list[User]) -> list[Figure]:
    path, p95_ms, cpu_ms, queries = f"/timeline?window=7d&by={by}", [], [], 0
    for user in visitors:
        visitor = Client()
        visitor.force_login(user)
        visit_ms(visitor, path)
        series = [_visits(visitor, path) for _ in range(SERIES)]
        p95_ms.append(min(percentile([wall for wall, _ in visits], 95) for visits in series))
        cpu_ms += [cpu for visits in series for _, cpu in visits]
        with CaptureQueriesContext(connection) as captured:
            visit_ms(visitor, path)
        queries = max(queries, len(captured))
    return [
        Figure(f"timeline by {by}: p95 of the server, the least of {SERIES}", max(p95_ms), "ms", 300),
        Figure(
            f"timeline by {by}: p95 of the CPU time of the web process and the database", percentile(cpu_ms, 95), "ms"
        ),
        Figure(f"timeline by {by}: queries", queries, "queries"),
    ]


def _visits(visitor: Client, path: str) -> list[tuple[float, float]]:
    """Time and CPU time, that of the database too, of each visit in milliseconds."""
    found = []
    for _ in range(TIMES):
        began = process_time() + _database_s()
        wall_ms = visit_ms(visitor, path)
        found.append((wall_ms, 1000 * (process_time() + _database_s() - began)))
    return found


def _database_s() -> float:
    """CPU time of the process of PostgreSQL that serves this connection, on this machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (process,) = cursor.fetchone()
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


def _paints(user: User) -> list[Figure]:
    session = Client()
    session.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    cookie: SetCookieParam = {"name": name, "value": session.cookies[name].value}
    with web_service() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        found = [
            Figure(
                f"timeline by {by}: first paint of the chart, the least of {PAINTS}",
                _paint_ms(browser, url, by, cookie),
                "ms",
                1500,
            )
            for by in BY
        ]
        browser.close()
    return found


def _paint_ms(browser: Browser, url: str, by: str, cookie: SetCookieParam) -> float:
    """Least time from the navigation to the drawn chart; the browser has the scripts in its cache."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_cookies([cookie | {"url": url}])
    page, times = context.new_page(), []
    for _ in range(1 + PAINTS):
        began = perf_counter()
        page.goto(f"{url}/timeline?window=7d&by={by}", wait_until="commit")
        page.wait_for_selector(DRAWN, state="attached")
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        times.append(1000 * (perf_counter() - began))
    context.close()
    return min(times[1:])
