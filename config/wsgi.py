"""The WSGI application for gunicorn."""

import gc
import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

for name in (settings.ROOT_URLCONF, "scipy.optimize"):  # the views and the solver, now and not in the first request
    import_module(name)
gc.collect()
gc.freeze()  # modules stay for ever: a full collection that scans them delays a request by 0.1 s
