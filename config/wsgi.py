"""The WSGI application for gunicorn."""

import gc
import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

import_module(settings.ROOT_URLCONF)  # the views with it, now and not in the first request
gc.collect()
gc.freeze()  # what was imported stays: looking through it for garbage would hold up a request by a tenth of a second
