"""Every page answers, shows what its reader may see, and costs as many queries for many rows as for few."""

import re
from collections import Counter
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounting_app.models import QuotaHour
from cluster_app.models import GpuType, Node
from insight_app.gpu_occupancy import GpuCounts
from jobs_app.models import Attempt, GpuClaim, Job, TeamQuota
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.dispatch import promote_waiting_claims
from tests.pages.conftest import decide
from tests.pages.sample_jobs import submit_samples
from web.pages.gpu_holders import OTHERS, held_types

LISTS = [
    "home",
    "jobs",
    "cluster",
    "rounds",
    "policies",
    "fairness",
    "utilization",
    "new-job",
    "tokens",
    "change-password",
    "audit",
]
TABS = ["overview", "why", "logs", "checkpoints", "gpus", "cost", "attempts", "events", "spec"]


@pytest.mark.parametrize("state", [Job.State.QUEUED, Job.State.STARTING])
def test_every_tab_of_a_job_answers(state, decided, member, web):
    address, client = reverse("job", args=[Job.objects.filter(state=state).first().pk]), web(member)
    assert {tab: client.get(address, {"tab": tab}).status_code for tab in TABS} == dict.fromkeys(TABS, 200)


def test_an_unknown_tab_is_not_found(decided, member, web):
    assert web(member).get(reverse("job", args=[Job.objects.first().pk]), {"tab": "no"}).status_code == 404


def test_a_job_of_another_team_has_no_tab_and_cannot_be_touched(jobs, stranger, web):
    client, job = web(stranger), jobs[0]
    answers = {tab: client.get(reverse("job", args=[job.pk]), {"tab": tab}).status_code for tab in TABS}
    verbs = ("hold", "release", "requeue")
    answers |= {verb: client.post(reverse("act", args=[job.pk, verb])).status_code for verb in verbs}
    client.post(reverse("cancel-jobs"), {"job": str(job.pk)})
    assert answers == dict.fromkeys((*TABS, *verbs), 404)
    assert Job.objects.get(pk=job.pk).state == Job.State.QUEUED


@pytest.mark.parametrize("page", ["jobs", "cluster", "rounds"])
def test_no_name_of_another_teams_job_is_shown(page, decided, stranger, web):
    shown = web(stranger).get(reverse(page)).content.decode()
    assert not [job.name for job in Job.objects.all() if job.name in shown]


def test_an_opened_round_counts_the_jobs_of_other_teams(decided, stranger, web):
    shown = web(stranger).get(reverse("round", args=[decided.number])).content.decode()
    assert re.search(r"and \d+ jobs of other teams", shown)


def waiting_on(client, address):
    """Ids of the waiting jobs on a round's page, and where the next ones are."""
    waiting = client.get(address).content.decode().split("<h2>Waiting</h2>")[1]
    return re.findall(r'href="/jobs/([^"]+)" data-row>', waiting), re.search(r'href="([^"]+)" rel="next"', waiting)


def test_a_round_shows_its_jobs_a_hundred_at_a_time(crowded, member, web):
    client, address = web(member), reverse("round", args=[crowded.number])
    first, following = waiting_on(client, address)
    last, no_more = waiting_on(client, unescape(following[1]))
    assert (len(first), no_more) == (100, None)
    assert {*first, *last} == {str(job.pk) for job in Job.objects.filter(state="queued", reason__gt="")}


def test_a_round_groups_waiting_jobs_by_reason_and_says_what_changed(crowded, member, web):
    address = reverse("round", args=[decide().number])
    shown = " ".join(web(member).get(address).content.decode().split())
    waiting = shown.split("<h2>Waiting</h2>")[1]
    assert len(re.findall('class="waiting-group"', waiting)) < 10 < waiting.count("data-row>")
    assert f'since <a href="/rounds/{crowded.number}">round {crowded.number}</a>' in shown
    assert 'id="prices"' in shown


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            "motley",
            "The shadow price is in hours that others wait per GPU-hour: how many hours earlier jobs would end,",
        ),
        ("fifo", "The shadow price is how much one more GPU of the type would have improved the objective"),
        ("gone_since", "The shadow price is how much one more GPU of the type would have improved the objective"),
    ],
)
def test_pages_say_what_a_shadow_price_is_under_the_policy_of_the_round(crowded, member, web, policy, words):
    Round.objects.update(policy=policy)
    job = Job.objects.filter(state="queued").latest("pk")
    for address in (reverse("round", args=[crowded.number]), reverse("job", args=[job.pk]) + "?tab=why"):
        assert words in " ".join(web(member).get(address).content.decode().split()), address


