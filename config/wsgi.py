"""The WSGI application for gunicorn."""

import gc
import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

import_module(settings.ROOT_URLCONF)  # imports the views now, not in the first request
gc.collect()
gc.freeze()  # modules stay for ever: a full collection that scans them delays a request by 0.1 s
