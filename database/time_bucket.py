"""Time buckets computed by the database, for rows that are summed up over intervals of equal length."""

from typing import Any

from django.db.models import Func, IntegerField


class Bucket(Func):
    """Number of the time bucket of a timestamp."""

    output_field = IntegerField()

    def __init__(self, expression: Any, *, seconds: int) -> None:
        super().__init__(expression, seconds=seconds)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "CAST(strftime('%%%%s', %(expressions)s) AS INTEGER) / %(seconds)s"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "FLOOR(EXTRACT(EPOCH FROM %(expressions)s) / %(seconds)s)::integer"
        return self.as_sql(compiler, connection, template=template, **context)
