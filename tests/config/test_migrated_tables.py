"""What the models promise of the rows, the database keeps."""

import pytest
from django.apps import apps
from django.db import connection, models

pytestmark = pytest.mark.django_db
OURS = [model for model in apps.get_models() if model.__module__.split(".")[0].endswith("_app")]


@pytest.mark.parametrize("model", OURS, ids=lambda model: model.__name__)
def test_migrations_leave_every_index_and_constraint_that_a_model_names(model: type[models.Model]) -> None:
    """Django's own migrations may drop one with another that is on the same column."""
    named = {one.name for one in (*model._meta.indexes, *model._meta.constraints)}
    with connection.cursor() as cursor:
        kept = connection.introspection.get_constraints(cursor, model._meta.db_table)
    assert named <= kept.keys()
