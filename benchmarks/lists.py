"""Lists of jobs as people ask for them, read by scripts with tokens."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any
from urllib.parse import urlencode

from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from benchmarks.filling import GIANT, SMALL

JOBS = "/api/v1/jobs"
PAGES = 3
"""From the first, and from each of the places in the depth."""

Asked = list[tuple[str, str]]
LISTS: dict[str, Asked] = {
    "all": [],
    "state=succeeded": [("state", "succeeded")],
    "state=failed": [("state", "failed")],
    "state=timed_out (none)": [("state", "timed_out")],
    "unfinished": [("state", state) for state in ("queued", "starting", "running", "stopping")],
    "large team": [("team", GIANT)],
    "small team": [("team", SMALL)],
    "large team, failed": [("team", GIANT), ("state", "failed")],
    "small team, failed": [("team", SMALL), ("state", "failed")],
    "large team, queued": [("team", GIANT), ("state", "queued")],
    "owner": [("owner", "person-17")],
    "owner, running": [("owner", "person-17"), ("state", "running")],
    "owner, succeeded": [("owner", "person-17"), ("state", "succeeded")],
    "owner without jobs": [("owner", "of-small")],
    "tag name": [("tag", "project")],
    "tag common": [("tag", "kind=k1")],
    "tag rare": [("tag", "project=p33")],
    "tag unknown": [("tag", "project=none")],
    "two tags": [("tag", "project=p36"), ("tag", "kind=k0")],
    "tag, failed": [("tag", "project=p60"), ("state", "failed")],
    "tag, small team": [("tag", "kind=k1"), ("team", SMALL)],
    "q common": [("q", "train-")],
    "q rare": [("q", "rare-")],
    "q one job": [("q", "train-501-50000")],
    "q unknown": [("q", "nothing-like-it")],
    "q and tag": [("q", "train- kind=k1")],
    "q common, small team": [("q", "train-"), ("team", SMALL)],
    "q common, failed": [("q", "train-"), ("state", "failed")],
    "gpu_type": [("gpu_type", "a100")],
    "gpu_type, small team": [("gpu_type", "a100"), ("team", SMALL)],
    "created_after": [("created_after", "{recent}")],
    "updated_since": [("updated_since", "{recent}")],
    "updated_since long ago": [("updated_since", "{past}")],
    "oldest updates of a small team": [("updated_since", "{past}"), ("team", SMALL)],
}


class Reader:
    """A script with a token, in this process: what is measured is the service's own time.

    `moments` are filled in for `{recent}` and `{past}`; `depths` are ids of jobs that lists go on from.
    """

    def __init__(self, token: str, moments: dict[str, str], depths: Sequence[str]) -> None:
        self.client, self.moments = APIClient(), moments
        self.client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        self.starts = [None, *(b64encode(urlencode({"p": depth}).encode()).decode() for depth in depths)]

    def times(self, asked: Asked) -> Iterator[float]:
        """Milliseconds of pages."""
        for start in self.starts:
            cursor = start
            for _ in range(PAGES):
                began = perf_counter()
                answer = self._get(asked, cursor)
                yield (perf_counter() - began) * 1000
                cursor = answer["next"]
                if not cursor:
                    break

    def plans(self, asked: Asked) -> list[str]:
        """How the database finds the jobs of a deep page."""
        with CaptureQueriesContext(connection) as queries:
            self._get(asked, self.starts[1])
        statements = [query["sql"] for query in queries.captured_queries]
        return [explained(sql) for sql in statements if sql.startswith("SELECT") and 'FROM "jobs_app_job"' in sql]

    def _get(self, asked: Asked, cursor: str | None) -> Any:
        parameters = [(name, value.format(**self.moments)) for name, value in asked]
        answer = self.client.get(f"{JOBS}?{urlencode([*parameters, *([('cursor', cursor)] if cursor else [])])}")
        assert answer.status_code == 200, answer.content
        return answer.json()


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {sql}")
        return "\n".join(line for (line,) in cursor.fetchall())
