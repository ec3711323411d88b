"""Attacks by a user with a browser, a token or a job."""

from itertools import chain

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, get_resolver
from rest_framework.test import APIClient

from cluster_app.models import Node, NodeEvent
from jobs_app.models import Attempt, Job, Team
from jobs_app.tokens import JobToken, issue_token
from tests.rest_callers import SPEC, Scope, caller, with_token
from tests.service_lab import UNTIL_LET_GO, Lab

RIGHT = "a right password"
ELSEWHERE = [
    "//evil.example",
    "https://evil.example/",
    "javascript:alert(1)",
    r"/\evil.example",
    "http:///evil.example",
]
ANSWERED = [
    "/",
    "/jobs",
    "/tokens",
    "/login/",
    "/no-such-page",
    "/api/v1/jobs",
    "/api/v1/nope",
    "/api/docs/",
    "/metrics",
]


@pytest.fixture
def visitor(cluster: Lab) -> Client:
    """A browser that is not logged in; ada's password is right."""
    user = cluster.user()
    user.set_password(RIGHT)
    user.save()
    return Client()


# -- tokens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "authorization", "bearer"])
def test_a_token_in_the_address_opens_nothing(cluster: Lab, name: str) -> None:
    text = issue_token(cluster.user(), name="test", scope=Scope.ADMIN)
    for address in ("/api/v1/jobs", "/api/v1/me"):
        answer = APIClient().get(address, {name: text})
        assert answer.status_code == 400  # an unknown parameter, whoever asks
        assert text not in answer.content.decode()
    assert Client().get("/jobs", {name: text}).status_code == 302


@pytest.mark.parametrize("scheme", ["Basic", "Token", "", "Bearer Bearer"])
def test_a_token_by_another_scheme_opens_nothing(cluster: Lab, scheme: str) -> None:
    text = issue_token(cluster.user(), name="test", scope=Scope.ADMIN)
    assert APIClient(headers={"authorization": f"{scheme} {text}"}).get("/api/v1/jobs").status_code == 401


def test_a_token_in_a_cookie_or_as_a_session_opens_nothing(cluster: Lab) -> None:
    text, client = issue_token(cluster.user(), name="test", scope=Scope.ADMIN), APIClient()
    for name in ("token", "sessionid", "authorization"):
        client.cookies[name] = text
    assert client.get("/api/v1/jobs").status_code == 401


def test_no_page_takes_a_token(cluster: Lab) -> None:
    text = issue_token(cluster.user(), name="test", scope=Scope.ADMIN)
    for address in ("/", "/jobs", "/tokens", "/admin/"):
        assert Client(headers={"authorization": f"Bearer {text}"}).get(address).status_code == 302


def test_the_token_of_an_attempt_is_no_token_of_the_next(cluster: Lab) -> None:
    job = cluster.submit(f"[ $MOTLEY_ATTEMPT = 2 ] || exit 1; {UNTIL_LET_GO}", retries=1)
    second = cluster.until(lambda: Attempt.objects.filter(job=job, number=2, state="running").first())
    tokens = [JobToken.issue(pk) for pk in (Attempt.objects.get(job=job, number=1).pk, second.pk)]
    assert [with_token(text).get(f"/api/v1/jobs/{job.pk}").status_code for text in tokens] == [401, 200]


@pytest.mark.parametrize("change", ["another attempt", "another signature", "of a session"])
def test_a_token_of_a_job_cannot_be_made_up(cluster: Lab, change: str, browser: Client) -> None:
    job = cluster.submit(UNTIL_LET_GO)
    cluster.running(job)
    own = JobToken.issue(job.attempts.get().pk)
    payload, rest = own.removeprefix("job_").split(":", 1)
    text = {
        "another attempt": f"job_{JobToken.issue(10**6).removeprefix('job_').split(':')[0]}:{rest}",
        "another signature": f"job_{payload}:{rest[:-3]}AAA",
        "of a session": f"job_{browser.cookies['sessionid'].value}",
    }[change]
    assert with_token(text).get(f"/api/v1/jobs/{job.pk}").status_code == 401


@pytest.mark.parametrize("scope", ["admin", ["admin"], {"admin": True}, "ADMIN", "submit admin", None])
def test_no_token_widens_its_scope(cluster: Lab, scope: object) -> None:
    root = cluster.user("root", "admins", staff=True)
    answer = caller(root).post("/api/v1/tokens", {"name": "wide", "scope": scope}, format="json")
    assert answer.status_code in {403, 422}


