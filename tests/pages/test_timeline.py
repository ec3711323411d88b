"""The timeline of rows in the database: what each reader sees of it, as page, CSV and REST."""

import csv
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve, reverse
from django.utils import timezone

from cluster_app.models import Gpu, Node, NodeEvent, NodeInterval
from cluster_app.retirement import retire_node
from cluster_app.services import drain
from insight_app.models import JobForecast
from jobs_app.models import Attempt, GpuClaim, Job, Team
from scheduler_app.models import Round, TimeWindow
from scheduler_app.windows.editing import add_window

FIGURE = re.compile(r'<script id="figure" type="application/json">(.*?)</script>', re.DOTALL)
HOUR = timedelta(hours=1)

Ran = Callable[..., Attempt]


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def placed_by(db, now) -> Round:
    return Round.objects.create(number=7, started_at=now, result="committed", policy="motley", shares_since=now)


@pytest.fixture
def ran(submit, placed_by, now) -> Ran:
    """An attempt of a new job that held GPUs of one node; it runs if it has not ended."""

    def of(
        name: str = "train", *, team: str = "vision", gpus: int = 1, hours: float = 2, ended: float | None = 1
    ) -> Attempt:
        node = Node.objects.filter(gpu_type__name="v100").first()
        job, over = submit(name=name, team=team, gpus=gpus), ended is not None
        Job.objects.filter(pk=job.pk).update(
            state="succeeded" if over else "running", attempt_count=1, finished_at=now - ended * HOUR if over else None
        )
        start = now - hours * HOUR
        ends: dict[str, Any] = {"state": "running"}
        if ended is not None:
            ends = {
                "state": "ended",
                "outcome": "succeeded",
                "ended_at": now - ended * HOUR,
                "gone_at": now - ended * HOUR,
            }
        attempt = Attempt.objects.create(
            job=job,
            number=1,
            gpu_type=node.gpu_type,
            gpu_count=gpus,
            nodes=[node.name],
            engine="local",
            master_port=29_600,
            round_number=placed_by.number,
            claimed_at=start,
            launched_at=start,
            started_at=start,
            **ends,
        )
        for gpu in Gpu.objects.filter(node=node).order_by("index")[:gpus]:
            GpuClaim.objects.create(gpu=gpu, attempt=attempt, held_from=start, released_at=attempt.gone_at)
        return attempt

    return of


def forecast(job: Job, now: datetime, *, place: int = 0, start: float | None = None, finish: float = 1) -> None:
    starts = (
        {}
        if start is None
        else {f"start_{q}": now + (start + i / 4) * HOUR for i, q in enumerate(("low", "median", "high"))}
    )
    ends = {f"finish_{q}": now + (finish + i / 4) * HOUR for i, q in enumerate(("low", "median", "high"))}
    JobForecast.objects.create(job=job.pk, made_at=now, place=place, queue=1, gpu_type="v100", **starts, **ends)


def figure_of(client: Client, query: str = "") -> dict[str, Any]:
    html = client.get(f"/timeline?{query}").content.decode()
    return json.loads(FIGURE.search(html)[1])


def bars(figure: dict[str, Any]) -> list[tuple[str, float, list[str]]]:
    """Label, height in rows and link of each bar."""
    return [
        (data[0], height, data[1:])
        for trace in figure["data"]
        for data, height in zip(trace["customdata"], trace["width"], strict=True)
    ]


def test_a_gang_on_neighbouring_gpus_is_one_bar_that_opens_its_job(ran, web, member):
    attempt = ran("train", gpus=2)
    ((label, height, links),) = bars(figure_of(web(member)))
    assert label == "train<br>vision, 2 V100, succeeded"
    assert 1 < height < 2
    assert resolve(f"/{links[0]}").kwargs == {"pk": attempt.job_id}


def test_a_gpu_that_was_taken_out_of_its_node_has_no_row(ran, web, member):
    attempt = ran("train", gpus=2)
    Gpu.objects.filter(claims__attempt=attempt, index=0).update(present=False)
    ((_, height, _),) = bars(figure_of(web(member)))
    assert height < 1


