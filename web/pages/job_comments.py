"""Comments on a job: the form on its tab Events, and the button that deletes one."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_POST

from jobs_app.errors import JobsError
from jobs_app.lifecycle.comments import comment_on_job, comments_on, delete_comment
from jobs_app.models import Job
from web.pages.base import SignedInRequest, show_error


@login_required
@require_POST
def comment(request: SignedInRequest, pk: UUID) -> HttpResponse:
    job = get_object_or_404(Job.objects.visible_to(request.user), pk=pk)
    try:
        comment_on_job(job, request.POST.get("text", ""), actor=request.user)
    except JobsError as error:
        show_error(request, error)
    return _events_of(job)


@login_required
@require_POST
def delete(request: SignedInRequest, pk: UUID, event: int) -> HttpResponse:
    """Delete a comment, as its author or as staff."""
    job = get_object_or_404(Job.objects.visible_to(request.user), pk=pk)
    try:
        found = get_object_or_404(comments_on(job), pk=event)
        delete_comment(found, actor=request.user, administrator=request.user.is_staff)
    except JobsError as error:
        show_error(request, error)
    return _events_of(job)


def _events_of(job: Job) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{reverse('job', args=[job.pk])}?tab=events")