def test_the_chart_of_prices_has_rounds_of_one_policy(crowded, member, web):
    """Under another policy a price has another unit."""
    latest = decide()
    Round.objects.exclude(pk=latest.pk).update(policy="hadar")
    table = web(member).get(reverse("round", args=[latest.number])).content.decode().split("Chart data as a table")[1]
    assert re.findall(r'data-label="Round"><a href="/rounds/(\d+)"', table) == [str(latest.number)]


def test_the_archive_of_a_round_is_unpacked_once_for_all_who_read_it(crowded, member, web):
    client, job = web(member), Job.objects.filter(state="queued").latest("pk")
    addresses = [
        reverse("job", args=[job.pk]) + "?tab=why",
        reverse("round", args=[crowded.number]),
        f"/api/v1/rounds/{crowded.number}/decisions?cursor=3",
        f"/api/v1/jobs/{job.pk}/explain",
    ]
    client.get(addresses[0])
    with CaptureQueriesContext(connection) as asked:
        assert [client.get(address).status_code for address in addresses] == [200] * 4
    assert not [query["sql"] for query in asked if re.search(r'SELECT[^()]*"archive"[^()]*FROM', query["sql"])]


def test_a_round_whose_archive_is_deleted_is_shown_without_it(crowded, member, web):
    client, address = web(member), reverse("round", args=[crowded.number])
    assert "<h2>Waiting</h2>" in client.get(address).content.decode()
    Round.objects.update(archive=None)
    assert "<h2>Waiting</h2>" not in client.get(address).content.decode()


def test_a_gpu_with_a_job_of_another_team_says_only_that(decided, stranger, web):
    promote_waiting_claims(timezone.now())
    assert "another team" in web(stranger).get(reverse("cluster")).content.decode()


def statements(client, address) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    return [query["sql"] for query in captured]


def queries(client, address) -> int:
    return len(statements(client, address))


LITERAL = re.compile(r"'[^']*'(?:::\w+)?|\b\d+(?:\.\d+)?\b")
MOST_ALIKE = 4
"""Statements on one page that differ in their parameters alone; the samples start more jobs than that."""


@pytest.mark.parametrize(
    "page",
    [
        *LISTS,
        "energy",
        "usage",
        "estimates",
        "forecasts",
        "retention",
        "secrets",
        "notifications",
        "node",
        "round",
        *TABS,
    ],
)
def test_no_statement_is_sent_row_by_row(page, decided, staff, web):
    promote_waiting_claims(timezone.now())
    running = Attempt.objects.live().latest("pk").job
    of_one = {"node": [Node.objects.latest("pk").name], "round": [decided.number]}
    address = (
        f"{reverse('job', args=[running.pk])}?tab={page}" if page in TABS else reverse(page, args=of_one.get(page))
    )
    shapes = Counter(LITERAL.sub("?", sql) for sql in statements(web(staff), address))
    assert {shape: count for shape, count in shapes.items() if count > MOST_ALIKE} == {}


def test_a_member_reads_the_quotas_of_the_own_teams_and_what_they_cost(decided, member, stranger, web):
    kind, team = GpuType.objects.first(), member.teams.first()
    TeamQuota.objects.create(team=team, gpu_type=kind, gpus=1)
    hour = timezone.now() - timedelta(hours=1)
    QuotaHour.objects.create(team=team, gpu_type=kind, hour=hour, quota_s=3600, priced_s=3600, saved_job_s=360)
    said = f"The {kind} quota of {team} costs 2.4 h of waiting a day: one more GPU would save them."
    assert said in web(member).get(reverse("fairness")).content.decode()
    assert "quota of" not in web(stranger).get(reverse("fairness")).content.decode()


@pytest.mark.parametrize("page", ["home", "jobs", "cluster", "rounds", "fairness", "utilization"])
def test_the_number_of_queries_does_not_grow_with_rows(page, decided, member, staff, web):
    client, address = web(staff), reverse(page)
    Job.objects.update(owner=staff)
    few = queries(client, address)
    submit_samples(member)
    Job.objects.update(owner=staff)
    for number in range(decided.number + 1, decided.number + 20):
        now = timezone.now()
        Round.objects.create(number=number, started_at=now, shares_since=now, result="committed", policy="fifo")
    assert queries(client, address) <= few


