"""docs/rest.md is what REST does: its scopes, limits, sizes, and the routes that take keys and entity tags."""

import re
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from config.problems import document_of
from jobs_app.models import ApiToken
from web.rest.errors import MOST_FAULTS
from web.rest.pagination import NewestFirst
from web.rest.parsers import LARGEST_BATCH_BYTES, LARGEST_BODY_BYTES, LARGEST_SPEC_BYTES

ROOT = Path(settings.BASE_DIR)
PAGE = (ROOT / "docs" / "rest.md").read_text()
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")}
PATHS: dict[str, Any] = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(), yaml.CSafeLoader)["paths"]


def taking(header: str) -> set[str]:
    """Routes that take a header, as `POST /api/v1/jobs`."""
    return {
        f"{method.upper()} {path}"
        for path, operations in PATHS.items()
        for method, operation in operations.items()
        if any(one["name"] == header for one in operation.get("parameters", ()))
    }


def routes(section: str) -> set[str]:
    listed = "".join(line for line in SECTIONS[section].splitlines() if line.startswith("- "))
    return set(re.findall(r"`([A-Z]+ /api/[^`?]+)`", listed))


def test_the_page_names_every_route_that_takes_an_idempotency_key() -> None:
    assert routes("Idempotency keys") == taking("Idempotency-Key")


def test_the_page_names_every_route_that_heeds_if_match() -> None:
    assert routes("Entity tags") == taking("If-Match")


def test_the_page_names_every_scope() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS["Tokens and scopes"], re.MULTILINE) == ApiToken.Scope.values


def test_the_problem_of_the_page_has_the_members_of_a_problem(rf: Any) -> None:
    example = re.findall(r"```json\n(.*?)```", SECTIONS["Problems"], re.DOTALL)[0]
    shown = document_of(rf.get("/api/v1/jobs"), 422, code="invalid", detail="…")
    assert yaml.safe_load(example).keys() == shown.keys()
    assert all(yaml.safe_load(example)[name] == shown[name] for name in ("type", "status", "code", "instance"))


def test_sizes_and_limits_of_the_page_are_those_of_the_code() -> None:
    kib, mib, batch = LARGEST_BODY_BYTES >> 10, LARGEST_SPEC_BYTES >> 20, LARGEST_BATCH_BYTES >> 20
    assert f"({kib} KiB; of a job {mib} MiB, of a batch {batch} MiB)" in PAGE
    assert f"the size of a page: {NewestFirst.page_size}, and {NewestFirst.max_page_size} at most" in PAGE
    assert (MOST_FAULTS, settings.MOTLEY_REST_RATE, settings.MOTLEY_ANONYMOUS_RATE) == (100, "100000/m", "6000/m")
