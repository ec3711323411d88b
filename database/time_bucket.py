"""Time in sums that the database computes: buckets of equal length, and seconds."""

from typing import Any

from django.db.models import FloatField, Func, IntegerField


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


class EpochSeconds(Func):
    """Seconds of a timestamp since 1970, of which differences are multiplied and summed; to the millisecond."""

    output_field = FloatField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "((julianday(%(expressions)s) - 2440587.5) * 86400.0)"
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "EXTRACT(EPOCH FROM %(expressions)s)::double precision"
        return self.as_sql(compiler, connection, template=template, **context)
