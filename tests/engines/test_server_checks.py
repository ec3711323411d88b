"""Checks of a server before it joins: what is said of each fact, and its remedy. Pure."""

import json
import pwd
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from engines.agent import install
from engines.agent.__main__ import main as agent_main
from engines.agent.checks import Asked, Facts, checks_of, facts_of, number_check, system_numbers
from engines.protocol import EngineError

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


def test_a_number_that_another_account_has_is_found_before_anything_is_written() -> None:
    new = FACTS._replace(job_uid=None)
    (fault,) = number_check(ASKED, new, 1)
    owner = pwd.getpwuid(1).pw_name
    assert (fault["name"], fault["passed"]) == ("account", False)
    assert f"is to have the number 1, as on the other servers, and {owner} has it here" in fault["said"]
    free = next(one for one in range(60_000, 2**16) if one not in {entry.pw_uid for entry in pwd.getpwall()})
    assert [*number_check(ASKED, new, free), *number_check(ASKED, new, None), *number_check(ASKED, FACTS, 1)] == []
    assert {*system_numbers()} <= {entry.pw_uid for entry in pwd.getpwall()}


@pytest.mark.parametrize("number", ["0", "-1", "many", str(2**32)])
def test_what_is_no_number_of_an_account_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        install.main(["--url", "https://motley.example.org", "--job-uid", number])
    assert "--job-uid" in capsys.readouterr().err


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
    Fault("account", "Jobs cannot run as motley-job, which is root: choose another", {"job_uid": 0}),
    Fault(
        "account",
        "This account may not write to /opt/motley-agent: log in as root (root@HOST)",
        {"is_root": False, "closed": (Path("/opt/motley-agent"),)},
    ),
    Fault("account", "is the disk read-only?", {"closed": (Path("/opt/motley-agent"),)}),
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


@pytest.mark.parametrize("gpus", ["k80", "k80:", "k80:0", ":4", "k80:many"])
def test_emulated_gpus_without_a_number_are_refused_before_anything_is_written(gpus: str) -> None:
    (failed,) = [one for one in checks_of(ASKED._replace(emulated=gpus), FACTS) if not one["passed"]]
    assert (failed["name"], "is no type and number of GPUs, as k80:4." in failed["said"]) == ("gpus", True)


@pytest.mark.parametrize("name", ["Über", "a b", "--root", ""])
def test_an_account_that_cannot_be_created_is_refused_and_one_that_is_there_is_not(name: str) -> None:
    asked = ASKED._replace(job_user=name)
    (failed,) = [one for one in checks_of(asked, FACTS._replace(job_uid=None)) if not one["passed"]]
    assert (failed["name"], "is not a valid user name" in failed["said"]) == ("account", True)
    assert all(one["passed"] for one in checks_of(asked, FACTS))


def test_what_cannot_be_written_is_found_by_looking(tmp_path: Path) -> None:
    """In a file no folder can be made, by root neither."""
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o400)
    asked = ASKED._replace(
        url="http://127.0.0.1:1", emulated="k80:4", state=tmp_path / "state", prefix=tmp_path / "file" / "program"
    )
    assert facts_of(asked).closed == (asked.prefix,)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that answers; this machine is a server that does."""
    facts = FACTS._replace(is_root=False, joined_url=None)
    monkeypatch.setattr("engines.agent.install.facts_of", lambda _: facts)
    monkeypatch.delenv("MOTLEY_JOIN_TOKEN", raising=False)


class LetsJoin(BaseHTTPRequestHandler):
    """A service that lets every server join."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200 if asked["trial"] else 409)  # to join it would use the token up
        self.end_headers()
        self.wfile.write(b'{"node": "gpu7", "site": true}')

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def that_lets_join() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), LetsJoin) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def words(folder: Path, *more: str) -> list[str]:
    places = ["--state", str(folder / "state"), "--prefix", str(folder / "program")]
    return ["--url", "https://motley.example.org", *places, *more]


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("more", [[], ["--token-file", "/no/such/file"]])
def test_a_token_that_is_not_there_is_said_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert install.main(words(tmp_path, *more)) == 1
    said = capsys.readouterr()
    assert "FAIL token: " in said.out
    assert (said.err, list(tmp_path.iterdir())) == ("Nothing was written.\n", [])
    assert install.main(words(tmp_path, *more, "--check")) == 0


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("error", [EngineError("The user motley-job could not be created"), OSError(28, "disk full")])
def test_what_fails_while_it_writes_is_said_in_a_line(
    tmp_path: Path,
    that_lets_join: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("engines.agent.install._install", fails)
    monkeypatch.setenv("MOTLEY_JOIN_TOKEN", "join_secret")
    assert install.main(["--url", that_lets_join, *words(tmp_path)[2:]]) == 1
    assert capsys.readouterr().err == f"FAIL {error}\n"


@pytest.mark.usefixtures("answering")
def test_what_the_service_refuses_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here it cannot be asked."""
    monkeypatch.setenv("MOTLEY_JOIN_TOKEN", "join_secret")
    assert install.main(["--url", "http://127.0.0.1:1", *words(tmp_path)[2:]]) == 1
    said = capsys.readouterr()
    assert "FAIL joining: The service does not answer" in said.out
    assert (said.err, list(tmp_path.iterdir())) == ("Nothing was written.\n", [])


def test_a_token_file_that_is_missing_is_said_in_a_line_by_join(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    join = ["join", "--url", "https://motley.example.org", "--gpus", "k80:1", "--job-user", "nobody"]
    assert agent_main([*join, "--state", str(place / "state"), "--token-file", "/no/such/file"]) == 1
    assert "No such file or directory: '/no/such/file'" in capsys.readouterr().err


def test_a_server_that_has_joined_the_service_is_updated_whatever_its_gpus_and_address_are() -> None:
    """They are those of `join`: one that was joined with emulated GPUs has no driver."""
    facts = FACTS._replace(joined_url="https://motley.example.org/", uuids=(), address="")
    assert [(one["name"], one["passed"]) for one in checks_of(ASKED, facts)] == [
        ("joined", True),
        ("service", True),
        ("clock", True),
        ("disk", True),
    ]
