"""`motley server add`: all servers are checked before anything is written on one; ssh is a script of the test."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connections_app.models import Agent
from jobs_app.models.team import digest_of
from motley_command import server_setup
from motley_command.server_setup import (
    Found,
    faults_among,
    found_in,
    install,
    look_at,
    name_of,
    number_for,
    why_not_from,
)
from tests.live_service import Live
from tests.motley_command import Motley

URL = "https://motley.example.org"
LOCAL = "127.0.0.1"
CHECKS = [{"name": "gpus", "passed": True, "said": "8 x h100."}, {"name": "clock", "passed": True, "said": "in step."}]
SSH = """#!/bin/sh
for destination; do [ "$destination" = -- ] && break; shift; done
folder=${0%/*}/$2
shift 2
printf '%s\\n' "$1" >> "$folder/asked"
cat > "$folder/given"
cat "$folder/out"
cat "$folder/errors" >&2
exit "$(cat "$folder/code")"
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of what each host answers; ssh of the test lies there."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def host(hosts: Path, name: str, out: Any = "", errors: str = "", code: int = 0) -> Path:
    folder = hosts / name
    folder.mkdir()
    files = {"out": out if isinstance(out, str) else json.dumps(out), "errors": errors, "code": str(code)}
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def told(checks: Any = CHECKS, **more: Any) -> dict[str, Any]:
    return {"host": "x", "uuids": ["GPU-1"], "job_uid": 990, "checks": checks, **more}


def test_a_server_is_checked_by_its_own_line_and_nothing_is_written(hosts: Path) -> None:
    folder = host(hosts, "root@gpu7", told())
    found = look_at("root@gpu7", URL, ["--gpus", "k80:4"])
    assert found == Found("root@gpu7", "gpu7", ("GPU-1",), 990, ["gpus: 8 x h100.", "clock: in step."], [])
    asked = (folder / "asked").read_text().strip()
    fetched = f"script=$(curl --proto '=https' -fsS {URL}/agent/install)"
    run = "sh -s -- --check --json --gpus k80:4"
    assert shlex.split(asked) == ["exec", "sh", "-c", f"{fetched} && printf '%s\\n' \"$script\" | {run}"]


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ("ssh: connect to host gpu7 port 22: No route to host", 255, "is not reached (ssh: connect to host gpu7"),
        ("Host key verification failed.", 255, "the host key of root@gpu7 is not known, or is another one"),
        ("FAIL python: Python 3.11 or newer is needed, and Python 3.9.2 is here", 1, "python: Python 3.11 or newer"),
        ("", 1, "it said nothing"),
    ],
)
def test_a_server_that_cannot_be_checked_is_named_with_the_remedy(
    hosts: Path, errors: str, code: int, said: str
) -> None:
    host(hosts, "root@gpu7", errors=errors, code=code)
    (fault,) = look_at("root@gpu7", URL, []).faults
    assert said in fault


def test_what_fails_on_a_server_is_a_fault_of_it() -> None:
    bad = {"name": "clock", "passed": False, "said": "The clock is 600 s behind the service: set it by NTP."}
    done = subprocess.CompletedProcess([], 1, json.dumps(told([*CHECKS, bad])), "Nothing was written.")
    found = found_in("gpu7", done)
    assert found.faults == ["clock: The clock is 600 s behind the service: set it by NTP."]


def test_names_gpus_and_numbers_are_compared_between_servers() -> None:
    one = Found("root@gpu1.lab", "gpu1", ["GPU-1"], 990)
    assert faults_among([one, one._replace(destination="gpu2", name="gpu2", uuids=["GPU-2"])], {"gpu3"}) == {}
    same_name = one._replace(destination="root@gpu1.other", uuids=["GPU-2"])
    assert "2 of these servers are called gpu1" in faults_among([one, same_name], set())["root@gpu1.other"][0]
    assert "has a node gpu1 already" in faults_among([one], {"gpu1"})["root@gpu1.lab"][0]
    same_gpu = one._replace(destination="gpu2", name="gpu2")
    assert "is it the same machine twice?" in faults_among([one, same_gpu], set())["gpu2"][0]
    others = [one._replace(destination=f"gpu{n}", name=f"gpu{n}", uuids=[f"GPU-{n}"]) for n in (2, 3)]
    strange = faults_among([one, others[0], others[1]._replace(job_uid=1001)], set())
    assert list(strange) == ["gpu3"]
    assert "has the number 1001 here and 990 on others" in strange["gpu3"][0]


def test_the_account_of_jobs_gets_a_number_that_is_free_on_all() -> None:
    one = Found("gpu1", "gpu1", ["GPU-1"], None, taken=[999, 998])
    other = one._replace(destination="gpu2", name="gpu2", uuids=["GPU-2"], taken=[997])
    assert number_for([one, other]) == 996
    assert faults_among([one, other], set()) == {}
    has_it = other._replace(job_uid=998)
    assert number_for([one, has_it]) == 998
    (fault,) = faults_among([one, has_it], set())["gpu1"]
    assert "is to have the number 998, as on others, which another account has here" in fault
    assert number_for([has_it]) is None
    assert number_for([one, other._replace(taken=None)]) is None  # of a service of before


def test_a_token_is_on_no_command_line(hosts: Path) -> None:
    folder = host(hosts, "gpu7", "gpu7 has joined")
    assert install("gpu7", URL, "join_secret", []).returncode == 0
    assert (folder / "given").read_text() == "join_secret"
    assert "join_secret" not in (folder / "asked").read_text()


CURLS = {
    "not reached": "exit 7",
    "cut off": "echo 'echo the begin of a script was run'; exit 18",
    "hung up": "kill -HUP 0; sleep 60",
}


@pytest.mark.parametrize("curl", CURLS.values(), ids=CURLS)
def test_what_was_not_fetched_whole_is_not_run_and_leaves_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, curl: str
) -> None:
    ssh = 'for line; do :; done; exec env --default-signal=HUP setsid -w sh -c "$line"'  # below nohup it is ignored
    for name, text in (("ssh", ssh), ("curl", curl)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(server_setup, "TOKEN_FILE", str(tmp_path / "token"))
    done = install("gpu7", URL, "join_secret", [])
    assert done.returncode != 0
    assert "was run" not in done.stdout
    assert not (tmp_path / "token").exists()


def test_a_node_is_called_as_its_host() -> None:
    names = {one: name_of(one) for one in ("root@GPU7.lab.example", "gpu7", "root@10.0.0.7")}
    assert names == {"root@GPU7.lab.example": "gpu7", "gpu7": "gpu7", "root@10.0.0.7": "10.0.0.7"}


SAFE = [(URL, "root@gpu1", False), ("http://127.0.0.1:8000", "root@localhost", True), ("http://[::1]:8", "::1", True)]
UNSAFE = [
    ("http://127.0.0.1:8000", "root@gpu1", "root@gpu1 would ask itself and not the service"),
    ("http://localhost:8000", "gpu1", "gpu1 would ask itself and not the service"),
    ("https://localhost", "gpu1", "gpu1 would ask itself and not the service"),
    ("http://motley.lan", "root@gpu1", "can be replaced on the way"),
    ("http://motley.lan", "localhost", "can be replaced on the way"),
    ("http://127.0.0.1.example.org", "localhost", "can be replaced on the way"),
]


@pytest.mark.parametrize(("url", "destination", "over_http"), SAFE)
def test_a_program_is_fetched_over_https_or_within_one_machine(url: str, destination: str, over_http: bool) -> None:
    assert why_not_from(url, [destination], over_http=over_http) == ""


@pytest.mark.parametrize(("url", "destination", "said"), UNSAFE)
def test_nothing_that_others_can_replace_is_run_as_root(url: str, destination: str, said: str) -> None:
    for over_http in (False, True):
        reason = why_not_from(url, [destination], over_http=over_http)
        assert said in reason
        assert "Run `motley login https://...` with an address that the servers reach." in reason


@pytest.mark.parametrize("words", [["root@gpu1"], ["root@gpu1", "--check"], ["root@gpu1", "--insecure-http"], [LOCAL]])
def test_no_server_is_reached_where_the_program_could_be_replaced(
    hosts: Path, staff: Motley, words: Sequence[str]
) -> None:
    """The service of the tests speaks http at an address of loopback."""
    folder = host(hosts, words[0], told())
    refused = staff("server", "add", *words)
    assert (refused.exit_code, (folder / "asked").exists()) == (2, False)
    assert "motley login https://..." in refused.stderr
    assert not Agent.objects.exists()


def test_servers_are_added_if_all_are_in_order_and_else_none_is(hosts: Path, service: Live, staff: Motley) -> None:
    """Three by name; the service speaks http at an address of loopback, and so are they."""
    names = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    host(hosts, names[0], told(uuids=["GPU-1"]))
    host(hosts, names[1], told(uuids=["GPU-2"]))
    host(hosts, names[2], errors="FAIL python: Python 3.11 or newer is needed", code=1)
    refused = staff("server", "add", "--insecure-http", *names)
    assert (refused.exit_code, "Nothing was written." in refused.stderr) == (1, True)
    assert f"{names[2]}  FAIL  python: Python 3.11 or newer is needed" in refused.stderr
    assert not Agent.objects.exists()
    added = staff("server", "add", "--insecure-http", *names[:2])
    assert added.exit_code == 0, added.stderr
    assert list(Agent.objects.values_list("name", "site")) == [(name, True) for name in names[:2]]
    for name in names[:2]:
        agent = Agent.objects.get(name=name)
        assert digest_of((hosts / name / "given").read_text()) == agent.join_digest


TWICE = """#!/bin/sh
case "$*" in *--token-file*) cat "${0%/*}/refused"; exit 1;; *) cat "${0%/*}/passed";; esac
"""


def test_what_the_service_refuses_is_said_before_anything_is_written(
    tmp_path: Path, service: Live, staff: Motley, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU that a node of the cluster has: the servers ask once more, with their tokens, which are void then."""
    refused = [{"name": "joining", "passed": False, "said": "The GPU GPU-1 belongs to the node gpu7."}]
    for name, text in (("ssh", TWICE), ("passed", json.dumps(told())), ("refused", json.dumps(told(refused)))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = staff("server", "add", "--insecure-http", LOCAL)
    assert (done.exit_code, f"{LOCAL}  FAIL  joining: The GPU GPU-1 belongs" in done.stderr) == (1, True), done.stderr
    assert "Nothing was written." in done.stderr
    assert Agent.objects.get().revoked_at is not None


def test_a_server_is_added_with_its_own_address(hosts: Path, service: Live, staff: Motley) -> None:
    folder = host(hosts, LOCAL, told())
    assert staff("server", "add", LOCAL, "--insecure-http", "--address", "10.0.0.7").exit_code == 0
    asked = (folder / "asked").read_text().splitlines()
    assert [(line.count("--address 10.0.0.7"), line.count("--check")) for line in asked] == [(1, 1), (1, 1), (1, 0)]
    refused = staff("server", "add", LOCAL, "gpu2", "--address", "10.0.0.7")
    assert (refused.exit_code, "--address for one server alone" in refused.stderr) == (2, True)


def test_only_an_administrator_adds_servers(hosts: Path, motley: Motley) -> None:
    host(hosts, LOCAL, told())
    assert motley("server", "add", LOCAL, "--insecure-http").exit_code == 3
    assert not Agent.objects.exists()
