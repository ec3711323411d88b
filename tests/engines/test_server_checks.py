"""Checks of a server before it joins: what is said of each fact, and its remedy. Pure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.agent.checks import Asked, Facts, checks_of

ASKED = Asked("https://motley.example.org", "", "motley-job", "", Path("/var/lib/motley-agent"))
FACTS = Facts(
    gpu_type="h100",
    uuids=("GPU-1", "GPU-2"),
    faulty={},
    no_answer="",
    clock_s=0.2,
    address="10.0.0.7",
    own_addresses=frozenset({"10.0.0.7", "127.0.0.1"}),
    free_gib=100.0,
    is_root=True,
    job_uid=990,
    joined_url=None,
)


@dataclass
class Fault:
    name: str
    said: str
    facts: dict[str, Any]


FAULTS = [
    Fault("gpus", "No driver answers: install NVIDIA's", {"uuids": ()}),
    Fault("gpus", "GPU-2: fell off the bus. Repair or remove it first.", {"faulty": {"GPU-2": "fell off the bus"}}),
    Fault("service", "does not answer at https://motley.example.org (no route)", {"no_answer": "no route"}),
    Fault("clock", "The clock is 600 s ahead of the service: set it by NTP", {"clock_s": 600.0}),
    Fault("clock", "The clock is 61 s behind the service", {"clock_s": -61.0}),
    Fault("address", "No interface has the address 10.9.9.9: name one of 10.0.0.7", {"address": "10.9.9.9"}),
    Fault("address", "No address was found", {"address": ""}),
    Fault(
        "address",
        "It reaches the service at 127.0.1.1, where no other server reaches it: name one with --address, as 10.0.0.7.",
        {"address": "127.0.1.1"},
    ),
    Fault("disk", "1 GiB are free at /var/lib/motley-agent: it needs 5 GiB", {"free_gib": 1.4}),
    Fault(
        "joined",
        "This server has joined https://other.example.org already: revoke its agent there, end it here",
        {"joined_url": "https://other.example.org"},
    ),
    Fault("joined", "This server has joined a service already: revoke its agent there", {"joined_url": ""}),
]


def test_a_server_that_does_passes_every_check() -> None:
    assert [one["name"] for one in checks_of(ASKED, FACTS) if not one["passed"]] == []
    on_one_machine = checks_of(ASKED._replace(address="127.0.1.2"), FACTS._replace(address="127.0.1.2"))
    assert [one["name"] for one in on_one_machine if not one["passed"]] == []
    trial = checks_of(ASKED._replace(emulated="k80:4"), FACTS._replace(uuids=()))
    assert [one["name"] for one in trial if not one["passed"]] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.said[:30])
def test_what_is_wrong_is_named_with_its_remedy(fault: Fault) -> None:
    failed = [one for one in checks_of(ASKED, FACTS._replace(**fault.facts)) if not one["passed"]]
    assert [one["name"] for one in failed] == [fault.name]
    assert fault.said in failed[0]["said"]


def test_a_server_that_has_joined_the_service_is_updated_whatever_its_gpus_and_address_are() -> None:
    """They are those of `join`: one that was joined with emulated GPUs has no driver."""
    facts = FACTS._replace(joined_url="https://motley.example.org/", uuids=(), address="")
    assert [(one["name"], one["passed"]) for one in checks_of(ASKED, facts)] == [
        ("joined", True),
        ("service", True),
        ("clock", True),
        ("disk", True),
    ]
