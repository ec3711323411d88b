"""Pages of sweeps: the list, one with its trials and charts, and the form to start one."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from jobs_app.errors import InvalidSpec
from jobs_app.measurement.progress_curves import read_metric
from jobs_app.models import Job, Sweep, SweepTrial
from jobs_app.submission.conversion import write_yaml
from scheduler_app.sweeps.admission import SweepSpec, admitted_sweep
from scheduler_app.sweeps.editing import delete_sweep, start_sweep, stop_sweep
from scheduler_app.sweeps.history import counts_of
from scheduler_app.sweeps.outlook import outlook_of
from scheduler_app.sweeps.parameters import space_of
from scheduler_app.sweeps.population import changes_in_words
from scheduler_app.sweeps.trial_spec import compared_at, short_text
from web.pages.base import DOMAIN_ERRORS, SignedInRequest, paginate, show_error
from web.pages.job_comparison import MOST_COMPARED
from web.pages.new_job import parsed_yaml
from web.pages.sweep_charts import MOST_POINTS, sweep_figures, trials_with_curves

SHOWN = 200
"""Trials in the table of a sweep: the best, then the others by number."""
EXAMPLE = """\
name: spirals
command: python -m motley_client.sample --steps 900 --lr {lr} --hidden {hidden}
gpus: 1
method: bayes
metric: {name: loss, goal: minimize}
parameters:
  lr: {min: 0.001, max: 1.0, distribution: log_uniform_values}
  hidden: {values: [8, 16, 32, 64]}
early_terminate: {min_iter: 100, max_iter: 900, eta: 3}
run_cap: 20
at_a_time: 6
"""
IGNORED = ("kind", "project", "entity", "description")
"""Fields of W&B's sweep files that say nothing about the search, as `motley sweep start` has them."""


class SweepForm(forms.Form):
    """A sweep as YAML, checked as over REST."""

    sweep = forms.CharField(
        label="The sweep as YAML",
        widget=forms.Textarea(attrs={"rows": 20, "spellcheck": "false", "class": "code"}),
        help_text="Fields of the search and of its jobs, as in a file for motley sweep start.",
    )


@login_required
@require_safe
def sweeps(request: SignedInRequest) -> HttpResponse:
    seen = Sweep.objects.visible_to(request.user).select_related("team", "owner")
    context = paginate(request, seen)
    counts = counts_of(context["rows"])
    context["listed"] = [(sweep, counts[sweep.pk]) for sweep in context["rows"]]
    return render(request, "pages/sweeps.html", context)


@login_required
@require_safe
def sweep(request: SignedInRequest, pk: int) -> HttpResponse:
    found = _seen(request, pk)
    trials = list(found.trials.all())
    rungs = compared_at(found)
    drawn = [trial.job_id for trial in trials_with_curves(found, trials)]
    curves = read_metric(drawn, found.metric, MOST_POINTS)
    table, counts = _table(found, trials), counts_of([found])[found.pk]
    context = {
        "sweep": found,
        "counts": counts,
        "states": [(SweepTrial.State(state).label, count) for state, count in counts.by_state.items() if count],
        "rungs": rungs,
        "place_name": "Mark" if found.population else "Rung",
        "table": table,
        "compared": _compared(table),
        "left_out": max(len(trials) - SHOWN, 0),
        "names": list(found.parameters),
        "figures": sweep_figures(found, trials, space_of(found.parameters), rungs, curves),
        "outlook": outlook_of(found, trials, timezone.now()),
        "yaml": write_yaml({"team": found.team.name, **found.spec}),
    }
    return render(request, "pages/sweep.html", context)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_sweep(request: SignedInRequest) -> HttpResponse:
    form = SweepForm(request.POST or None, initial={"sweep": EXAMPLE})
    if request.method == "POST" and form.is_valid():
        try:
            asked = split_fields(parsed_yaml(form.cleaned_data["sweep"]))
            started = admitted_sweep(asked, owner=request.user, now=timezone.now())
            start_sweep(started)
        except InvalidSpec as error:
            for fault in error.faults:
                place = fault["pointer"].removeprefix("/spec").removeprefix("/")
                form.add_error("sweep", f"{place}: {fault['detail']}" if place else fault["detail"])
        else:
            messages.success(request, f"{started} has started.")
            return redirect("sweep", started.pk)
    return render(request, "pages/sweep_form.html", {"form": form})


@login_required
@require_POST
def act(request: SignedInRequest, pk: int, verb: str) -> HttpResponse:
    """Stop or delete a sweep."""
    found = _seen(request, pk)
    if verb not in ("stop", "delete"):
        raise Http404
    try:
        if verb == "stop":
            stop_sweep(found, actor=request.user)
            messages.success(request, f"{found} is being stopped; its open trials are cancelled.")
            return redirect("sweep", pk)
        delete_sweep(found, actor=request.user)
        messages.success(request, f"{found} is deleted. Its jobs stay.")
    except DOMAIN_ERRORS as error:
        show_error(request, error)
        return redirect("sweep", pk)
    return redirect("sweeps")


def split_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The body of REST of one file: fields of the search, and those of its jobs as `spec`."""
    of_sweep = {name: value for name, value in given.items() if name in SweepSpec().fields and name != "spec"}
    return {**of_sweep, "spec": {name: value for name, value in given.items() if name not in {*of_sweep, *IGNORED}}}


def _seen(request: SignedInRequest, pk: int) -> Sweep:
    return get_object_or_404(Sweep.objects.visible_to(request.user).select_related("team", "owner"), pk=pk)


def _table(found: Sweep, trials: list[SweepTrial]) -> list[tuple[SweepTrial, str, list[Any], str]]:
    """Trials with the state of their job, their values and their changes: succeeded ones first, the best first."""
    sign = -1 if found.goal == Sweep.Goal.MAXIMIZE else 1
    best_first = sorted(trials, key=lambda trial: (*_rank(trial, sign), trial.number))[:SHOWN]
    jobs = Job.objects.filter(pk__in=[trial.job_id for trial in best_first]).order_by()
    states = {pk: "held" if held else state for pk, state, held in jobs.values_list("pk", "state", "held")}
    return [
        (
            trial,
            states.get(trial.job_id, ""),
            [(name, short_text(trial.params.get(name))) for name in found.parameters],
            ", ".join(changes_in_words(trial)),
        )
        for trial in best_first
    ]


def _compared(table: list[tuple[SweepTrial, str, list[Any], str]]) -> str:
    """Ids of the first trials of the table whose jobs are not in the archive, for the page that compares jobs."""
    ids = [str(trial.job_id) for trial, state, _, _ in table if state][:MOST_COMPARED]
    return ",".join(ids) if len(ids) > 1 else ""


def _rank(trial: SweepTrial, sign: int) -> tuple[int, float]:
    if trial.state == SweepTrial.State.SUCCEEDED and trial.value is not None:
        return 0, sign * trial.value
    return (1, 0) if trial.is_open else (2, sign * (trial.value or 0.0))
