"""docs/job-file.md has every field of a job, with its default."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from rest_framework import serializers

from jobs_app.submission.conversion import DEFAULTS, REQUIRED
from jobs_app.submission.spec import JobSpec

PAGE = (Path(settings.BASE_DIR) / "docs" / "job-file.md").read_text()
ROWS = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)
DEFAULT_OF = {name: default for name, _, default, _ in ROWS}


def test_the_page_has_every_field_in_its_order() -> None:
    assert [name for name, *_ in ROWS if "." not in name] == list(JobSpec().fields)


def test_the_page_has_every_field_of_a_field() -> None:
    assert {name for name, *_ in ROWS if "." in name} == {*_inner(JobSpec().fields)}


def test_defaults_are_those_of_the_code() -> None:
    told = {name: DEFAULT_OF[name].split(":")[0].strip("`") for name in DEFAULTS if name != "checkpoint"}
    assert told == {
        name: f"{value:g}" if type(value) is float else str(value).lower()
        for name, value in DEFAULTS.items()
        if name in told
    }
    assert all(f"{value} s" in DEFAULT_OF["checkpoint"] for value in DEFAULTS["checkpoint"].values())
    assert {
        name for name, default in DEFAULT_OF.items() if default.startswith("required") and "." not in name
    } == REQUIRED


def _inner(fields: Any) -> Iterator[str]:
    for name, field in fields.items():
        held = field.child if isinstance(field, serializers.ListField) else field
        if isinstance(held, serializers.Serializer):
            yield from (f"{name}.{inner}" for inner in held.fields)
