"""Callers of the REST interface, by token."""

from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs_app.models import ApiToken
from jobs_app.tokens import issue_token

Scope = ApiToken.Scope
SPEC = {"name": "net", "command": "true", "gpus": 1}


def with_token(text: str) -> APIClient:
    return APIClient(headers={"authorization": f"Bearer {text}"})


def caller(user: User, scope: Scope = Scope.SUBMIT) -> APIClient:
    return with_token(issue_token(user, name="test", scope=scope))
