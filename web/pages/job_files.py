"""Files of a job on its page: a tab that lists its own folder, and the download of one file."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from cluster_app.models import Engine
from connections_app.checkpoints.listing import read_checkpoints
from connections_app.engine_registry import engine_named
from connections_app.errors import TooManyLongRequests
from connections_app.job_folder import a_place, download, open_for
from engines.job_files import MOST_LISTED
from engines.protocol import EngineError, NoSuchFile
from jobs_app.models import Attempt, Job
from web.pages.base import SignedInRequest

LONGEST_PATH, MOST_BEGUN = 4096, 100

Context = dict[str, Any]


def files_tab(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    """Content of the folder that the query names; by default the job's folders."""
    path = request.GET.get("path", "").strip("/")[:LONGEST_PATH]
    launched = [attempt for attempt in attempts if attempt.launched_at]
    if not launched or job.files_deleted_at is not None:
        return {"files": []}
    above = path.split("/") if path else []
    context: Context = {
        "path": path,
        "crumbs": [(name, "/".join(above[: n + 1])) for n, name in enumerate(above)],
        "most_listed": MOST_LISTED,
        "asks_an_agent": any(one.has_agents for one in Engine.objects.filter(name=launched[-1].engine)),
    }
    try:
        with a_place(job, request.user.pk):
            return context | {"files": engine_named(launched[-1].engine).list_files(str(job.pk), path)}
    except TooManyLongRequests as error:
        return context | {"files": [], "fault": str(error)}
    except NoSuchFile as error:
        if path:
            raise Http404 from error
        return context | {"files": []}
    except EngineError as error:
        return context | {"files": [], "fault": str(error)}


def checkpoints_tab(request: SignedInRequest, job: Job, attempts: Sequence[Attempt]) -> Context:
    """Checkpoints that there are, and those that the job reported, with the jobs that began with one."""
    begun = Job.objects.visible_to(request.user).filter(continues=job.pk)[:MOST_BEGUN]
    try:
        return {"checkpoints": read_checkpoints(job), "begun": begun}
    except EngineError as error:
        return {"checkpoints": [], "begun": begun, "fault": str(error)}


@login_required
@require_safe
def job_file(request: SignedInRequest, pk: UUID) -> HttpResponseBase:
    """Download one file of the job's folder."""
    job = get_object_or_404(Job.objects.visible_to(request.user), pk=pk, files_deleted_at=None)
    path = request.GET.get("path", "")[:LONGEST_PATH]
    try:
        opened, give_back = open_for(job, path, request.user.pk)
    except EngineError as error:
        raise Http404 from error
    except TooManyLongRequests as error:
        answer = render(request, "503.html", {"detail": str(error)}, status=503)
        answer["Retry-After"] = str(error.retry_after_s)
        return answer
    return download(opened, path.rpartition("/")[2], when_closed=give_back)
