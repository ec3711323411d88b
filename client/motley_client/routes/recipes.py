"""Recipes: job files of a team with parameters."""

from collections.abc import Iterator
from typing import cast

from motley_client.connection import Connection, Spec, url_path, with_key, without_empty
from motley_client.responses import JobDetail, Plan, Recipe, RecipeDetail, RecipeVersion


class RecipeRoutes(Connection):
    """Recipes: job files of a team with parameters."""

    def recipes(self, *, name: str | None = None, team: str | None = None) -> Iterator[Recipe]:
        """Recipes of your teams, the oldest first."""
        return cast("Iterator[Recipe]", self._pages("recipes", {"name": name, "team": team}))

    def recipe(self, number: int) -> RecipeDetail:
        """The recipe with its `etag`."""
        return cast("RecipeDetail", self._json("GET", url_path("recipes", number)))

    def recipe_versions(self, number: int) -> Iterator[RecipeVersion]:
        """Versions of the recipe, the latest first."""
        return cast("Iterator[RecipeVersion]", self._pages(url_path("recipes", number, "versions"), {}))

    def add_recipe(self, fields: Spec, *, idempotency_key: str | None = None) -> RecipeDetail:
        """Add a recipe: `spec`, and if wanted `name`, `description`, `parameters` and `editors` (members, leads)."""
        made = self._json("POST", "recipes", json=dict(fields), headers=with_key(idempotency_key))
        return cast("RecipeDetail", made)

    def change_recipe(self, number: int, fields: Spec, *, if_match: str | None = None) -> RecipeDetail:
        """Change fields of a recipe; another `spec`, or other `parameters`, are its next version."""
        headers = {"If-Match": if_match} if if_match else {}
        return cast(
            "RecipeDetail", self._json("PATCH", url_path("recipes", number), json=dict(fields), headers=headers)
        )

    def delete_recipe(self, number: int) -> None:
        """Delete it with its versions; its jobs stay."""
        self._send("DELETE", url_path("recipes", number))

    def submit_recipe(
        self,
        number: int,
        parameters: Spec | None = None,
        *,
        changes: Spec | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> JobDetail:
        """Submit a job by a recipe; `changes` are fields of the job in place of the recipe's."""
        body = _of_recipe(parameters, changes, version)
        path = url_path("recipes", number, "submit")
        return cast("JobDetail", self._json("POST", path, json=body, headers=with_key(idempotency_key)))

    def plan_recipe(
        self,
        number: int,
        parameters: Spec | None = None,
        *,
        changes: Spec | None = None,
        version: int | None = None,
        forecast: bool = False,
    ) -> Plan:
        """Plan the job of a recipe without submitting it."""
        query = {"dry_run": "true", **({"forecast": "true"} if forecast else {})}
        body = _of_recipe(parameters, changes, version)
        return cast("Plan", self._json("POST", url_path("recipes", number, "submit"), params=query, json=body))


def _of_recipe(parameters: Spec | None, changes: Spec | None, version: int | None) -> dict[str, object]:
    return without_empty({"parameters": dict(parameters or {}), "changes": dict(changes or {}), "version": version})
