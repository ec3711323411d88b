"""Permissions on pages: every address with every kind of user. An address without a row fails."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve, reverse

from allocation.policies import POLICIES
from cluster_app.models import Node
from insight_app.models import LabRun
from jobs_app.models import ApiToken, Job, Notification
from jobs_app.secrets import set_secret
from jobs_app.tokens import issue_token
from operations.client_wheel import wheel_name
from scheduler_app.models import PolicySetting
from tests.notification_server import webhook_of
from tests.pages.conftest import decide
from tests.rest.world import added_recipe, added_recurring_job, ended_sweep
from tests.screenshots import ADMINISTRATOR as OF_ADMINISTRATORS
from tests.screenshots import PAGES as SCREENSHOTS
from tests.shared_rows import shared_rows

ELSEWHERE = ("admin/", "api/", "static/")
"""Django's own site, and REST, whose routes have a table of their own."""


NO_PICTURES = {
    *("login", "invitation", "client-wheel", "agent-install", "agent-program"),
    *("livez", "readyz", "healthz-scheduler", "metrics"),
}


@dataclass(frozen=True)
class Row:
    """Status codes: `anonymous`, `stranger` of another team, `member` of the job's team, `staff`."""

    member: int = 200
    stranger: int = 200
    staff: int = 200
    anonymous: int = 302
    of: str = ""
    """What the address names: a job, a node, a round, a policy, a setting of the past, a lab run, a token, a team."""
    post: dict[str, Any] | None = None
    also: tuple[str, ...] = field(default=())


LIST = Row()
OPEN = Row(anonymous=200)
DEED = {"member": 302, "staff": 302}
TIMES = {"round_length_s": 60, "min_run_s": 0, "solve_limit_part": 0.5, "cpu_memory": "proportional"}
PAGES: dict[str, Row] = {
    "home": LIST,
    "submit-burst": Row(404, 404, 404, post={}),
    "jobs": LIST,
    "new-job": LIST,
    "check-job": Row(post={"mode": "yaml", "yaml": "name: x\n"}),
    "forecast-job": Row(post={"mode": "yaml", "yaml": "name: x\n"}),
    "compare-jobs": LIST,
    "cancel-jobs": Row(**DEED, stranger=302, post={}),
    "act-on-jobs": Row(**DEED, stranger=302, post={}, also=("hold",)),
    "job": Row(of="job", stranger=404),
    "raw-log": Row(of="job", stranger=404, member=404, staff=404),
    "job-file": Row(of="job", stranger=404, member=404, staff=404),
    "would-start": Row(of="job", stranger=404),
    "job-graph": Row(of="job", stranger=404),
    "act": Row(of="job", stranger=404, **DEED, post={}, also=("hold",)),
    "edit-job": Row(of="job", stranger=404),
    "comment": Row(of="job", stranger=404, **DEED, post={"text": "loss is NaN"}),
    "delete-comment": Row(404, 404, 404, of="job", post={}, also=(1,)),
    "recipes": LIST,
    "new-recipe": LIST,
    "recipe": Row(of="recipe", stranger=404),
    "change-recipe": Row(of="recipe", stranger=404),
    "delete-recipe": Row(of="recipe", stranger=404, **DEED, post={}),
    "recurring-jobs": LIST,
    "new-recurring-job": LIST,
    "recurring-job": Row(of="recurring", stranger=404),
    "change-recurring-job": Row(of="recurring", stranger=404),
    "act-on-recurring-job": Row(of="recurring", stranger=404, **DEED, post={}, also=("pause",)),
    "sweeps": LIST,
    "new-sweep": LIST,
    "sweep": Row(of="sweep", stranger=404),
    "act-on-sweep": Row(of="sweep", stranger=404, **DEED, post={}, also=("stop",)),
    "cluster": LIST,
    "cluster-then": LIST,
    "add-server": Row(member=403, stranger=403),
    "node": Row(of="node"),
    "act-on-node": Row(of="node", stranger=403, member=403, staff=302, post={"reason": "fan"}, also=("drain",)),
    "timeline": LIST,
    "rounds": LIST,
    "round": Row(of="round"),
    "replay": Row(of="round", post={}),
    "policies": LIST,
    "policy": Row(of="policy"),
    "choose-policy": Row(of="policy", stranger=403, member=403, staff=302, post=TIMES),
    "preview-policy": Row(of="policy", stranger=403, member=403, post=TIMES),
    "undo-policy": Row(of="setting", stranger=403, member=403, staff=302, post={}),
    "apply-lab-run": Row(of="run", stranger=403, member=403, staff=302, post={"policy": "fifo"}),
    "go-back": Row(of="setting", stranger=403, member=403, staff=302, post={}),
    "lab": LIST,
    "lab-run": Row(of="lab", stranger=404),
    "cancel-lab-run": Row(of="lab", stranger=404, member=302, staff=302, post={}),
    "fairness": LIST,
    "utilization": LIST,
    "energy": LIST,
    "usage": LIST,
    "report": LIST,
    "estimates": LIST,
    "forecasts": LIST,
    "retention": Row(member=403, stranger=403),
    "site": Row(member=403, stranger=403),
    "teams": LIST,
    "team": Row(of="team", stranger=404),
    "act-on-team": Row(of="team", stranger=404, member=403, staff=302, also=("limits",), post={}),
    "secrets": LIST,
    "delete-secret": Row(of="secret", stranger=404, member=302, staff=302, post={}),
    "notifications": LIST,
    "act-on-target": Row(of="target", stranger=404, member=302, staff=404, post={}, also=("test",)),
    "send-notification": Row(of="notification", stranger=404, member=302, staff=404, post={}),
    "account": LIST,
    "tokens": LIST,
    "revoke-token": Row(of="token", stranger=404, member=302, staff=404, post={}),
    "change-password": LIST,
    "audit": LIST,
    "glossary": LIST,
    "client": OPEN,
    "client-wheel": Row(anonymous=200, also=(wheel_name(),)),
    "agent-install": OPEN,
    "agent-program": OPEN,
    "favicon": Row(302, 302, 302),
    "livez": OPEN,
    "readyz": OPEN,
    "healthz-scheduler": OPEN,
    "metrics": OPEN,
    "login": OPEN,
    "invitation": OPEN,
    "oidc-begin": Row(404, 404, 404, anonymous=404),
    "oidc-end": Row(404, 404, 404, anonymous=404),
    "logout": Row(302, 302, 302, post={}),
}


