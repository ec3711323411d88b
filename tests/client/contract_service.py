"""A small service that speaks the REST contract over real HTTP."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "mt_secret"
FINAL = {"succeeded", "failed", "cancelled", "timed_out"}


def job_id(number: int) -> str:
    return f"0190c3a2-1b2c-7def-8000-{number:012d}"


def job_answer(number: int, **changes: Any) -> dict[str, Any]:
    """A job as the service answers it."""
    return {
        "id": job_id(number),
        "name": f"job-{number}",
        "team": "vision",
        "owner": "ada",
        "state": "running",
        "reason": "",
        "message": "",
        "reasons": [],
        "held": False,
        "spec": {"name": f"job-{number}", "command": "true", "gpus": 1},
        "created_at": "2026-01-01T00:00:00Z",
        "started_at": None,
        "finished_at": None,
        "gpu_type": None,
        "gpu_count": None,
        "nodes": [],
        "attempts": [],
        "progress": None,
        "rates_used": [],
        "work_lost_gpu_seconds": 0,
        "exit_code": None,
        **changes,
    }


def attempt_answer(number: int, **changes: Any) -> dict[str, Any]:
    attempt = {"number": number, "state": "running", "outcome": None, "exit_code": None, "gpu_type": "a100"}
    return {**attempt, "gpu_count": 4, "nodes": ["n1"], "started_at": None, "ended_at": None, **changes}


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def answer(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def problem(status: int, detail: str, **more: object) -> Answer:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail, **more}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/problem+json"})


class Service:
    """Jobs, logs, nodes and rounds in memory; tests change them, and may put answers in front of the next ones."""

    page_size = 2

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.rounds: list[dict[str, Any]] = []
        self.logs: dict[int, bytes] = {}
        self.answers_first: list[Answer] = []
        self.requests: list[Request] = []
        self.on_request: Callable[[], object] = lambda: None
        self.url = ""

    def add(self, **changes: Any) -> dict[str, Any]:
        job = job_answer(len(self.jobs) + 1, **changes)
        self.jobs.append(job)
        return job

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        self.on_request()
        if self.answers_first:
            return self.answers_first.pop(0)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return problem(401, "This token is not known.", code="bad_token")
        for method, pattern, respond in self.routes():
            match = re.fullmatch(pattern, request.path.removeprefix("/api/v1/"))
            if match and method == request.method:
                return respond(request, *match.groups())
        return problem(404, "No such route.")

    def routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            ("POST", "jobs", self.submitted),
            ("GET", "jobs", lambda request: self.page(self.found(request.query), request)),
            ("GET", "jobs/([^/]+)", lambda _, job_id: self.one(self.jobs, id=job_id)),
            ("POST", "jobs/([^/]+)/cancel", self.cancelled),
            ("GET", "jobs/[^/]+/logs", self.log),
            ("GET", "nodes", lambda request: self.page(self.nodes, request)),
            ("GET", "rounds", lambda request: self.page(self.rounds, request)),
            ("GET", r"rounds/(\d+)", lambda _, number: self.one(self.rounds, number=int(number))),
        ]

    def submitted(self, request: Request) -> Answer:
        return answer(self.add(name=request.body["name"], state="queued", spec=request.body), 201)

    def found(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        states, prefix = query.get("state"), query.get("q", [""])[0]
        return [
            job
            for job in reversed(self.jobs)
            if (not states or job["state"] in states)
            and (job["name"].startswith(prefix) or job["id"].startswith(prefix))
        ]

    def page(self, results: list[dict[str, Any]], request: Request) -> Answer:
        start = int(request.query.get("cursor", ["0"])[0])
        end = start + self.page_size
        return answer({"next": str(end) if end < len(results) else None, "results": results[start:end]})

    def one(self, things: list[dict[str, Any]], **key: object) -> Answer:
        ((name, value),) = key.items()
        return next((answer(thing) for thing in things if thing[name] == value), problem(404, f"There is no {value}."))

    def cancelled(self, request: Request, job_id: str) -> Answer:
        job = next(job for job in self.jobs if job["id"] == job_id)
        if job["state"] in FINAL:
            return problem(409, f"The job has already {job['state']}.", code="job_finished")
        job["state"] = "stopping"
        return answer(job, 202)

    def log(self, request: Request) -> Answer:
        query = request.query
        attempts = {attempt["number"]: attempt for job in self.jobs for attempt in job["attempts"]}
        number = int(query["attempt"][0]) if "attempt" in query else max(attempts)
        offset, log = int(query["offset"][0]), self.logs.get(number, b"")
        data = log[offset : offset + 1000]
        complete = attempts[number]["state"] == "ended" and offset + len(data) == len(log)
        headers = {"Motley-Next-Offset": str(offset + len(data)), "Motley-Log-Complete": str(complete).lower()}
        return Answer(200, data, {"Content-Type": "text/plain", **headers})


def handler_for(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(
                self.command,
                parts.path,
                parse_qs(parts.query),
                dict(self.headers),
                json.loads(body) if body else None,
            )
            answer = service.answer(request)
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = handle_any  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    return Handler
