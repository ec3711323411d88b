"""The WSGI application for gunicorn."""

import gc
import os
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()


def limit_statements(connection: BaseDatabaseWrapper, **signal: Any) -> None:
    """Have PostgreSQL cancel long statements of web processes, whose callers have gone; migrations may take long."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            most_ms = f"{settings.MOTLEY_STATEMENT_TIMEOUT.total_seconds() * 1000:.0f}"
            cursor.execute("SELECT set_config('statement_timeout', %s, false)", [most_ms])


connection_created.connect(limit_statements)

for name in (settings.ROOT_URLCONF, "scipy.optimize"):  # the views and the solver, now and not in the first request
    import_module(name)
gc.collect()
gc.freeze()  # modules stay for ever: a full collection that scans them delays a request by 0.1 s
# The timeline of ten thousand runs makes a hundred thousand objects that live until it is sent: by default, looking for
# cycles among them took a fifth of its CPU time.
gc.set_threshold(50_000)
