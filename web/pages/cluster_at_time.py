"""Cluster at an earlier time: every GPU with the job that held it at a moment of the past, which a slider chooses."""

from datetime import UTC, datetime, timedelta
from itertools import groupby

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from insight_app.past_occupancy import count_gpus, gpus_by_node_at, jobs_of
from insight_app.timeline.time_range import DEFAULT, WINDOWS
from web.pages.base import SignedInRequest
from web.pages.cluster import DENSE_NODES_PER_PAGE
from web.pages.gpu_colours import CHOICES, colours_of, in_words

USUAL_COLOUR = "job"
MOST_JOBS = 100
"""Of the table, those with most GPUs."""
STEPS = 1440
"""Of the slider: minutes of a day."""
JUMPS = {"1 h earlier": -3600, "10 min earlier": -600, "10 min later": 600, "1 h later": 3600}


@login_required
@require_safe
def cluster_at_time(request: SignedInRequest) -> HttpResponse:
    """The cluster at `at`, in seconds since 1970: by default in the middle of the window."""
    now = timezone.now()
    window, by = request.GET.get("window", DEFAULT), request.GET.get("colour", USUAL_COLOUR)
    if window not in WINDOWS or by not in CHOICES:
        raise Http404
    earliest = now - min(WINDOWS[window].past, settings.MOTLEY_KEEP_JOBS, settings.MOTLEY_KEEP_EVENTS)
    at = _moment(request.GET.get("at", ""), earliest, now)
    nodes = gpus_by_node_at(request.user, at)
    page = Paginator(nodes, DENSE_NODES_PER_PAGE).get_page(request.GET.get("page"))
    types, jobs = groupby(page.object_list, key=lambda held: held.node.gpu_type), jobs_of(nodes)
    context = {
        "at": at,
        "slider": _slider(at, earliest, now),
        "jumps": [(words, int(at.timestamp()) + seconds) for words, seconds in JUMPS.items()],
        "window": window,
        "window_words": WINDOWS[window].words,
        "windows": WINDOWS,
        "types": [(kind, [(held, in_words(held)) for held in of_type]) for kind, of_type in types],
        "page": page,
        "jobs": jobs[:MOST_JOBS],
        "more_jobs": max(len(jobs) - MOST_JOBS, 0),
        "gpu_counts": count_gpus(nodes),
        "colours": colours_of(nodes, by),
        "colour_choices": CHOICES,
    }
    return render(request, "pages/cluster_at_time.html", context)


def _moment(text: str, earliest: datetime, now: datetime) -> datetime:
    """The moment in the address, within the window."""
    if not text:
        return earliest + (now - earliest) / 2
    try:
        at = datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise Http404 from error
    return min(max(at, earliest), now)


def _slider(at: datetime, earliest: datetime, now: datetime) -> dict[str, int]:
    step = max(int((now - earliest) / STEPS / timedelta(seconds=1)), 1)
    return {"min": int(earliest.timestamp()), "max": int(now.timestamp()), "step": step, "value": int(at.timestamp())}
