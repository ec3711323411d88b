"""Tokens over REST: shown once, revoked at once, and none makes one that may do more than itself."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from jobs_app.errors import NotAllowed
from jobs_app.models import ApiToken
from jobs_app.tokens import MOST_TOKENS, issue_token, revoke_token
from tests.rest_callers import Scope, caller, with_token
from tests.service_lab import Lab

ROUTE = "/api/v1/tokens"


def made(client: APIClient, **spec: object):
    return client.post(ROUTE, {"name": "ci", **spec}, format="json")


def test_a_new_token_works(ada: APIClient) -> None:
    answer = made(ada, scope="read")
    assert (answer.status_code, answer["Cache-Control"]) == (201, "no-store")
    assert with_token(answer.json()["token"]).get("/api/v1/me").json()["scope"] == "read"


def test_its_text_is_shown_once(ada: APIClient) -> None:
    token = made(ada).json()
    listed = ada.get(ROUTE).content + ada.get(f"{ROUTE}/{token['id']}").content
    assert token["token"].encode() not in listed
    assert token["prefix"].encode() in listed


def test_one_sees_ones_own_the_newest_first(cluster: Lab, ada: APIClient) -> None:
    issue_token(cluster.user("bob"), name="bobs", scope=Scope.READ)
    made(ada)
    assert [token["name"] for token in ada.get(ROUTE).json()["results"]] == ["ci", "test"]


def test_those_of_others_are_not_there(cluster: Lab, ada: APIClient) -> None:
    issue_token(cluster.user("bob"), name="bobs", scope=Scope.READ)
    pk = ApiToken.objects.get(name="bobs").pk
    assert ada.get(f"{ROUTE}/{pk}").status_code == ada.delete(f"{ROUTE}/{pk}").status_code == 404


def test_a_revoked_token_is_refused_from_then_on(ada: APIClient) -> None:
    token = made(ada).json()
    assert ada.delete(f"{ROUTE}/{token['id']}").status_code == 204
    assert with_token(token["token"]).get("/api/v1/me").status_code == 401
    assert ada.get(f"{ROUTE}/{token['id']}").json()["revoked_at"]


@pytest.mark.parametrize(
    ("own", "asked", "status"),
    [
        (Scope.READ, "read", 403),
        (Scope.SUBMIT, "read", 201),
        (Scope.SUBMIT, "submit", 201),
        (Scope.SUBMIT, "admin", 403),
        (Scope.ADMIN, "admin", 201),
    ],
)
def test_no_token_makes_a_wider_one(cluster: Lab, own: ApiToken.Scope, asked: str, status: int) -> None:
    assert made(caller(cluster.user(), own), scope=asked).status_code == status


def test_no_token_revokes_a_wider_one(cluster: Lab, ada: APIClient) -> None:
    issue_token(cluster.user(), name="wide", scope=Scope.ADMIN)
    assert ada.delete(f"{ROUTE}/{ApiToken.objects.get(name='wide').pk}").status_code == 403


def test_a_session_may_make_any(browser_of_ada) -> None:
    answer = browser_of_ada.post(ROUTE, {"name": "ci", "scope": "admin"}, content_type="application/json")
    assert (answer.status_code, answer.json()["scope"]) == (201, "admin")


def test_a_lifetime_is_counted_from_now(ada: APIClient) -> None:
    before = timezone.now()
    expires_at = datetime.fromisoformat(made(ada, expires_in="30d").json()["expires_at"])
    assert before + timedelta(days=30) <= expires_at <= timezone.now() + timedelta(days=30)


def test_without_one_it_is_for_ever(ada: APIClient) -> None:
    assert made(ada).json()["expires_at"] is None


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "two\nlines"}, "/name"),
        ({"scope": "root"}, "/scope"),
        ({"expires_in": "soon"}, "/expires_in"),
        ({"expires_in": "-1d"}, "/expires_in"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "/expires_at"),
        ({"expires_at": "tomorrow"}, "/expires_at"),
        ({"expires_at": "2099-01-01T00:00:00Z", "expires_in": "1d"}, "/expires_in"),
        ({"expires": "1d"}, "/expires"),
    ],
)
def test_what_is_wrong_is_pointed_at(ada: APIClient, spec: dict[str, str], pointer: str) -> None:
    answer = made(ada, **spec)
    assert (answer.status_code, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, [pointer])


def test_making_and_revoking_are_on_the_list_without_the_text(ada: APIClient) -> None:
    token = made(ada).json()
    ada.delete(f"{ROUTE}/{token['id']}")
    ada.delete(f"{ROUTE}/{token['id']}")
    entries = AuditEntry.objects.filter(target="ci").order_by("id")
    assert [entry.action for entry in entries] == ["token.create", "token.revoke"]
    assert token["token"] not in str(list(entries.values()))


def test_a_concurrent_change_is_noticed(ada: APIClient) -> None:
    token = made(ada).json()
    seen = ada.get(f"{ROUTE}/{token['id']}")["ETag"]
    ApiToken.objects.filter(pk=token["id"]).update(used_at=timezone.now())
    answer = ada.delete(f"{ROUTE}/{token['id']}", headers={"if-match": seen})
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")


def test_a_token_that_a_token_makes_does_not_outlive_it(cluster: Lab) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    text = issue_token(cluster.user(), name="first", scope=Scope.SUBMIT, expires_at=soon)
    assert made(with_token(text)).json()["expires_at"] is not None
    assert made(with_token(text), expires_in="30d").status_code == 201
    assert {token.expires_at for token in ApiToken.objects.filter(made_by__name="first")} == {soon}


def test_a_token_is_revoked_with_those_that_it_made(ada: APIClient) -> None:
    first = made(ada).json()
    second = made(with_token(first["token"])).json()
    third = made(with_token(second["token"])).json()
    ada.delete(f"{ROUTE}/{first['id']}")
    assert with_token(third["token"]).get("/api/v1/me").status_code == 401
    assert AuditEntry.objects.filter(action="token.revoke").count() == 3


def test_a_long_chain_of_tokens_is_revoked_with_its_first(ada: APIClient) -> None:
    """Whoever finds a token can have it make one that makes the next one, and so on."""
    first = ApiToken.objects.get(pk=made(ada).json()["id"])
    chain = [ApiToken(user=first.user, name=f"{n}", digest=f"{n}") for n in range(600)]
    ApiToken.objects.bulk_create(chain)
    for before, token in pairwise([first, *chain]):
        token.made_by = before
    ApiToken.objects.bulk_update(chain, ["made_by"])
    assert ada.delete(f"{ROUTE}/{first.pk}").status_code == 204
    assert [token.name for token in ApiToken.objects.filter(revoked_at=None)] == ["test"]
    assert AuditEntry.objects.filter(action="token.revoke").count() == len(chain) + 1


def test_a_person_has_at_most_a_thousand_valid_tokens(cluster: Lab, ada: APIClient) -> None:
    many = [ApiToken(user=cluster.user(), name=f"{n}", digest=f"{n}") for n in range(MOST_TOKENS - 1)]
    ApiToken.objects.bulk_create(many)
    refused = made(ada)
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "too_many")
    ApiToken.objects.filter(name="0").update(expires_at=timezone.now())
    assert made(ada).status_code == 201


def test_a_request_that_began_before_a_token_was_revoked_makes_none_after_it(ada: APIClient) -> None:
    """Whoever has found the token may ask for another one while it is being revoked."""
    made(ada)
    first = ApiToken.objects.select_related("user").get(name="ci")
    revoke_token(ApiToken.objects.get(name="ci"))
    with pytest.raises(NotAllowed, match="ended in the meantime"):
        issue_token(first.user, name="late", scope=Scope.READ, made_by=first)
    assert not ApiToken.objects.filter(name="late").exists()