def test_what_runs_goes_on_paler_beyond_now_by_its_forecast(ran, web, member, now):
    attempt = ran(hours=2, ended=None)
    forecast(attempt.job, now)
    past, ahead = figure_of(web(member))["data"]
    assert past["name"] == ahead["name"] == "vision"
    assert "opacity" not in past["marker"]
    assert ahead["marker"]["opacity"] == sorted(ahead["marker"]["opacity"], reverse=True)
    assert ahead["marker"]["opacity"][0] < 1
    assert ahead["base"][0] == pytest.approx(past["base"][0] + past["x"][0], abs=1)


def test_a_job_that_waits_is_below_the_gpus_of_the_type_that_it_is_expected_on(ran, submit, web, member, now):
    ran()
    forecast(submit(name="next"), now, place=1, start=1, finish=2)
    figure = figure_of(web(member))
    assert "waits for V100" in figure["layout"]["yaxis"]["ticktext"]
    assert [label for label, *_ in bars(figure) if label.startswith("next<br>") and "waits now" in label]


@pytest.mark.parametrize("query", ["by=node", "by=team", "by=job", "format=csv"])
def test_a_job_of_another_team_has_no_name(ran, submit, web, stranger, query):
    now = timezone.now()
    attempt = ran("their-secret", ended=None)
    forecast(attempt.job, now)
    waiting = submit(name="their-plan")
    forecast(waiting, now, place=1, start=1, finish=2)
    answer = web(stranger).get(f"/timeline?{query}")
    told = b"".join(answer) if answer.streaming else answer.content
    for secret in ("their-secret", "their-plan", str(attempt.job_id), str(waiting.pk)):
        assert secret.encode() not in told


def test_a_bar_of_another_team_opens_the_round_that_placed_it(ran, web, stranger):
    ran("their-secret")
    ((label, _, links),) = bars(figure_of(web(stranger)))
    assert "another team" in label
    assert resolve(f"/{links[0]}").kwargs == {"number": 7}


def test_a_name_is_no_markup(ran, web, member):
    ran("<img src=x>")
    ((label, *_),) = bars(figure_of(web(member)))
    assert "&lt;img src=x&gt;" in label


def test_a_drained_node_is_hatched_until_the_end_of_the_chart(ran, web, staff):
    ran()
    node = Node.objects.filter(gpu_type__name="v100").first()
    drain(node, reason="a fan is loud", actor=staff)
    figure = figure_of(web(staff))
    (outage,) = [trace for trace in figure["data"] if trace["name"] == "drained"]
    assert outage["marker"]["pattern"]["shape"]
    assert "a fan is loud" in outage["customdata"][0][0]
    end = datetime.fromisoformat(f"{figure['layout']['xaxis']['range'][1]}+00:00")
    assert outage["base"][0] + outage["x"][0] == pytest.approx(1000 * end.timestamp(), abs=1)


def test_bars_and_the_axis_are_in_the_zone_of_the_reader(ran, web, member):
    attempt, client, offset = ran(ended=None), web(member), timedelta(hours=5, minutes=45)
    client.cookies["time_zone"] = "Asia/Kathmandu"
    answer = client.get("/timeline").content.decode()
    figure = json.loads(FIGURE.search(answer).group(1))
    starts = [start for trace in figure["data"] for start in trace["base"]]
    assert min(starts) == pytest.approx(1000 * (attempt.claimed_at + offset).timestamp(), abs=1)
    until = datetime.fromisoformat(figure["layout"]["xaxis"]["range"][1])
    assert until > (timezone.now() + offset).replace(tzinfo=None)
    assert "Times are of Asia/Kathmandu" in answer


@pytest.fixture
def maintenance(ran, staff, now) -> TimeWindow:
    """A window of a node that is over, and comes again in the morning."""
    node = Node.objects.filter(gpu_type__name="v100").first()
    times = {"begins_at": now - 3 * HOUR, "ends_at": now - 2 * HOUR}
    again = now + 4 * HOUR
    columns = {"reason": "a new fan", "nodes": [node], "cron": f"{again.minute} {again.hour} * * *", **times}
    return add_window(columns, actor=staff)


