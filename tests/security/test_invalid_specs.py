"""Invalid specs through every interface: each is refused by its field, with a remedy, and nothing is queued."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs_app.models import Job
from tests.live_service import Live
from tests.security.interfaces import Interface, Interfaces, Refusal, parts_of
from tests.security.invalid_specs import BAD, FOREIGN_JOB, HALF, LEAST, Bad

WAYS = (
    "rest_submit",
    "rest_dry_run",
    "rest_once",
    "rest_batch",
    "rest_clone",
    "page_yaml",
    "page_check",
    "command_with_a_file",
    "command_with_options",
    "python",
)
THOROUGH = pytest.mark.thorough
OTHERS = [way for way in WAYS if way not in ("rest_submit", "page_yaml")]
"""They check by the same schema as these two."""


@pytest.fixture
def interfaces(service: Live, tmp_path: Path) -> Iterator[Interfaces]:
    service.add("there before")
    interfaces = Interfaces(service, tmp_path)
    with interfaces.client:
        yield interfaces


@pytest.fixture
def foreign(service: Live) -> str:
    return str(service.lab.submit(owner=service.lab.user("eve", "language")).pk)


def complaint(interface: Interface, bad: Bad, spec: dict[str, Any]) -> str:
    """Empty if the interface refused as it should."""
    before = Job.objects.count()
    try:
        refusal = interface(spec)
    except AssertionError as error:
        return f"was not refused: {error}"
    if Job.objects.count() != before:
        return "something was queued"
    if _is_said_by_place(bad, refusal):
        return ""
    if bad.field.split()[0] not in {name.split(" ")[0] for name in refusal.fields}:
        return f"is not named, but {refusal.fields}: {refusal.words[:200]}"
    helps = bad.says in refusal.words or (bad.or_says and bad.or_says in refusal.words)
    return "" if helps else f"without help: {refusal.words[-300:]}"


def _is_said_by_place(bad: Bad, refusal: Refusal) -> bool:
    """What no text or no JSON can hold does not come as far as the field: the line is named, or what JSON lacks."""
    of_yaml = HALF in str_of(bad) and "half of a surrogate pair" in refusal.words and "line" in refusal.words
    return of_yaml or "No command:" in refusal.words or "JSON cannot represent this" in refusal.words


def str_of(bad: Bad) -> str:
    return bad.field + "".join(part for part in parts_of(bad.value) if isinstance(part, str))


def spec_of(bad: Bad, foreign: str) -> dict[str, Any]:
    value = [{"job": foreign}] if bad.value == [{"job": FOREIGN_JOB}] else bad.value
    return LEAST | {bad.field: value}


def test_every_interface_names_the_field(interfaces: Interfaces, foreign: str) -> None:
    """Some rows of each: the next tests have all."""
    ways = {way: getattr(interfaces, way) for way in (*WAYS, "page_form")}
    rows = [bad for bad in BAD if HALF not in str_of(bad)][::16]
    found = {(way, str(bad)): complaint(one, bad, spec_of(bad, foreign)) for way, one in ways.items() for bad in rows}
    assert {at: text for at, text in found.items() if text} == {}


@pytest.mark.parametrize("way", ["rest_submit", "page_yaml", *(pytest.param(way, marks=THOROUGH) for way in OTHERS)])
def test_what_is_bad_is_refused_by_its_field(interfaces: Interfaces, foreign: str, way: str) -> None:
    interface = getattr(interfaces, way)
    found = {str(bad): complaint(interface, bad, spec_of(bad, foreign)) for bad in BAD}
    assert {bad: text for bad, text in found.items() if text} == {}


@pytest.mark.thorough
def test_the_form_refuses_it_at_its_field_or_beside_the_others(interfaces: Interfaces, foreign: str) -> None:
    rows = [bad for bad in BAD if HALF not in str_of(bad)]  # no browser can send it
    found = {str(bad): complaint(interfaces.page_form, bad, spec_of(bad, foreign)) for bad in rows}
    assert {bad: text for bad, text in found.items() if text} == {}


@pytest.mark.thorough
def test_a_change_of_what_is_bad_is_refused(interfaces: Interfaces, foreign: str) -> None:
    """Also because most of a job is fixed once it was submitted."""
    found = {}
    for bad in BAD:
        fixed = Bad(bad.field, bad.value, "" if bad.field not in ("name", "weight", "tags", "retries") else bad.says)
        found[str(bad)] = complaint(interfaces.rest_change, fixed, {bad.field: spec_of(bad, foreign)[bad.field]})
    assert {bad: text for bad, text in found.items() if text} == {}
