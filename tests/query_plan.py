"""How the database reads the rows of a query."""

from django.db import connection


def plan_of(sql: str) -> list[str]:
    """A line for each table and index, in the words of the database."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{sql}")
        return [str(row[-1]) for row in cursor.fetchall()]