def names(patterns: Any = None, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for pattern in patterns if patterns is not None else get_resolver().url_patterns:
        route = prefix + str(pattern.pattern)
        if route.startswith(ELSEWHERE):
            continue
        if isinstance(pattern, URLResolver):
            found |= names(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            found.add(pattern.name or route)
    return found


def test_every_address_has_a_row():
    assert names() == set(PAGES)


@shared_rows
def places(decided, member) -> dict[str, Any]:
    issue_token(member, name="test", scope=ApiToken.Scope.READ)
    job = Job.objects.filter(state=Job.State.QUEUED).first()
    target = webhook_of(member)
    return {
        "job": job.pk,
        "team": job.team.name,
        "node": Node.objects.first().name,
        "round": decided.number,
        "policy": "fifo",
        "lab": LabRun.objects.create(owner=member, days=7, policies=["fifo"]).pk,
        "setting": PolicySetting.objects.create().pk,
        "secret": set_secret("KEY", "long enough", team=job.team, actor=member).pk,
        "recipe": added_recipe(member).pk,
        "recurring": added_recurring_job(member).pk,
        "sweep": ended_sweep(member).pk,
        "target": target.pk,
        "notification": Notification.objects.create(target=target, event="test", key="1", facts={"by": "mia"}).pk,
        "run": LabRun.objects.create(owner=member, days=7, policies=["fifo"]).pk,
        "token": ApiToken.objects.get(user=member).pk,
    }


@pytest.fixture
def clients(member, stranger, staff, web) -> dict[str, Client]:
    return {"anonymous": Client(), "stranger": web(stranger), "member": web(member), "staff": web(staff)}


@pytest.mark.parametrize("who", ["anonymous", "stranger", "member", "staff"])
def test_each_is_answered_what_is_theirs(who, places, clients):
    decide()  # the health of the scheduler depends on the time of its last round; that of the shared rows may be old
    answers = {page: status_for(clients[who], address_of(page, places), row.post) for page, row in PAGES.items()}
    assert answers == {page: getattr(row, who) for page, row in PAGES.items()}


def test_whoever_is_not_logged_in_is_asked_to(places):
    pages = {page: row for page, row in PAGES.items() if row.anonymous == 302}
    targets = {page: answer_of(Client(), address_of(page, places), row.post)["Location"] for page, row in pages.items()}
    assert {page for page, target in targets.items() if not target.startswith("/login/")} == {"favicon"}


def test_pages_answer_on_an_empty_service(member, staff, web):
    pages = {page: row for page, row in PAGES.items() if (row.staff, row.anonymous, row.of) == (200, 302, "")}
    for who in ("member", "staff"):
        client = web({"member": member, "staff": staff}[who])
        answers = {page: status_for(client, address_of(page, {}), row.post) for page, row in pages.items()}
        assert answers == {page: getattr(row, who) for page, row in pages.items()}


def address_of(page: str, places: dict[str, Any]) -> str:
    row = PAGES[page]
    return reverse(page, args=[*([places[row.of]] if row.of else []), *row.also])


def status_for(client: Client, address: str, post: dict[str, Any] | None) -> int:
    """It is undone, so that the next finds everything as it was."""
    with transaction.atomic():
        answer = answer_of(client, address, post)
        transaction.set_rollback(True)
    return answer.status_code


def answer_of(client: Client, address: str, post: dict[str, Any] | None) -> Any:
    return client.get(address) if post is None else client.post(address, post)


def test_make_screenshots_takes_every_page(places):
    named = dict.fromkeys(("job", "waiting", "failed", "array"), places["job"]) | places
    paths = [path.format_map(named).partition("?")[0] for path in (SCREENSHOTS | OF_ADMINISTRATORS).values()]
    taken = {resolve(f"/{path}").url_name for path in paths}
    assert SCREENSHOTS["policy"].removeprefix("policies/") in POLICIES
    seen = {name for name, row in PAGES.items() if row.staff == 200 and row.post is None}
    assert taken - {"cancel-jobs"} == seen - NO_PICTURES


def test_nothing_is_done_without_the_csrf_token(places, member):
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    posts = {page: row.post for page, row in PAGES.items() if row.post is not None}
    answers = {page: client.post(address_of(page, places), post).status_code for page, post in posts.items()}
    assert answers == dict.fromkeys(posts, 403)