def test_a_token_chooses_neither_its_user_nor_its_scope(cluster: Lab) -> None:
    body = {"name": "mine", "user": cluster.user("root", staff=True).pk}
    assert caller(cluster.user()).post("/api/v1/tokens", body, format="json").status_code == 422
    body = SPEC | {"owner": "root"}
    assert caller(cluster.user()).post("/api/v1/jobs", body, format="json").status_code == 422


# -- sessions ------------------------------------------------------------------------------------------------------


def log_in(visitor: Client, address: str = "/login/", **fields: str):
    return visitor.post(address, {"username": "ada", "password": RIGHT, **fields})


def test_a_session_that_was_planted_is_not_the_one_signed_in_with(visitor: Client) -> None:
    visitor.cookies["sessionid"] = "planted"
    log_in(visitor)
    assert visitor.cookies["sessionid"].value != "planted"
    planted = Client()
    planted.cookies["sessionid"] = "planted"
    assert planted.get("/").status_code == 302


def test_a_session_from_before_has_a_new_key_after_the_login(visitor: Client) -> None:
    session = visitor.session
    session["basket"] = "full"
    session.save()
    before = str(session.session_key)
    log_in(visitor)
    assert visitor.cookies["sessionid"].value != before
    old = Client()
    old.cookies["sessionid"] = before
    assert old.get("/").status_code == 302


def test_the_forms_token_is_a_new_one_after_the_login(visitor: Client) -> None:
    visitor.get("/login/")
    before = visitor.cookies["csrftoken"].value
    log_in(visitor)
    assert visitor.cookies["csrftoken"].value != before


def test_after_the_logout_the_old_cookie_opens_nothing(visitor: Client) -> None:
    log_in(visitor)
    stolen = Client()
    stolen.cookies["sessionid"] = visitor.cookies["sessionid"].value
    assert stolen.get("/").status_code == 200
    visitor.post("/logout/")
    assert stolen.get("/").status_code == 302


def test_a_link_signs_no_user_out(visitor: Client) -> None:
    log_in(visitor)
    assert visitor.get("/logout/").status_code == 405
    assert visitor.get("/").status_code == 200


@pytest.mark.parametrize("page", ["/login/", "/admin/login/"])
def test_a_login_leads_to_no_other_site(visitor: Client, page: str) -> None:
    User.objects.update(is_staff=True)
    for there in ELSEWHERE:
        visitor.logout()
        answer = log_in(visitor, f"{page}?next={there}", next=there)
        assert answer.status_code == 302, there
        assert "evil" not in answer.url
        assert answer.url.startswith("/")


def test_a_logout_leads_to_no_other_site(visitor: Client) -> None:
    for there in ELSEWHERE:
        log_in(visitor)
        assert "evil" not in visitor.post(f"/logout/?next={there}", {"next": there}).headers["Location"]


# -- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["host", "x-forwarded-host", "x-original-url", "x-rewrite-url"])
def test_a_forged_host_is_in_no_answer(cluster: Lab, header: str) -> None:
    for address in ("/", "/login/", "/api/v1/jobs", "/admin/"):
        answer = Client(headers={header: "evil.example"}).get(address)
        assert "evil.example" not in answer.content.decode(), address
        assert "evil.example" not in str(answer.headers), address
        assert answer.status_code == 400 or header != "host", address


def test_other_sites_may_read_and_frame_nothing(browser: Client) -> None:
    for address in ANSWERED:
        answer = browser.get(address, headers={"origin": "https://evil.example"})
        assert [name for name in answer.headers if name.lower().startswith("access-control-")] == [], address
        assert answer["X-Frame-Options"] == "DENY", address
        assert "frame-ancestors 'none'" in answer["Content-Security-Policy"], address


def test_a_question_before_a_call_from_another_site_is_not_answered_yes(browser: Client) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = browser.options("/api/v1/jobs", headers=asked)
    assert answer.status_code == 405
    assert "Access-Control-Allow-Origin" not in answer


