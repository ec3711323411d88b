"""What generators of clients make of docs/openapi.yaml: names of functions, typed specs, a package of its own name."""

from typing import Any

import pytest
import yaml
from django.conf import settings


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    text = (settings.BASE_DIR / "docs" / "openapi.yaml").read_text()
    found: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
    return found


def test_operations_are_named_for_what_they_do(schema: dict[str, Any]) -> None:
    ids = [one["operationId"] for path in schema["paths"].values() for one in path.values() if "operationId" in one]
    assert len(ids) == len(set(ids))
    assert {
        "jobs_update",
        "jobs_create",
        "jobs_cancel",
        "jobs_comments_create",
        "nodes_drain",
        "usage_csv_retrieve",
    } < {*ids}
    assert [
        name for name in ids if not name.isidentifier() or "partial" in name or name.endswith("cancel_create")
    ] == []


def test_the_spec_of_a_job_and_of_a_plan_has_the_types_of_a_submission(schema: dict[str, Any]) -> None:
    components = schema["components"]["schemas"]
    for name in ("JobInFull", "ListedJob", "PlanWithForecast"):
        of_spec = components[name]["properties"]["spec"]
        assert of_spec["allOf"] == [{"$ref": "#/components/schemas/JobSpec"}], name
    assert "gpus" in components["JobSpec"]["properties"]


def test_a_generated_package_is_not_named_as_our_own(schema: dict[str, Any]) -> None:
    """openapi-python-client names it after the title."""
    assert schema["info"]["title"].lower().replace(" ", "_") + "_client" == "motley_rest_client"


def test_lists_say_how_many_results_a_page_may_have(schema: dict[str, Any]) -> None:
    (limit,) = [one for one in schema["paths"]["/api/v1/jobs"]["get"]["parameters"] if one["name"] == "limit"]
    assert (limit["schema"]["minimum"], limit["schema"]["maximum"]) == (1, 200)
