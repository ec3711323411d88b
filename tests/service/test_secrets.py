"""Tokens, passwords, cookies and values of jobs' environments: where they must be, and nowhere else."""

import stat
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.deployment import others, told
from tests.service.running_service import Service

VALUE = "swordfish-of-the-job"
KEPT_BY = {"jobs_app.Job", "jobs_app.IdempotencyKey"}
"""Tables that hold it on purpose: the job itself, and the answer to a submission that may come again."""
WAIT = (
    'umask 077; printf %s "$MOTLEY_JOB_TOKEN" > token; while [ ! -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do sleep 0.1; done'
)
SHOWS_THE_SPEC = ("?tab=spec", "?clone=")
UPWARDS = ["../", "%2e%2e/", "..%2f", "%2e%2e%2f", "....//", "..%5c", "%252e%252e%252f", "..;/"]


class Held:
    """A service with a running job, and every secret that there is."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.job = service.submit(WAIT, env={"API_KEY": VALUE})
        service.wait_for_state(self.job, "running")
        self.browser = service.browser()
        self.folder = service.engine_root / "jobs" / self.job

    @property
    def secrets(self) -> Mapping[str, str]:
        return {
            "the value of the environment": VALUE,
            "the job's token": (self.folder / "work" / "token").read_text(),
            "the API token": self.service.token,
            "the password": self.service.login["MOTLEY_PASSWORD"],
            "the session": self.browser.cookies["sessionid"],
        }

    def found_in(self, text: str) -> set[str]:
        return {name for name, secret in self.secrets.items() if secret in text}


@pytest.fixture
def held(four_gpus: Service) -> Iterator[Held]:
    held = Held(four_gpus)
    yield held
    held.browser.close()


def test_secrets_are_where_they_must_be_and_nowhere_else(held: Held) -> None:
    """In one test: each of the secrets is made once."""
    assert len(set(held.secrets.values())) == 5
    assert all(held.secrets.values())
    assert held.found_in(" ".join(told(pid, "cmdline").decode(errors="replace") for pid in others())) == set()
    assert readable_by_others(held) == []
    assert in_tables(held) == {}
    assert in_answers(held, pages(held)) == {}
    assert in_answers(held, by_rest(held)) == {}
    (held.folder / "checkpoints" / "go").touch()
    secrets = held.secrets
    held.service.wait_for_state(held.job, "succeeded")
    refuse_in_logs(held.service, secrets)
    held.service.after_stop.append(partial(refuse_in_logs, held.service, secrets))  # with what it logs at its end


def refuse_in_logs(service: Service, secrets: Mapping[str, str]) -> None:
    """The log of the service, but for the password that its first start prints, and every log in its folders."""
    lines = service.log.read_text().splitlines()
    logged = {service.log: "\n".join(line for line in lines if "  password: " not in line)}
    folders = {service.var, service.engine_root}
    logged |= {path: path.read_text(errors="replace") for folder in folders for path in folder.rglob("*.log")}
    found = [(str(path), name) for path, text in logged.items() for name, secret in secrets.items() if secret in text]
    assert found == []


def readable_by_others(held: Held) -> list[str]:
    """Files of the service that other users of the machine could read, and folders that they could list."""
    public = {"stop_reason"}  # for the job's user, which is another
    var, jobs = held.service.var, held.folder.parent
    below = [path for path in var.rglob("*") if not path.is_symlink() and path.name not in public]
    elsewhere = {var / "static", *(folder for folder in jobs.iterdir() if folder != held.folder)}  # jobs of other tests
    ours = [path for path in below if elsewhere.isdisjoint((path, *path.parents))]
    return [str(path) for path in ours if _mode(path) & (stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH)]


def _mode(path: Path) -> int:
    return path.stat().st_mode if path.exists() else 0


def in_tables(held: Held) -> dict[str, set[str]]:
    """Tables that hold a secret that they should not."""
    dump = (
        "from django.apps import apps\n"
        "answer = {m._meta.label: repr(list(m._base_manager.values_list())) for m in apps.get_models()}\n"
    )
    tables: dict[str, str] = held.service.python(dump)
    found = {name: held.found_in(rows) for name, rows in tables.items()}
    assert found["jobs_app.Job"] == {"the value of the environment"}
    of_sessions = {"sessions.Session": {"the session"}}  # by which a cookie is looked up
    allowed = of_sessions | {table: {"the value of the environment"} for table in KEPT_BY}
    unwanted = {name: secrets - allowed.get(name, set()) for name, secrets in found.items()}
    return {name: secrets for name, secrets in unwanted.items() if secrets}


def pages(held: Held) -> Iterator[tuple[str, httpx.Response]]:
    tabs = [f"/jobs/{held.job}?tab={tab}" for tab in ("overview", "why", "logs", "attempts", "events", "spec")]
    others = ["/", "/jobs", "/cluster", "/rounds", "/fairness", "/utilization", "/tokens", "/audit", "/metrics"]
    more = [f"/jobs/{held.job}/log", f"/jobs/new?clone={held.job}", f"/jobs/cancel?job={held.job}", "/admin/"]
    for address in [*tabs, *others, *more, "/rounds/1"]:
        yield address, held.browser.get(address)


def by_rest(held: Held) -> Iterator[tuple[str, httpx.Response]]:
    headers = {"authorization": f"Bearer {held.service.token}"}
    of_the_job = [f"jobs/{held.job}{part}" for part in ("", "/events", "/attempts", "/explain", "/logs")]
    for path in [*of_the_job, "jobs", "nodes", "rounds", "rounds/1", "tokens", "me", "teams", "throughputs", "nope"]:
        yield path, httpx.get(f"{held.service.url}/api/v1/{path}", headers=headers)


def in_answers(held: Held, answers: Iterator[tuple[str, httpx.Response]]) -> dict[str, set[str]]:
    """Answers with a secret, but for the spec of a job before those who may see it."""
    found = {address: held.found_in(answer.text + str(answer.headers)) for address, answer in answers}
    for address in [a for a in found if a in {"jobs", f"jobs/{held.job}"} or any(part in a for part in SHOWS_THE_SPEC)]:
        found[address] -= {"the value of the environment"}
    return {address: secrets for address, secrets in found.items() if secrets}


def test_no_path_climbs_out_of_the_static_files_or_the_logs(service: Service) -> None:
    service.declare(a100=1)
    job = service.submit("echo hello")
    service.wait_for_state(job, "succeeded")
    headers = {"authorization": f"Bearer {service.token}"}
    for up in UPWARDS:
        for place in places(job, up * 12 + "etc/passwd"):
            answer = httpx.get(httpx.URL(service.url, raw_path=place.encode()), headers=headers)
            assert answer.status_code in {302, 400, 404, 405}, (place, answer.status_code)
            assert "root:" not in answer.text


def places(job: str, path: str) -> list[str]:
    of_the_job = [f"/api/v1/jobs/{job}/logs?stream={path}", f"/api/v1/jobs/{job}/logs?attempt={path}"]
    more = [f"/api/v1/jobs/{path}/logs", f"/jobs/{job}/log?stream={path}", f"/nodes/{path}/drain"]
    return [f"/static/{path}", f"/static/motley/{path}", *of_the_job, *more]
