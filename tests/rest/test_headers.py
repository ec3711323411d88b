"""What every answer forbids the browser, and what the settings of a site behind TLS say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from rest_framework.test import APIClient

from tests.service_lab import Lab

ANSWERED = ["/", "/login/", "/no-such-page", "/api/v1/jobs", "/api/docs/", "/api/schema/", "/admin/login/", "/livez"]


@pytest.mark.parametrize("address", ANSWERED)
def test_every_answer_forbids_what_nothing_needs(db: None, api: APIClient, address: str) -> None:
    answer = api.get(address)
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer["Referrer-Policy"] == "same-origin"
    assert "camera=()" in answer["Permissions-Policy"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"


def test_what_a_job_printed_can_do_nothing(cluster: Lab, ada: APIClient) -> None:
    answer = ada.get(f"/api/v1/jobs/{cluster.submit().pk}/logs")
    assert answer["Content-Security-Policy"] == "sandbox"


def test_cookies_are_not_for_other_sites(cluster: Lab) -> None:
    user = cluster.user()
    user.set_password("a right password")
    user.save()
    browser = Client()
    browser.get("/login/")
    browser.post("/login/", {"username": "ada", "password": "a right password"})
    assert {cookie["samesite"] for cookie in browser.cookies.values()} == {"Lax"}
    assert browser.cookies["sessionid"]["httponly"]


def test_behind_tls_cookies_are_secure_and_plain_http_is_left(tmp_path: Path) -> None:
    environment = os.environ | {"MOTLEY_VAR": str(tmp_path), "MOTLEY_TLS": "1"}
    code = (
        "from django.conf import settings as s; print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, "
        "s.SECURE_SSL_REDIRECT, s.SECURE_HSTS_SECONDS > 30_000_000)"
    )
    environment["DJANGO_SETTINGS_MODULE"] = "config.settings"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4
