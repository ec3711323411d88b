"""A value, a name or a kind of value that is not accepted is refused with what is, by every route."""

from typing import Any

import pytest
from rest_framework import serializers
from rest_framework.test import APIClient

from tests.service_lab import Lab
from web.rest.bodies import Strict
from web.rest.choices import Choice, not_one_of

JOB = {"name": "net", "command": "true", "gpus": 1}


def said(answer: Any, pointer: str) -> str:
    """What the answer says of this place; each has one fault here."""
    (detail,) = [fault["detail"] for fault in answer.json()["errors"] if fault["pointer"] == pointer]
    return str(detail)


@pytest.mark.parametrize(
    ("address", "pointer", "words"),
    [
        ("jobs?state=flying", "/state", "'flying' is not one of queued, starting, running, "),
        ("jobs?state=queued&state=fly%25ing", "/state", "'fly%ing' is not one of queued, starting, running, "),
        ("nodes?health=ill", "/health", "'ill' is not one of "),
        ("usage?by=week", "/by", "'week' is not one of day, month"),
        ("timeline?window=9x", "/window", "'9x' is not one of "),
    ],
)
def test_a_parameter_of_a_closed_set_names_its_choices(ada: APIClient, address: str, pointer: str, words: str) -> None:
    answer: Any = ada.get(f"/api/v1/{address}")
    assert answer.status_code == 400
    assert said(answer, pointer).startswith(words)


@pytest.mark.parametrize(
    ("route", "body", "pointer", "words"),
    [
        ("post jobs", JOB | {"volunteers": "some"}, "/volunteers", "'some' is not one of none, trusted, any."),
        ("post tokens", {"name": "ci", "scope": "all"}, "/scope", "'all' is not one of read, submit"),
        (
            "post notification-targets",
            {"kind": "fax", "address": "x", "events": ["job_ended", "job_flies"]},
            "/events/1",
            "'job_flies' is not one of job_ended, job_failed, ",
        ),
        (
            "post notification-targets",
            {"kind": "fax", "address": "x", "events": ["job_ended"]},
            "/kind",
            "'fax' is not one of mail, slack, webhook.",
        ),
        (
            "put policies/current",
            {"policy": "nope"},
            "/policy",
            "'nope' is not one of motley, motley_static, max_min_fairness, ",
        ),
    ],
)
def test_a_field_of_a_closed_set_names_its_choices(
    root: APIClient, route: str, body: Any, pointer: str, words: str
) -> None:
    method, address = route.split(" ")
    answer = getattr(root, method)(f"/api/v1/{address}", body, format="json")
    assert answer.status_code == 422, answer.json()
    assert said(answer, pointer).startswith(words)


def test_of_many_choices_the_nearest_are_named() -> None:
    names = [f"name-{number}" for number in range(40)]
    assert not_one_of("nam-39", names) == "'nam-39' is not one of 40 choices; the nearest are name-39, name-9, name-3."
    assert not_one_of("x", names).startswith("'x' is not one of 40 choices, among them name-0, name-1, ")


def test_every_field_of_a_request_with_choices_names_them() -> None:
    """A plain `ChoiceField` says that a value is not valid, and not which are."""
    plain = [
        f"{body.__module__}.{body.__name__}.{name}"
        for body in _bodies(serializers.Serializer)
        if issubclass(body, Strict) or body.__name__.endswith("Query")
        for name, field in body().fields.items()
        for one in (field, getattr(field, "child", None))
        if isinstance(one, serializers.ChoiceField) and not isinstance(one, Choice)
    ]
    assert plain == []


def _bodies(base: Any) -> list[Any]:
    return [each for body in base.__subclasses__() for each in (body, *_bodies(body))]


@pytest.mark.parametrize(
    ("field", "value", "pointer", "words"),
    [
        ("array", "5-1", "/array", "5-1: the last index must not be less than the first."),
        ("after", ["nope"], "/after/0", "An object with the fields job, on is expected, not a string."),
        ("after", None, "/after", "This field may not be null."),
        ("env", ["A=1"], "/env", "An object is expected, not a list."),
        ("mounts", ["data", {}], "/mounts/1", "A string is expected, not an object."),
        ("gpu_types", 5, "/gpu_types", "A list is expected, not a number."),
    ],
)
def test_a_value_of_another_kind_is_told_in_the_words_of_json(
    ada: APIClient, field: str, value: Any, pointer: str, words: str
) -> None:
    assert said(ada.post("/api/v1/jobs", JOB | {field: value}, format="json"), pointer) == words


def test_a_body_that_is_no_object_is_told_what_it_should_be(ada: APIClient) -> None:
    answer = ada.post("/api/v1/jobs", [1, 2], format="json")
    words = (
        "An object with fields such as name, team, command, workdir, code, image, volunteers, setup is expected, not"
    )
    assert said(answer, "") == f"{words} a list."


def test_a_lab_takes_policies_by_name(ada: APIClient) -> None:
    answer = ada.post("/api/v1/lab/runs", {"policies": [{"policy": "fifo"}]}, format="json")
    assert said(answer, "/policies/0") == "A string is expected, not an object."


def test_an_unknown_field_is_told_with_the_nearest_and_all_are_listed_once(cluster: Lab, ada: APIClient) -> None:
    body = JOB | {"gpu": 2, "zone": 1, "quux": 1}
    answer = ada.post("/api/v1/jobs", body, format="json")
    assert said(answer, "/gpu") == "Unknown field 'gpu'. Did you mean 'gpus'?"
    assert said(answer, "/zone").startswith("Unknown field 'zone'. The fields are: name, team, command, ")
    assert said(answer, "/quux") == "Unknown field 'quux'."
    change = ada.patch(f"/api/v1/jobs/{cluster.submit(name='net').pk}", {"wieght": 2, "workdir": "/x"}, format="json")
    assert said(change, "/wieght") == "Unknown field 'wieght'. Did you mean 'weight'?"
    assert said(change, "/workdir").startswith("workdir cannot be changed after submission")


def test_a_misspelt_name_in_fields_is_told_with_the_nearest(ada: APIClient) -> None:
    assert "Did you mean 'state'?" in said(ada.get("/api/v1/jobs?fields=id,stat"), "/fields")