def test_windows_of_the_past_and_to_come_are_hatched_and_open_for_administrators(maintenance, ran, web, staff, member):
    ran()

    def windows(user: User) -> dict[str, Any]:
        (found,) = [one for one in figure_of(web(user), "window=24h")["data"] if one["name"] == "maintenance"]
        return found

    past, to_come = windows(staff)["base"]
    assert to_come - past == pytest.approx(7 * 3_600_000, abs=60_000)
    assert windows(staff)["marker"]["pattern"]["shape"]
    label, link = windows(staff)["customdata"][0]
    assert "a new fan" in label
    assert resolve(link).kwargs == {"object_id": str(maintenance.pk)}
    assert windows(member)["customdata"][0] == [label]


def test_a_reservation_is_in_table_csv_and_rest(ran, web, member, staff, now):
    ran()
    team, kind = Team.objects.get(name="vision"), Node.objects.filter(gpu_type__name="v100").first().gpu_type
    times = {"begins_at": now + HOUR, "ends_at": now + 2 * HOUR}
    window = add_window({"reason": "a paper", "team": team, "gpu_type": kind, "gpus": 1, **times}, actor=staff)
    client = web(member)
    assert "Reserved for team vision" in client.get("/timeline?window=24h").content.decode()
    (row,) = [one for one in csv_rows(client, "window=24h") if one["kind"] == "window"]
    assert (row["team"], row["outcome"]) == ("vision", "reserved for team vision: a paper")
    (told,) = client.get(reverse("timeline-report")).json()["windows"]
    assert (told["id"], told["kind"], told["team"], told["reason"]) == (window.pk, "reservation", "vision", "a paper")
    assert told["nodes"] == row["nodes"].split() != []
    assert client.get(reverse("timeline-report"), {"gpu_type": "a100"}).json()["windows"] == []


def test_the_height_of_a_team_is_the_gpus_that_it_held(ran, web, member):
    ran(gpus=2, hours=20, ended=4)
    ran(team="language", gpus=1, hours=20, ended=4)
    held = {
        trace["name"]: sum(x * width for x, width in zip(trace["x"], trace["width"], strict=True))
        for trace in figure_of(web(member), "by=team")["data"]
    }
    assert held["vision"] == pytest.approx(2 * held["language"], rel=0.01)


def test_jobs_that_run_come_before_those_that_wait_and_those_that_ended(ran, submit, web, member, now):
    ran("over")
    forecast(submit(name="waits"), now, place=1, start=1, finish=2)
    ran("runs", ended=None)
    assert figure_of(web(member), "by=job")["layout"]["yaxis"]["ticktext"] == ["runs", "waits", "over"]


def test_a_run_before_the_window_is_not_there_and_an_empty_page_says_so(ran, web, member):
    ran(hours=5, ended=4)
    page = web(member).get("/timeline?window=1h").content.decode()
    assert "Nothing ran in the last hour" in page
    assert figure_of(web(member), "window=6h")


@pytest.mark.parametrize(("hours", "shown"), [(0.1, "1h"), (3, "6h"), (20, "24h")])
def test_without_a_choice_the_window_is_the_shortest_that_holds_what_ran(ran, web, member, hours, shown):
    ran(hours=hours, ended=None)
    assert chosen(web(member)) == shown
    assert chosen(web(member), "window=7d") == "7d"


def chosen(client: Client, query: str = "") -> str:
    """The window that the page says it shows."""
    html = client.get(f"/timeline?{query}").content.decode()
    links = html.split('aria-label="Time window"')[1].split("</nav>")[0]
    return re.search(r'aria-current="true">(\w+)<', links)[1]


@pytest.mark.parametrize("query", ["window=2y", "by=colour", "gpu_type=abacus"])
def test_what_it_does_not_know_is_not_found(web, member, cluster, query):
    assert web(member).get(f"/timeline?{query}").status_code == 404


