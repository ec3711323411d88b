"""Jobs selected in a list, and what is done with them at once: hold, release, change the weight, cancel."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from jobs_app.errors import InvalidSpec
from jobs_app.lifecycle.commands import change_job, hold_job, release_job
from jobs_app.models import Job
from jobs_app.submission.conversion import parse_change
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, job_rows

MOST_AT_ONCE = 200
MOST_ERRORS = 3
Command = Callable[..., None]


def selected_jobs(request: SignedInRequest, data: QueryDict) -> tuple[list[Job], int]:
    """The jobs and the unfinished tasks of the arrays that were selected, and how many more there are than at once."""
    jobs, arrays = data.getlist("job")[:MOST_AT_ONCE], data.getlist("array")[:MOST_AT_ONCE]
    unfinished = Q(array__in=arrays, state__in=(Job.State.QUEUED, *Job.ACTIVE))
    try:
        chosen = job_rows(request.user).filter(Q(pk__in=jobs) | unfinished if arrays else Q(pk__in=jobs))
        found = list(chosen.order_by("pk")[:MOST_AT_ONCE])
        left = chosen.count() - len(found) if len(found) == MOST_AT_ONCE else 0
    except ValidationError as error:
        raise Http404 from error
    if (jobs or arrays) and not found:
        raise Http404
    return found, left


@login_required
@require_POST
def act_on_jobs(request: SignedInRequest, verb: str) -> HttpResponse:
    """Hold or release the selected jobs, or set their weight."""
    if verb not in VERBS:
        raise Http404
    command, words = VERBS[verb]
    jobs, left = selected_jobs(request, request.POST)
    done, errors = _do_with_all(jobs, partial(command, request))
    _tell(request, words.format(_jobs(done)) if done else "", errors, left)
    if not jobs:
        messages.error(request, "No job is selected: tick jobs in the list first.")
    back = QueryDict(request.POST.get("back", "")).urlencode()
    return redirect(f"{reverse('jobs')}?{back}" if back else "jobs")


def _hold(request: SignedInRequest, job: Job) -> None:
    hold_job(job, actor=request.user)


def _release(request: SignedInRequest, job: Job) -> None:
    release_job(job, actor=request.user)


def _set_weight(request: SignedInRequest, job: Job) -> None:
    asked = parse_change({"weight": request.POST.get("weight", "")})
    change_job(job, asked, actor=request.user, administrator=request.user.is_staff)


VERBS: dict[str, tuple[Command, str]] = {
    "hold": (_hold, "Holding {}: they stay queued until you release them."),
    "release": (_release, "Released {}: they take part in the next round."),
    "weight": (_set_weight, "Set the weight of {}."),
}


def _do_with_all(jobs: list[Job], command: Command) -> tuple[int, Counter[str]]:
    """Number of successful actions, and errors with the number of jobs that each concerns."""
    errors: Counter[str] = Counter()
    for job in jobs:
        try:
            command(job)
        except DOMAIN_ERRORS as error:
            errors[_words(error)] += 1
    return len(jobs) - errors.total(), errors


def _words(error: Exception) -> str:
    """A fault begins with its field as the page names it."""
    faults = error.faults if isinstance(error, InvalidSpec) else ()
    return " ".join(f"{fault['pointer'].strip('/').capitalize()}: {fault['detail']}" for fault in faults) or str(error)


def _tell(request: SignedInRequest, done: str, errors: Counter[str], left: int) -> None:
    if done:
        messages.success(request, done)
    for text, count in errors.most_common(MOST_ERRORS):
        messages.error(request, f"{_jobs(count)}: {text}")
    if left:
        messages.warning(request, f"At most {MOST_AT_ONCE} jobs at once: repeat it for the other {left:,}.")


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"
