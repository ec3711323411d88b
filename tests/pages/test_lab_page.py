"""Pages of the policy lab: the form, the runs and the result of one."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from insight_app.lab.runs import claim_run
from insight_app.lab.uploads import MOST_BYTES
from insight_app.models import LabRun
from tests.lab_history import a_day_of_jobs
from tests.service_lab import Lab

TRACE = b"name,arrival_s,gpus,duration_s,team\none,0,2,3600,=speech\ntwo,60,2,600,vision\n"
FORM = {"days": "7", "trace_format": "csv", "policies": ["srtf"]}

Web = Callable[[User], Client]


@pytest.fixture
def member(lab: Lab) -> User:
    a_day_of_jobs(lab)
    return User.objects.get(username="bob")


@pytest.fixture
def page(member: User, web: Web) -> Client:
    return web(member)


def simulated(lab: Lab, run: LabRun) -> LabRun:
    assert claim_run(lab.now) == run
    call_command("labrun", run.pk)
    run.refresh_from_db()
    assert run.result, run.message
    return run


def shown(page: Client, run: LabRun) -> str:
    return page.get(reverse("lab-run", args=[run.pk])).content.decode()


def test_the_page_of_a_policy_leads_to_a_run_of_it(page: Client) -> None:
    address = f"{reverse('lab')}?policy=srtf"
    assert f'href="{address}"' in page.get(reverse("policy", args=["srtf"])).content.decode()
    form = page.get(address).context["form"]
    assert form["policies"].value() == ["srtf"]
    assert "open" in page.get(address).content.decode().split("<summary>New run")[0].rsplit("<details", 1)[1]


def test_the_form_asks_for_a_run_and_its_page_shows_the_result(lab: Lab, page: Client) -> None:
    more = {"with_parameters": "sia:power=-0.5\n\n", "nodes-a100": "1", "team_weights": "language = 2\n"}
    more |= {"quotas": "language:a100=2:0\n", "budgets": "language=500/month:hard"}
    answer = page.post(reverse("lab"), FORM | more)
    run = LabRun.objects.get()
    assert answer["Location"] == reverse("lab-run", args=[run.pk])
    asked = (run.days, run.policies, run.nodes, run.team_weights)
    assert asked == (7, ["srtf", "sia:power=-0.5"], {"a100": 1}, {"language": 2.0})
    for words in ("language 2 a100 (0 borrowed at most)", "language 500 reference GPU-hours a month (hard)"):
        assert words in shown(page, run)
    assert "it begins once those before it have ended" in shown(page, run)
    html = shown(page, simulated(lab, run))
    assert run.result
    for words in (
        run.result["summary"].split(",")[0],
        "srtf: winners and losers",
        "By team",
        "2 to 4",
        "Energy, kWh",
        "fifo (present)",
    ):
        assert words in html, words
    folded = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert "Change" in html, "tables of winners and losers"
    assert "By team" in folded, "their charts"
    assert not re.search(r'data-label="(Change|Mean JCT)"', folded), (
        "the tables are folded, as their charts say the same"
    )
    assert html.index("Error of the simulation") < html.index("Comparison")
    assert re.search(r'data-label="srtf">\s*(\d+ (d|h|min|s) ?)+', html), "a time in words, beside its policy"


def test_an_uploaded_trace_is_simulated_and_its_names_are_text(lab: Lab, page: Client) -> None:
    trace = SimpleUploadedFile("trace.csv", TRACE.replace(b"=speech", b"<b>speech"))
    page.post(reverse("lab"), FORM | {"trace": trace})
    html = shown(page, simulated(lab, LabRun.objects.get()))
    assert "nobody knows what really happened to its jobs" in html
    assert "&lt;b&gt;speech" in html
    assert "<b>speech" not in html


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"policies": []}, "policies", "Choose a policy, or write one with parameters."),
        ({"with_parameters": "fastest"}, "with_parameters", "unknown policy 'fastest'"),
        ({"days": "0"}, "days", "greater than or equal to 1"),
        ({"nodes-a100": "-1"}, "nodes-a100", "No node would be left"),
        ({"team_weights": "vision"}, "team_weights", "is not TEAM=WEIGHT"),
        ({"team_weights": "vision=2"}, "team_weights", "there are: language"),
        ({"quotas": "language=2"}, "quotas", "is not TEAM:TYPE=GPUS"),
        ({"quotas": "language:h100=2"}, "quotas", "it has: a100"),
        ({"budgets": "language=2"}, "budgets", "is not TEAM=GPU-HOURS/PERIOD"),
        ({"budgets": "vision=2/week"}, "budgets", "there are: language"),
        ({"trace": b"name\n"}, "trace", "the header has no column arrival_s"),
        ({"trace": b"\xff\xfe"}, "trace", "The file is not text in UTF-8"),
        ({"trace": b"a" * (MOST_BYTES + 1)}, "trace", "more than 8 MiB"),
        ({"trace": TRACE, "trace_format": "gavel"}, "throughputs", "needs the table"),
    ],
)
def test_what_cannot_be_simulated_is_told_at_its_field(
    page: Client, change: dict[str, Any], field: str, words: str
) -> None:
    files = {name: SimpleUploadedFile(name, value) for name, value in change.items() if isinstance(value, bytes)}
    form = page.post(reverse("lab"), FORM | change | files).context["form"]
    assert words in " ".join(form.errors[field])
    assert not LabRun.objects.exists()


def test_a_fourth_unfinished_run_is_refused(page: Client) -> None:
    codes = [page.post(reverse("lab"), FORM).status_code for _ in range(4)]
    assert (codes, LabRun.objects.count()) == ([302, 302, 302, 200], 3)


def test_a_run_is_cancelled_on_its_page(page: Client) -> None:
    page.post(reverse("lab"), FORM)
    run = LabRun.objects.get()
    page.post(reverse("cancel-lab-run", args=[run.pk]))
    run.refresh_from_db()
    assert (run.state, "Cancel run" in shown(page, run)) == ("cancelled", False)


def test_a_page_that_renews_itself_is_loaded_anew_when_the_run_has_ended(lab: Lab, page: Client, member: User) -> None:
    run = LabRun.objects.create(owner=member, days=7, policies=["fifo"])
    address, live = reverse("lab-run", args=[run.pk]), {"HX-Request": "true"}
    assert "HX-Refresh" not in page.get(address, headers=live)
    LabRun.objects.update(state="failed", finished_at=lab.now, message="why")
    assert page.get(address, headers=live)["HX-Refresh"] == "true"


def test_a_result_is_hidden_from_those_who_left_its_teams(lab: Lab, page: Client, member: User) -> None:
    page.post(reverse("lab"), FORM)
    run = simulated(lab, LabRun.objects.get())
    member.teams.clear()
    html = shown(page, run)
    assert "The result has figures of teams whose jobs you may no longer see." in html
    assert "winners and losers" not in html


def test_a_policy_that_failed_is_told_beside_the_others(lab: Lab, page: Client) -> None:
    page.post(reverse("lab"), FORM | {"policies": ["srtf", "fifo"]})
    run = simulated(lab, LabRun.objects.get())
    assert run.result
    failed = {"failed": "It reached its memory limit", "figures": None, "curves": None, "teams": [], "sizes": []}
    run.result["policies"][0] |= failed
    run.save()
    assert "It could not be simulated. It reached its memory limit." in shown(page, run)


def test_the_list_makes_as_many_queries_with_many_runs_as_with_one(page: Client, member: User) -> None:
    counts = []
    for _ in range(2):
        LabRun.objects.create(owner=member, days=7, policies=["fifo"])
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page.get(reverse("lab"))
        counts.append(len(queries))
    assert counts[0] == counts[1]