@pytest.mark.parametrize("by", ["node", "team", "job"])
def test_more_runs_cost_no_more_queries(ran, web, staff, by, now):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(f"/timeline?by={by}").status_code == 200
        return len(captured)

    client = web(staff)
    forecast(ran(ended=None, gpus=2).job, now)
    client.get("/timeline")
    before = queries()
    for number in range(12):
        ran(f"more-{number}", gpus=1 + number % 2, hours=3 + number, ended=2 + number)
    assert queries() == before


def csv_rows(client: Client, query: str = "") -> list[dict[str, str]]:
    answer = client.get(f"/timeline?format=csv&{query}")
    return list(csv.DictReader(StringIO(b"".join(answer).decode())))


def test_the_csv_has_a_row_for_each_run_forecast_and_outage(ran, web, staff, now):
    attempt = ran("=1+1", gpus=2, ended=None)
    forecast(attempt.job, now)
    drain(Node.objects.first(), reason="fan", actor=staff)
    rows = csv_rows(web(staff))
    assert [row["kind"] for row in rows] == ["run", "expected", "outage"]
    assert rows[0]["name"] == "'=1+1"
    assert (rows[0]["gpus"], rows[0]["nodes"], rows[0]["until"], rows[0]["round"]) == ("2", attempt.nodes[0], "", "7")
    assert rows[1]["finish_median"] > rows[1]["finish_low"] > rows[0]["from"]
    assert rows[2]["outcome"] == "drained: fan"


def test_rest_tells_the_same_to_each_reader(ran, web, member, stranger, now):
    attempt = ran("train", gpus=2, ended=None)
    forecast(attempt.job, now)

    def told(user: User) -> dict[str, Any]:
        return web(user).get(reverse("timeline-report")).json()

    (run,), (expected,) = told(member)["runs"], told(member)["expected"]
    assert run["job"] == {"id": str(attempt.job_id), "name": "train", "team": "vision"}
    assert (run["gpus"], run["nodes"], run["until"], run["round"]) == (2, attempt.nodes, None, 7)
    assert expected["start"] is None
    assert expected["finish"]["low"] < expected["finish"]["high"]
    (hidden,) = told(stranger)["runs"]
    assert hidden == run | {"job": None, "attempt": None}


def test_of_a_run_of_another_team_only_gpus_and_times_are_told(ran, web, member, stranger):
    """Neither how often the job was started, nor how it ended: on the page, as CSV and by REST."""
    attempt = ran("their-secret", gpus=2)
    Attempt.objects.filter(pk=attempt.pk).update(number=17, outcome="timed_out")

    def told(user: User) -> list[Any]:
        client, query = web(user), "window=6h"
        page = [text for text, *_ in bars(figure_of(client, query))]
        table = client.get(f"/timeline?{query}").content.decode().split("Runs as a table")[1]
        (row,), (run,) = csv_rows(client, query), client.get(reverse("timeline-report")).json()["runs"]
        ends = ["timed out" in "".join(page), "timed out" in table, row["outcome"], run["outcome"]]
        return [*ends, "#17" in table, row["attempt"], run["attempt"], row["gpus"], run["gpus"]]

    assert told(member) == [True, True, "timed_out", "timed_out", True, "17", 17, "2", 2]
    assert told(stranger) == [False, False, "", "", False, "", None, "2", 2]


def test_rest_names_the_parameter_that_is_wrong(web, member, cluster):
    answer = web(member).get(reverse("timeline-report"), {"gpu_type": "abacus"})
    assert answer.status_code == 400
    assert "gpu_type" in answer.content.decode()
    assert "There is no GPU type abacus" in answer.content.decode()


# -- the cluster as of then --------------------------------------------------------------------------------------


@pytest.fixture
def standing(cluster: None, now: datetime) -> None:
    """The nodes were added four hours ago."""
    NodeEvent.objects.update(at=now - 4 * HOUR)


def then(client: Client, at: datetime, **query: str) -> str:
    return client.get(reverse("cluster-then"), {"at": int(at.timestamp()), **query}).content.decode()


def texts_of(html: str) -> list[str]:
    """What each node did."""
    return re.findall(r'class="dense-node"[^>]*aria-label="([^"]*)"', html)