def test_a_session_of_another_site_cannot_write(cluster: Lab) -> None:
    """By a form, whose kinds of bodies a browser sends without asking; and by JSON with the cookie alone."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(cluster.user())
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
        answer = client.post("/api/v1/jobs", '{"name": "x", "command": "true", "gpus": 1}', content_type=kind)
        assert answer.status_code == 403
    assert Job.objects.count() == 0


def pages() -> list[str]:
    """Every address that names nothing in particular."""
    patterns = chain.from_iterable(getattr(p, "url_patterns", [p]) for p in get_resolver().url_patterns)
    found = {f"/{pattern.pattern}" for pattern in patterns if isinstance(pattern, URLPattern)}
    return sorted(route for route in found if "<" not in route and "(" not in route and "^" not in route)


METHODS = ["TRACE", *(pytest.param(method, marks=pytest.mark.thorough) for method in ("CONNECT", "PROPFIND"))]


@pytest.mark.parametrize("method", METHODS)
def test_unusual_methods_tell_nothing(browser: Client, method: str) -> None:
    for address in [*ANSWERED, *pages()]:
        answer = browser.generic(method, address, headers={"x-secret": "swordfish"})
        assert answer.status_code in {302, 403, 404, 405}, address
        assert "swordfish" not in answer.content.decode()


# -- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5_000, "-1", "0"])
def test_numbers_in_addresses_are_found_or_not(browser: Client, ada: APIClient, number: str) -> None:
    for address in (f"/rounds/{number}", f"/tokens/{number}/revoke", f"/rounds/{number}/replay"):
        assert browser.post(address).status_code in {404, 405}, address
        assert browser.get(address).status_code in {404, 405}, address
    for address in (f"rounds/{number}", f"rounds/{number}/decisions", f"tokens/{number}", f"policies/history/{number}"):
        assert ada.get(f"/api/v1/{address}").status_code in {404, 405}, address


OF_ANYTHING = ("nodes/{}", "teams/{}", "client/{}", "jobs/compare?add={}")
OF_ANYTHING_BY_REST = ("nodes/{}", "nodes/{}/gpus", "teams/{}/members", "teams/{}/invitations", "policies/{}")


def test_nothing_has_a_nul_in_its_address(browser: Client, ada: APIClient) -> None:
    """PostgreSQL cannot be asked for it."""
    for address in OF_ANYTHING:
        assert browser.get(f"/{address.format('a%00')}").status_code == 404, address
    for address in OF_ANYTHING_BY_REST:
        assert ada.get(f"/api/v1/{address.format('a%00')}").status_code == 404, address


def test_no_text_of_a_form_breaks_a_page(cluster: Lab, browser: Client) -> None:
    """Pages limit what is typed, scripts need not."""
    team, node = Team.objects.get().name, Node.objects.first()
    User.objects.filter(username="ada").update(is_staff=True)
    for address in (f"/nodes/{node}/cordon", f"/nodes/{node}/resume", f"/teams/{team}/remove"):
        assert browser.post(address, {"reason": "\0" + "x" * 999, "username": "\0"}).status_code in {302, 404}, address
    spec = 'name: a\nteam: vision\ncommand: x\ngpus: 1\nafter: ["a\\0b"]'
    assert "that no name may have" in browser.post("/jobs/new", {"mode": "yaml", "yaml": spec}).content.decode()
    node.refresh_from_db()
    assert node.state == "ready"
    assert NodeEvent.objects.filter(kind="cordoned", message="x" * 200).exists()


MORE_TEXTS = [pytest.param(text, marks=pytest.mark.thorough) for text in ("%ff", "%F0%9F%98%80", "%ED%A0%80")]


@pytest.mark.parametrize("text", ["%00", "%0d%0aSet-Cookie:%20a=b", *MORE_TEXTS])
def test_no_text_in_a_query_breaks_a_page(browser: Client, ada: APIClient, text: str) -> None:
    browser.raise_request_exception = ada.raise_request_exception = False
    for name in (
        "q",
        "state",
        "team",
        "owner",
        "tag",
        "cursor",
        "limit",
        "array",
        "tab",
        "template",
        "clone",
        "window",
    ):
        for address in ("/jobs", "/", "/audit", "/rounds", "/jobs/new", "/fairness", "/utilization", "/cluster"):
            answer = browser.get(f"{address}?{name}={text}")
            assert answer.status_code in {200, 400, 404}, (address, name)
            assert "Set-Cookie" not in str(answer.headers)
        listed = ada.get(f"/api/v1/jobs?{name}={text}")
        assert listed.status_code in {200, 400, 404}, name
