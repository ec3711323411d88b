"""Job files of a team with parameters."""

from typing import Any, TypedDict


class RecipeParameter(TypedDict):
    """A parameter of a recipe; its value must be given if `default` is null."""

    name: str
    type: str
    default: str | float | bool | None
    description: str
    choices: list[str | float | bool]


class LastJob(TypedDict):
    """The newest job of a recipe that has started; `rate` in steps/s, as measured."""

    id: str
    state: str
    gpu_type: str
    gpu_count: int
    rate: float | None
    started_at: str | None


class Recipe(TypedDict):
    """A job file of a team with parameters, in its latest version, in lists."""

    id: int
    name: str
    team: str
    description: str
    editors: str
    version: int
    parameters: list[RecipeParameter]
    spec: dict[str, Any]
    changed_by: str | None
    created_at: str
    changed_at: str
    submissions: int
    last_job: LastJob | None


class RecipeDetail(Recipe):
    """One recipe; send its `etag` as `if_match` with a change."""

    etag: str


class RecipeVersion(TypedDict):
    """A version of a recipe."""

    version: int
    author: str | None
    created_at: str
    parameters: list[RecipeParameter]
    spec: dict[str, Any]