def test_the_cluster_as_of_then_shows_who_held_which_gpus(standing, ran, web, member, now):
    attempt = ran("train", gpus=2, hours=3, ended=1)
    node, client = attempt.nodes[0], web(member)
    during, after = then(client, now - 2 * HOUR), then(client, now - HOUR / 2)
    assert f"{node}: 2 train (vision), 2 idle" in texts_of(during)
    assert f"{node}: 4 idle" in texts_of(after)
    assert f'<a href="{reverse("job", args=[attempt.job_id])}">train</a>' in during
    assert "2 of 8 busy" in during


def test_the_cluster_as_of_then_names_no_job_of_another_team(standing, ran, web, stranger, now):
    attempt = ran("train", gpus=2, hours=3, ended=1)
    html = then(web(stranger), now - 2 * HOUR)
    assert f"{attempt.nodes[0]}: 2 another team, 2 idle" in texts_of(html)
    assert "train" not in html


def test_the_cluster_as_of_then_knows_outages_and_nodes_that_came_later(standing, ran, web, member, now):
    node = Node.objects.get(name=ran(hours=3, ended=1).nodes[0])
    NodeInterval.objects.create(node=node, up=False, started_at=now - HOUR, ended_at=now - HOUR / 4, end="changed")
    client = web(member)
    assert f"{node}: 4 unhealthy" in texts_of(then(client, now - HOUR / 2))
    assert f"{node}: 4 idle" in texts_of(then(client, now - HOUR / 8))
    assert texts_of(then(client, now - 5 * HOUR)) == []


def test_a_node_that_went_when_it_had_been_drained_was_out_of_service_and_not_down(standing, ran, web, member, now):
    node = Node.objects.get(name=ran(hours=3, ended=2).nodes[0])
    NodeEvent.objects.create(node=node, kind="drained", at=now - HOUR, message="its owner has it back")
    Node.objects.filter(pk=node.pk).update(state="drained", health="lost", reason="given back")
    up = {"node": node, "started_at": now - 4 * HOUR, "ended_at": now - HOUR / 2}
    NodeInterval.objects.create(**up, up=True, end="announced")
    NodeInterval.objects.create(node=node, up=False, started_at=now - HOUR / 2)
    assert f"{node}: 4 out of service" in texts_of(then(web(member), now - HOUR / 4))
    now_shown = web(member).get(reverse("cluster")).content.decode()
    assert (now_shown.count("4 out of service"), "1 unhealthy" in now_shown, ">lost<" in now_shown) == (1, False, False)


def test_the_cluster_as_of_then_has_a_node_that_was_drained_and_retired_since(standing, ran, web, member, now):
    node = Node.objects.get(name=ran(gpus=2, hours=3, ended=2).nodes[0])
    NodeEvent.objects.create(node=node, kind="drained", at=now - HOUR)
    retire_node(node, reason="sold", actor=None)
    NodeEvent.objects.filter(node=node, kind="retired").update(at=now - HOUR / 2)
    client = web(member)
    found = [texts_of(then(client, now - hours * HOUR)) for hours in (2.5, 1.5, 0.75, 0.25)]
    assert [next((words for words in shown if str(node) in words), None) for shown in found] == [
        f"{node}: 2 train (vision), 2 idle",
        f"{node}: 4 idle",
        f"{node}: 4 out of service",
        None,
    ]


@pytest.mark.parametrize("query", ["at=soon", "at=9" + "9" * 40, "window=1y", "colour=red"])
def test_a_moment_that_is_none_is_not_found(ran, web, member, query):
    assert web(member).get(f"{reverse('cluster-then')}?{query}").status_code == 404


def test_the_cluster_as_of_then_costs_as_many_queries_however_many_jobs_there_were(standing, ran, web, member, now):
    client, counts = web(member), []
    for gpu in Gpu.objects.filter(index=0)[:2]:
        GpuClaim.objects.filter(attempt=ran(gpus=1, hours=3, ended=1)).update(gpu=gpu)
        with CaptureQueriesContext(connection) as queries:
            html = then(client, now - 2 * HOUR)
        counts.append((html.count(">train</a>"), len(queries)))
    assert [jobs for jobs, _ in counts] == [1, 2]
    assert counts[0][1] == counts[1][1]
