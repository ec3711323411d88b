"""Error messages of 404 (what was not found) and 405 (which methods the address accepts)."""

import re
from typing import Any

from django.apps import apps
from django.db.models import Model
from django.http import Http404
from rest_framework.exceptions import MethodNotAllowed

from web.rest.errors import encodable

NO_ROW = re.compile(r"No (\w+) matches the given query\.")
"""Django's words, with the name of the model."""
LONGEST_NAME = 100
UNSAID = {"OPTIONS", "HEAD"}


def describe_missing(error: Http404, view: Any) -> str:
    """Message of a 404: the kind of object that was not found, and its name if the address contains it."""
    own = getattr(getattr(view, "queryset", None), "model", None)
    model = _model_of(error) or own
    if model is None:
        return "Not found, or you may not see it."
    kind = model._meta.verbose_name
    is_addressed = model is own if own else len(view.kwargs) == 1
    name = next((str(value) for value in view.kwargs.values()), "") if is_addressed else ""
    what = f"{kind} {name[:LONGEST_NAME]!r}" if name else f"such {kind}"
    return f"There is no {encodable(what)}, or you may not see it."


def _model_of(error: Http404) -> type[Model] | None:
    found = NO_ROW.fullmatch(str(error))
    return next((one for one in apps.get_models() if found and one.__name__ == found[1]), None)


def describe_not_allowed(error: MethodNotAllowed, method: str, view: Any) -> str:
    """Message of a 405: the methods that the address accepts, and the actions below it."""
    methods = [each for each in getattr(view, "allowed_methods", ()) if each not in UNSAID]
    if not methods:
        return str(error.detail)
    verbs = _verbs_of(view)
    below = f" Verbs of it are POST {', '.join(f'…/{verb}' for verb in verbs)}." if verbs else ""
    return f"This address does not take {method}, but {', '.join(methods)}.{below}"


def _verbs_of(view: Any) -> list[str]:
    """Actions by POST on the one thing that is addressed."""
    if not (getattr(view, "detail", False) and hasattr(view, "get_extra_actions")):
        return []
    return [each.url_path for each in view.get_extra_actions() if each.detail and "post" in each.mapping]
