"""The graph of jobs that wait for each other: by the command, on its page, and its critical path."""

from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

from django.test import Client as Browser
from django.utils import timezone

from insight_app.explain.job_graph import graph_of
from insight_app.models import JobForecast
from insight_app.start_forecasts.showing import Interval, ShownForecast
from jobs_app.models import Job
from tests.live_service import Live
from tests.motley_command import Motley

NOW = timezone.now()


def test_the_graph_is_drawn_with_its_critical_path(service: Live, motley: Motley, plain_static: None) -> None:
    data = submitted(service, "data")
    small, large = submitted(service, "small", data), submitted(service, "large", data)
    report = submitted(service, "report", small, large)
    submitted(service, "eval", report, array="0-2")
    others = service.lab.submit(owner=service.lab.user("eve", "language"), name="others", team="language")
    ends = dict.fromkeys(Job.objects.values_list("pk", flat=True), 60) | {data.pk: 30, small.pk: 50, large.pk: 55}
    unknown = motley("graph", "report")
    assert "There is no forecast of data and 4 more: the end of the whole is not known yet." in unknown.stdout
    foreseen(ends | {report.pk: 58})
    drawn = motley("graph", "small")
    lines = {line.replace("*", "").split()[0]: line.split() for line in drawn.stdout.splitlines()[1:6]}
    assert {name for name, words in lines.items() if words[0] == "*"} == {"data", "large", "report", "eval"}
    assert [words[1:3] for name, words in lines.items() if name == "small"] == [["queued", "data"]]
    assert "All end in 59m, by medians of forecasts." in drawn.stdout
    browser = Browser()
    browser.force_login(service.lab.user())
    page = browser.get(f"/jobs/{large.pk}/graph").content.decode()
    assert "Critical path: data → large → report → eval (3 tasks):" in page
    assert page.count('class="arrow critical"') == 3
    assert "others" not in page
    assert browser.get(f"/jobs/{others.pk}/graph").status_code == 404
    overview = browser.get(f"/jobs/{data.pk}").content.decode()
    assert "2 jobs wait for it," in overview


def submitted(service: Live, name: str, *parents: Job, **spec: Any) -> Job:
    return service.lab.submit(name=name, after=[{"job": str(parent.pk)} for parent in parents], **spec)


def foreseen(minutes: dict[UUID, int]) -> None:
    now = timezone.now()
    JobForecast.objects.bulk_create(
        JobForecast(
            job=job, made_at=now, start_median=now, finish_median=now + timedelta(minutes=late), place=1, queue=1
        )
        for job, late in minutes.items()
    )


def test_a_graph_of_ended_jobs_has_an_end_and_a_long_chain_a_column_each() -> None:
    chain = [
        Job(id=uuid4(), name=f"j{n}", state="succeeded", finished_at=NOW + timedelta(minutes=n)) for n in range(50)
    ]
    edges = [(parent.pk, child.pk) for parent, child in pairwise(chain)]
    graph = graph_of(list(reversed(chain)), edges, {})
    assert [node.column for node in graph.nodes] == list(range(50))
    assert (graph.is_over, graph.ends_at, len(graph.critical_path)) == (True, chain[-1].finished_at, 50)


def test_the_last_parent_is_critical_and_an_array_is_one_node() -> None:
    array = uuid4()
    early, late = (Job(id=uuid4(), name=name, state="queued") for name in ("early", "late"))
    states = ("queued", "running")
    tasks = [Job(id=uuid4(), name="t", state=one, array_id=array, array_index=n) for n, one in enumerate(states)]
    edges = [(parent.pk, task.pk) for parent in (early, late) for task in tasks]
    ends = {early.pk: 10, late.pk: 20, tasks[0].pk: 40, tasks[1].pk: 30}
    graph = graph_of([early, late, *tasks], edges, {pk: ending(minutes) for pk, minutes in ends.items()})
    assert {(node.name, str(node.state), node.is_critical, node.column) for node in graph.nodes} == {
        ("early", "queued", False, 0),
        ("late", "queued", True, 0),
        ("t (2 tasks)", "running", True, 1),
    }
    assert graph.ends_at == NOW + timedelta(minutes=40)


def ending(minutes: int) -> ShownForecast:
    at = NOW + timedelta(minutes=minutes)
    return ShownForecast(NOW, None, Interval(at, at, at), "a100", 1.0, 1, 1)
