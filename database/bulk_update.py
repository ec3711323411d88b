"""Bulk update of rows with different values: UPDATE ... FROM unnest(arrays) on PostgreSQL, one prepared UPDATE else."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, transaction
from django.db.models import DateTimeField, Field, JSONField, Model
from django.utils import timezone


def rewrite(model: type[Model], names: Sequence[str], rows: Mapping[Any, Sequence[Any]]) -> None:
    """Update these fields of the rows with these keys, and `auto_now` fields.

    Django's `bulk_update` builds a CASE with a branch per row for each column, which takes PostgreSQL and Django ten
    times as long as joining the table with arrays, and SQLite as running a prepared statement for each row.
    """
    stamps = [f.name for f in model._meta.concrete_fields if isinstance(f, DateTimeField) and f.auto_now]
    fields: list[Any] = [model._meta.get_field(name) for name in names]
    now = dict.fromkeys(stamps, timezone.now())
    if rows:
        write = _join_arrays if connection.vendor == "postgresql" else _update_each
        write(model, fields, rows, now)


def _update_each(
    model: type[Model],
    fields: Sequence[Field[Any, Any]],
    rows: Mapping[Any, Sequence[Any]],
    now: Mapping[str, datetime],
) -> None:
    stamps: list[Any] = [model._meta.get_field(name) for name in now]
    key: Any = model._meta.pk
    columns = [*fields, *stamps, key]
    *changes, this = (f"{connection.ops.quote_name(str(field.column))} = %s" for field in columns)
    table = connection.ops.quote_name(model._meta.db_table)
    values = [
        [field.get_db_prep_save(value, connection) for field, value in zip(columns, row, strict=True)]
        for row in ((*of_row, *now.values(), pk) for pk, of_row in rows.items())
    ]
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.executemany(f"UPDATE {table} SET {', '.join(changes)} WHERE {this}", values)  # noqa: S608  # names, no values


def _join_arrays(
    model: type[Model],
    fields: Sequence[Field[Any, Any]],
    rows: Mapping[Any, Sequence[Any]],
    now: Mapping[str, datetime],
) -> None:
    columns = [model._meta.pk, *fields]
    values = zip(*((key, *of_row) for key, of_row in rows.items()), strict=True)
    arrays = [_array(field, of_field) for field, of_field in zip(columns, values, strict=True)]
    name = connection.ops.quote_name
    places = ", ".join(_place(field) for field in columns)
    fresh = ", ".join(f"v{position}" for position in range(len(columns)))
    key, *changes = (f"{name(str(field.column))} = v{position}" for position, field in enumerate(columns))
    changes += [f"{name(stamp)} = %s" for stamp in now]
    statement = f"UPDATE {name(model._meta.db_table)} SET {', '.join(changes)} "  # noqa: S608  # names, no values
    with connection.cursor() as cursor:
        cursor.execute(f"{statement} FROM ROWS FROM ({places}) AS fresh({fresh}) WHERE {key}", [*now.values(), *arrays])


def _array(field: Field[Any, Any], values: Sequence[Any]) -> Any:
    """Parameter for one column; JSON as a single document, since an array of documents is escaped one by one."""
    if isinstance(field, JSONField):
        return json.dumps(values, cls=field.encoder or DjangoJSONEncoder)
    return [field.get_db_prep_save(value, connection) for value in values]


def _place(field: Field[Any, Any]) -> str:
    if isinstance(field, JSONField):
        return "jsonb_array_elements(%s::jsonb)"
    return f"unnest(%s::{field.cast_db_type(connection)}[])"
