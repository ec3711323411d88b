"""Webhooks reach public addresses only; addresses are refused with the remedy, and their secrets stay secret."""

import socket
from importlib import import_module
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import quote

import httpcore
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from jobs_app.errors import InvalidSpec
from jobs_app.lifecycle.commands import cancel_job
from jobs_app.models import Notification, NotificationTarget
from jobs_app.notifications.address_guard import AddressRefused, GuardedBackend, refuse_private
from jobs_app.notifications.addresses import is_one_mail_address, parse_address
from jobs_app.notifications.mail_and_slack import NOT_ONE, send_mail
from jobs_app.notifications.sending import send_due
from jobs_app.notifications.targets import add_target
from jobs_app.notifications.texts import Text
from tests.notification_server import Received
from tests.rest_callers import caller
from tests.service_lab import Lab

Kind = NotificationTarget.Kind
TARGETS = "/api/v1/notification-targets"
PRIVATE = (
    *("127.0.0.1", "10.0.0.5", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("::1", "fd00::1", "fe80::1", "::ffff:10.0.0.5", "64:ff9b::a00:5", "2002:a00:5::1"),
    *("::127.0.0.1", "::10.0.0.5", "::ffff:0:127.0.0.1", "2600::5efe:10.0.0.5", "2600::200:5efe:127.0.0.1"),
)


@pytest.mark.parametrize("address", PRIVATE)
def test_no_address_that_is_not_public_is_connected_to(address: str) -> None:
    with pytest.raises(AddressRefused, match="not public"):
        refuse_private("a.example", [ip_address("8.8.8.8"), ip_address(address)], (), encrypted=True)


def test_a_public_address_is_connected_to_with_tls_and_an_allowed_one_without() -> None:
    refuse_private("a.example", [ip_address("8.8.8.8")], (), encrypted=True)
    refuse_private("a.example", [ip_address("10.0.0.5")], [ip_network("10.0.0.0/8")], encrypted=False)
    with pytest.raises(AddressRefused, match="https"):
        refuse_private("a.example", [ip_address("8.8.8.8")], [ip_network("10.0.0.0/8")], encrypted=False)


def test_a_name_that_leads_to_this_machine_is_found_out_at_delivery(
    cluster: Lab, hook: Received, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", hook.port))
    monkeypatch.setattr("jobs_app.notifications.address_guard.socket.getaddrinfo", lambda *_, **__: [place])
    settings.MOTLEY_WEBHOOK_NETWORKS = []
    add_target(Kind.WEBHOOK, f"https://rebound.example:{hook.port}/", ["job_ended"], team=None, actor=cluster.user())
    cancel_job(cluster.submit(), actor=None)
    send_due(timezone.now())
    refused = Notification.objects.get()
    assert (refused.state, hook.bodies) == ("dead", [])
    assert refused.error == "rebound.example has the address 127.0.0.1, which is not public."


def test_a_server_that_never_ends_its_answer_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        backend = GuardedBackend([ip_network("127.0.0.0/8")], encrypted=False, longest_s=0.2)
        stream = backend.connect_tcp("127.0.0.1", server.getsockname()[1])
        with pytest.raises(httpcore.ReadTimeout):
            stream.read(10, timeout=60)
        stream.close()


@pytest.mark.parametrize(
    ("kind", "address", "remedy"),
    [
        ("webhook", "ftp://example.org/", "as https://example.org/hook"),
        ("webhook", "https://", "as https://example.org/hook"),
        ("webhook", "https://example.org:99999/", "as https://example.org/hook"),
        ("webhook", "https://[::1/", "as https://example.org/hook"),
        ("webhook", "https://exämple.org/", "in ASCII"),
        ("webhook", "https://a b/", "without spaces"),
        ("webhook", "https://user:pass@example.org/", "Leave name and password out"),
        ("webhook", "http://example.org/", "Write https://"),
        ("webhook", "https://169.254.169.254/latest", "MOTLEY_WEBHOOK_NETWORKS"),
        ("webhook", f"https://example.org/{'x' * 1000}", "at most 1000 characters"),
        ("slack", "https://hooks.slack.com.evil.example/services/T/B/C", "https://hooks.slack.com/services/"),
        ("mail", "ada@example.org", "MOTLEY_MAIL_URL"),
    ],
)
def test_a_wrong_address_is_refused_with_the_remedy(kind: str, address: str, remedy: str) -> None:
    with pytest.raises(InvalidSpec, match="/address") as refusal:
        parse_address(Kind(kind), address)
    assert remedy in str(refusal.value)


@pytest.mark.parametrize(
    "address",
    [
        "ada",
        "ada@example.org,eve@example.org",
        "ada@example.org?cc=e@e.org",
        "a@b.org",
        '"eve@evil.org,"@example.org',
        '"ada lovelace"@example.org',
        "o'hara@example.org",
    ],
)
def test_mail_goes_to_one_address_of_a_domain_that_the_site_names(address: str, settings: Settings) -> None:
    settings.MOTLEY_MAIL_URL, settings.MOTLEY_MAIL_DOMAINS = "mailto://smtp.example.org", ["Example.org"]
    assert parse_address(Kind.MAIL, "ada@EXAMPLE.org").text == "ada@EXAMPLE.org"
    with pytest.raises(InvalidSpec):
        parse_address(Kind.MAIL, address)


def test_apprise_reads_every_address_that_is_accepted_as_it_was_written(settings: Settings) -> None:
    apprise = import_module("apprise")  # here, for its import takes each worker half a second
    for sign in "!#$%&*+/=?^_`{|}~-.":
        address = f"ada{sign}b@example.org"
        assert is_one_mail_address(address)
        plugin = apprise.Apprise.instantiate(
            f"mailto://smtp.example.org?from=m@example.org&to={quote(address, safe='')}"
        )
        assert [to for _, to in plugin.targets] == [address]


def test_no_mail_is_sent_to_what_an_earlier_release_accepted(settings: Settings) -> None:
    settings.MOTLEY_MAIL_URL = "mailto://127.0.0.1:1"
    assert send_mail('"eve@evil.org,"@example.org', Text("a", "b"), "1") == NOT_ONE


def test_a_webhook_added_over_rest_shows_its_key_once_and_the_secret_of_its_address_never(
    cluster: Lab, hook: Received, caplog: pytest.LogCaptureFixture
) -> None:
    ada, browser = caller(cluster.user()), Client()
    browser.force_login(cluster.user())
    spec = {"kind": "webhook", "address": hook.url, "events": ["job_ended"]}
    made = ada.post(TARGETS, spec, format="json")
    assert (made.status_code, made.data["address"]) == (201, f"http://127.0.0.1:{hook.port}/…")
    hook.statuses = [500]
    cancel_job(cluster.submit(), actor=None)
    send_due(timezone.now())
    pages: list[Any] = [ada.get(TARGETS), ada.get("/api/v1/notifications"), browser.get(reverse("notifications"))]
    said = "".join([*(answer.content.decode() for answer in pages), caplog.text])
    assert made.data["key"].startswith("whsec_")
    assert "answered with 500" in said
    assert not {"s3cret-path", made.data["key"]} & {part for part in ("s3cret-path", made.data["key"]) if part in said}
    row = NotificationTarget.objects.values_list("encrypted", "encrypted_key", "shown").get()
    assert "s3cret-path" not in "".join(row)
    assert made.data["key"] not in "".join(row)
