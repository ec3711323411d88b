"""Every interface that takes a job, as a function from a spec to its refusal."""

import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from django.test import Client as Browser
from rest_framework.test import APIClient

from jobs_app.forms import TEXTS, WHOLE_NUMBERS, fields_of
from motley_client import Client
from motley_client.errors import InvalidRequest
from tests.live_service import Live
from tests.motley_command import Motley
from tests.rest_callers import with_token

Spec = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """Which fields were named, and all that was said."""

    fields: set[str]
    words: str


Interface = Callable[[Spec], Refusal]


@dataclass
class Interfaces:
    """Interfaces as ada uses them. Each method returns the refusal of a spec, and fails if it was accepted."""

    service: Live
    folder: Path
    rest: APIClient = field(init=False)
    browser: Browser = field(init=False)
    motley: Motley = field(init=False)
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.rest = with_token(self.service.token)
        self.rest.raise_request_exception = False
        self.browser = Browser(raise_request_exception=False)
        self.browser.force_login(self.service.ada)
        home = {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), "TERM": "dumb", "COLUMNS": "500"}
        self.client = Client(self.service.url, self.service.token)
        self.motley = Motley({**home, "MOTLEY_URL": self.service.url, "MOTLEY_TOKEN": self.service.token})

    # -- REST ----------------------------------------------------------------------------------------------------

    def rest_submit(self, spec: Spec) -> Refusal:
        return self._by_rest("/api/v1/jobs", spec)

    def rest_dry_run(self, spec: Spec) -> Refusal:
        return self._by_rest("/api/v1/jobs?dry_run=true", spec)

    def rest_once(self, spec: Spec) -> Refusal:
        """With a key, for which the body is digested."""
        return self._by_rest("/api/v1/jobs", spec, **{"Idempotency-Key": str(uuid4())})

    def rest_batch(self, spec: Spec) -> Refusal:
        return self._by_rest("/api/v1/jobs/batch", {"jobs": [{"name": "good", "command": "true", "gpus": 1}, spec]})

    def rest_clone(self, spec: Spec) -> Refusal:
        return self._by_rest(f"/api/v1/jobs/{self.service.jobs[-1].pk}/clone", spec)

    def rest_change(self, spec: Spec) -> Refusal:
        return self._by_rest(f"/api/v1/jobs/{self.service.jobs[-1].pk}", spec, method="patch")

    def _by_rest(self, address: str, body: Any, *, method: str = "post", **headers: str) -> Refusal:
        answer = getattr(self.rest, method)(address, as_json(body), content_type="application/json", headers=headers)
        assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json"), answer.content
        faults = answer.json()["errors"]
        return Refusal({_field(fault["pointer"]) for fault in faults}, " ".join(f["detail"] for f in faults))

    # -- pages ---------------------------------------------------------------------------------------------------

    def page_yaml(self, spec: Spec) -> Refusal:
        answer = self.browser.post("/jobs/new", {"mode": "yaml", "do": "submit", "yaml": as_yaml(spec)})
        shown = answer.content.decode()
        assert (answer.status_code, "Not submitted:" in shown) == (200, True)
        named = {_field(html.unescape(place)) for place in re.findall(r"<li><code>(/[^<]*)</code>", shown)}
        return Refusal(named, html.unescape(" ".join(re.findall(r"<li>(.*?)</li>", shown))))

    def page_form(self, spec: Spec) -> Refusal:
        """What has no field of its own is written as YAML beside them."""
        of_a_text = {
            name: spec[name] for name in (*TEXTS, *WHOLE_NUMBERS, "gpus") if type(spec.get(name)) in (str, int)
        }
        typed = {name: value for name, value in fields_of(of_a_text).items() if value not in ("", None)}
        more = {name: value for name, value in spec.items() if name not in of_a_text}
        answer = self.browser.post(
            "/jobs/new", {"gpus": "", "mode": "form", "do": "submit", **typed, "more": as_yaml(more) if more else ""}
        )
        shown = answer.content.decode()
        assert (answer.status_code, "Not submitted: fix the" in shown) == (200, True), answer
        wrong = set(re.findall(r'class="field(?: wide)? wrong[^"]*"[^>]* data-field="(\w+)"', shown))
        beside = set(more) if wrong & {"more", "grace_seconds", "restore_seconds"} else set()
        faults = re.findall(r'<p class="fault"[^>]*>([^<]*)', shown)
        return Refusal(wrong | beside, html.unescape(" ".join(faults)))

    def page_check(self, spec: Spec) -> Refusal:
        answer = self.browser.post("/jobs/new/check", {"mode": "yaml", "yaml": as_yaml(spec)})
        said = json.loads(answer.content, parse_constant=_no_constant)
        assert answer.status_code == 200
        assert "plan" not in said
        faults = said["faults"]
        return Refusal({_field(fault["pointer"]) for fault in faults}, " ".join(f["detail"] for f in faults))

    # -- the command and Python ----------------------------------------------------------------------------------

    def command_with_a_file(self, spec: Spec) -> Refusal:
        path = self.folder / "job.yaml"
        path.write_text(as_yaml(spec))
        return self._by_command(str(path))

    def command_with_options(self, spec: Spec) -> Refusal:
        fields = [word for name, value in spec.items() for word in ("--set", f"{name}={as_flow(value)}")]
        return self._by_command(*fields)

    def _by_command(self, *words: str) -> Refusal:
        done = self.motley("submit", *words)
        assert done.exit_code in {2, 4}, (done.exit_code, done.output, done.exception)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return Refusal(set(re.findall(r"(?:^Error: |^  )([^\s.:\[]+)", done.stderr, re.MULTILINE)), done.stderr)

    def python(self, spec: Spec) -> Refusal:
        try:
            self.client.submit(spec)
        except InvalidRequest as refused:
            faults = refused.errors
            return Refusal({_field(f.pointer) for f in faults}, " ".join(f.detail for f in faults))
        raise AssertionError("it was taken")


def as_json(spec: Any) -> str:
    """Infinity as JSON can say it."""
    return json.dumps(spec).replace("Infinity", "1e400")


def as_yaml(spec: Any) -> str:
    return str(yaml.safe_dump(spec, sort_keys=False))


def as_flow(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, width=10**9)).removesuffix("\n").removesuffix("\n...")


def parts_of(value: Any) -> Iterator[Any]:
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    yield value
    for part in inner:
        yield from parts_of(part)


def _field(pointer: str) -> str:
    """The spec's field that a pointer is to, in a batch of its second job."""
    return pointer.removeprefix("/jobs/1").lstrip("/").split("/")[0]


def _no_constant(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")