def test_the_list_is_cut_into_pages_that_lead_on(cluster, member, web):
    for _ in range(5):
        submit_samples(member)
    client = web(member)
    first = client.get(reverse("jobs"))
    second = client.get(first.context["older"])
    names = [str(job.pk) for page in (first, second) for job in page.context["rows"]]
    assert names == [str(pk) for pk in Job.objects.values_list("pk", flat=True)]


def test_filters_become_chips_that_can_be_removed(jobs, member, web):
    answer = web(member).get(reverse("jobs"), {"q": "bert", "state": "queued", "owner": ""})
    assert [chip["without"] for chip in answer.context["chips"]] == ["?state=queued", "?q=bert"]


@pytest.mark.parametrize("query", [{"q": "no-such-job"}, {"tag": "sweep=1"}])
def test_a_filter_that_matches_nothing_offers_to_clear_it(query, jobs, member, web):
    assert "No job matches these filters" in web(member).get(reverse("jobs"), query).content.decode()


def test_a_live_update_brings_the_rows_alone(jobs, member, web):
    shown = web(member).get(reverse("jobs"), headers={"HX-Request": "true"}).content.decode()
    assert jobs[0].name in shown
    assert "<html" not in shown


def test_the_home_page_tells_a_newcomer_what_to_type(member, cluster, web):
    shown = web(member).get("/").content.decode()
    assert "motley login http://testserver" in shown
    assert "motley submit --team language -- python" in shown


def test_the_home_page_says_when_the_scheduler_is_silent(decided, member, web):
    long_ago = timezone.now() - timedelta(seconds=10 * PolicySetting.objects.current().round_length_s)
    Round.objects.update(started_at=long_ago)
    assert "The scheduler is not running" in web(member).get("/").content.decode()


def test_a_waiting_job_shows_who_holds_the_gpus_that_it_may_use(decided, member, web):
    job = Job.objects.filter(state=Job.State.QUEUED).first()
    held = web(member).get(reverse("job", args=[job.pk]), {"tab": "why"}).context["held_types"]
    claims = GpuClaim.objects.holding().values_list("gpu__node__gpu_type__name", "attempt__job__team__name")
    told = {(kind.gpu_type, one.name): one.gpus for kind in held for one in kind.holders}
    assert told == {
        pair: count for pair, count in Counter(claims).items() if pair[0] in {kind.gpu_type for kind in held}
    }
    assert all(kind.idle + sum(one.gpus for one in kind.holders) == kind.gpus for kind in held)


def test_the_teams_that_hold_gpus_are_named_to_their_members_only():
    counts = [GpuCounts("a100", 8, busy=6, idle=2, draining=0, unhealthy=0)]
    kind, *_ = held_types(counts, {("a100", "vision"): 2, ("a100", OTHERS): 3, ("a100", "audio"): 1}, first="vision")
    assert [(one.name, one.gpus, one.before) for one in kind.holders] == [
        ("vision", 2, 0),
        ("audio", 1, 2),
        (OTHERS, 3, 3),
    ]


def test_a_waiting_job_says_why_with_numbers(decided, member, web):
    job = next(job for job in Job.objects.queued() if job.reasons)
    shown = web(member).get(reverse("job", args=[job.pk]), {"tab": "why"}).content.decode()
    assert job.reasons[0]["detail"].split(":")[0] in shown


def test_a_job_on_emulated_gpus_says_so(decided, member, web):
    job = Attempt.objects.first().job
    assert "emulated" in web(member).get(reverse("job", args=[job.pk])).content.decode()


def test_no_page_needs_a_relaxed_content_security_policy(decided, staff, web):
    inline = r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*(\ssrc=|type=\"application/json\"))"
    client, job = web(staff), Job.objects.first()
    shown = {page: client.get(reverse(page)).content.decode() for page in LISTS}
    shown["job"] = client.get(reverse("job", args=[job.pk])).content.decode()
    assert [page for page, text in shown.items() if re.search(inline, text)] == []


def test_a_page_that_is_not_found_speaks_of_jobs_only_at_addresses_of_jobs(cluster, member, web) -> None:
    of_jobs = "a job is visible to the members of its team only"
    for address in ("/nodes/nope", "/rounds/99999"):
        page = web(member).get(address)
        assert (page.status_code, of_jobs in page.content.decode()) == (404, False), address
    page = web(member).get("/jobs/01910000-0000-7000-8000-000000000000")
    assert (page.status_code, of_jobs in page.content.decode()) == (404, True)
