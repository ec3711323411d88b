"""Admission of a sweep: its fields, its space, and its first trial as a job of the cluster."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from secrets import randbelow
from typing import Any

from django.contrib.auth.models import User
from django.core.validators import RegexValidator
from rest_framework import serializers

from engines.progress import METRIC
from jobs_app.errors import InvalidSpec
from jobs_app.models import Sweep
from jobs_app.models.sweep import LARGEST_SWEEP
from jobs_app.submission.admission import Admitted
from jobs_app.submission.fields import PlainText
from jobs_app.submission.submit import admitted
from scheduler_app.sweeps.parameters import MOST_PARAMETERS, space_of
from scheduler_app.sweeps.trial_spec import quoted_twice, spec_of_trial, with_program
from sweeps.population import most_trials
from sweeps.space import Choice as Values
from sweeps.space import Params, Range, Space, grid_size
from web.rest.bodies import Strict, Text
from web.rest.choices import Choice, guess_of, shortened
from web.rest.errors import Fault, faults_of

NAMED_LIKE = "The name of a metric has up to 60 letters, digits and _ . / @ + -."
EXPLORATIONS = [("perturb", "hyperparameters near those of the better one"), ("none", "the same ones")]
MOST_MEMBERS, MOST_MARKS = 64, 60
"""Of a population. A job tells 64 values at marks."""
HALVING_TYPES = [("asha", "asynchronous successive halving")]
MOST_VALUES_OF_BAYES = 300
"""Of all choices together: the sampler's time grows with them."""
GREATEST_SEED = 2**32 - 1
USUAL_AT_A_TIME = 16
USUAL_RUN_CAP = 100
OF_ONE_JOB = {
    "array": "A trial is one job: leave array out.",
    "begin_time": "Trials begin one after the other: leave begin_time out.",
    "deadline": "A deadline is one moment, and the trials are many: leave it out, or give time_limit.",
}


class MetricSpec(Strict):
    """The metric that trials are compared by: `loss`, or a name that the job reports in `metrics`."""

    name = Text(max_length=60, validators=[RegexValidator(rf"\A{METRIC.pattern}\Z", NAMED_LIKE)])
    goal = Choice(Sweep.Goal.choices, default=Sweep.Goal.MINIMIZE)


class HalvingSpec(Strict):
    """Asynchronous successive halving: rungs at max_iter / eta^k steps, none below min_iter."""

    type = Choice(HALVING_TYPES, default="asha")
    min_iter = serializers.IntegerField(min_value=1, max_value=10**15, help_text="Steps before which none is stopped.")
    max_iter = serializers.IntegerField(min_value=1, max_value=10**15, help_text="Steps of a whole training.")
    eta = serializers.IntegerField(
        min_value=2, max_value=10, default=3, help_text="Of so many trials at a rung the best one goes on."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["min_iter"] > attrs["max_iter"]:
            raise serializers.ValidationError({"min_iter": "It must not be greater than max_iter."})
        return attrs


class PopulationSpec(Strict):
    """Population-based training: at each interval copies of the best members take the places of the worst ones."""

    size = serializers.IntegerField(min_value=2, max_value=MOST_MEMBERS, help_text="Members that train at a time.")
    interval = serializers.IntegerField(
        min_value=1, max_value=10**15, help_text="Steps after which members are compared."
    )
    max_iter = serializers.IntegerField(min_value=1, max_value=10**15, help_text="Steps of a whole training.")
    explore = Choice(
        EXPLORATIONS,
        default="perturb",
        help_text="`perturb`: a copy has hyperparameters near those of the better member; `none`: the same ones.",
    )
    keep = serializers.ListField(
        child=serializers.CharField(max_length=64),
        default=list,
        max_length=MOST_PARAMETERS,
        help_text="Parameters that stay with the weights, as the width of the network.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        interval, most = attrs["interval"], attrs["max_iter"]
        if interval >= most:
            raise serializers.ValidationError({"interval": "It must be less than max_iter, or nobody is replaced."})
        if (most - 1) // interval > MOST_MARKS:
            least = -(-most // (MOST_MARKS + 1))
            text = f"There would be more than {MOST_MARKS} intervals until max_iter: give at least {least:,}."
            raise serializers.ValidationError({"interval": text})
        return attrs


class SweepSpec(Strict):
    """A sweep to start: the spec of its jobs, and how hyperparameters are searched."""

    name = PlainText(max_length=80, help_text="Once per team; trials are named by it: lr-search-0.")
    method = Choice(Sweep.Method.choices, default=Sweep.Method.BAYES)
    metric = MetricSpec()
    parameters = serializers.JSONField(
        help_text="Name → {min, max}, {values} or {value}, as in W&B's sweep files; `distribution` may be int_uniform, "
        "uniform, q_uniform (with q), log_uniform_values."
    )
    early_terminate = HalvingSpec(required=False, allow_null=True, default=None)
    population = PopulationSpec(
        required=False, allow_null=True, default=None, help_text="Of the method `population`, which needs it."
    )
    run_cap = serializers.IntegerField(
        min_value=1,
        max_value=LARGEST_SWEEP,
        required=False,
        help_text=f"Most trials. Default: {USUAL_RUN_CAP}, or the points of the space; of a grid, all of them; of a "
        "population, its members and all that can take their places.",
    )
    at_a_time = serializers.IntegerField(
        min_value=1,
        max_value=LARGEST_SWEEP,
        required=False,
        help_text=f"Most trials that run or wait for GPUs. Default: {USUAL_AT_A_TIME}, or the size of the population.",
    )
    max_failed = serializers.IntegerField(
        min_value=0, max_value=LARGEST_SWEEP, default=5, help_text="With one more failed trial it is stopped."
    )
    seed = serializers.IntegerField(
        min_value=0, max_value=GREATEST_SEED, required=False, help_text="Default: a random one, which the answer has."
    )
    program = serializers.CharField(
        required=False,
        max_length=500,
        help_text="As in W&B's sweep files: what ${program} stands for in a command that is a list. Without a command "
        "it is run with ${args}.",
    )
    spec = serializers.JSONField(
        help_text="As of a job, without `array`, `begin_time` and `deadline`. In the command {lr} stands for the "
        "parameter lr, ${args} for all of them as --lr=0.1; the job finds them as JSON in $MOTLEY_PARAMS, too."
    )


def admitted_sweep(asked: Any, *, owner: User, now: datetime) -> Sweep:
    """A sweep that is valid, unsaved; raises `InvalidSpec` with every fault."""
    body = SweepSpec(data=asked)
    if not body.is_valid():
        raise InvalidSpec(faults_of(body.errors))
    fields: dict[str, Any] = body.validated_data
    if isinstance(fields["spec"], Mapping):
        fields["spec"] = with_program(fields["spec"], fields.get("program"))
    space = space_of(fields["parameters"])
    _refuse_slow_search(fields["method"], space)
    _check_population(fields, space)
    sweep = Sweep(
        owner=owner,
        name=fields["name"],
        method=fields["method"],
        metric=fields["metric"]["name"],
        goal=fields["metric"]["goal"],
        parameters=fields["parameters"],
        early_terminate=fields["early_terminate"] and dict(fields["early_terminate"]),
        population=fields["population"] and dict(fields["population"]),
        run_cap=_run_cap(fields, space),
        at_a_time=fields.get("at_a_time") or (fields["population"] or {}).get("size", USUAL_AT_A_TIME),
        max_failed=fields["max_failed"],
        seed=fields.get("seed", randbelow(GREATEST_SEED)),
        spec=_stored(fields["spec"]),
        created_at=now,
        advanced_at=now,
    )
    job = admitted_trial(sweep, 0, _first_point(space), fields["spec"])
    sweep.team, sweep.code = job.team, job.code
    return sweep


def admitted_trial(sweep: Sweep, number: int, params: Params, spec: Any = None) -> Admitted:
    """The job of this trial, admitted; faults of its spec are below `/spec`."""
    written = spec if spec is not None else {**sweep.spec, "team": sweep.team.name}
    if not isinstance(written, Mapping):
        raise InvalidSpec.at("/spec", "invalid", "The spec of a job is an object, with at least a command.")
    faults = [_fault(name) for name in OF_ONE_JOB if written.get(name)]
    if place := quoted_twice(written.get("command"), params):
        text = f"Write {place} outside of quotes: its value is quoted for the shell."
        faults.append(Fault(pointer="/spec/command", code="quoted_twice", detail=text))
    try:
        job = admitted(spec_of_trial(sweep, number, params, written), sweep.owner)
    except InvalidSpec as error:
        below = [
            Fault(pointer=f"/spec{one['pointer']}", code=one["code"], detail=one["detail"]) for one in error.faults
        ]
        raise InvalidSpec([*faults, *below]) from None
    if faults:
        raise InvalidSpec(faults)
    return job


def _fault(name: str) -> Fault:
    return Fault(pointer=f"/spec/{name}", code="not_in_sweeps", detail=OF_ONE_JOB[name])


def _grid_size(method: str, space: Space) -> int | None:
    """Points of the grid; None for another method."""
    if method != Sweep.Method.GRID:
        return None
    endless = [name for name, one in space.items() if isinstance(one, Range) and not one.is_integer and not one.step]
    if endless:
        text = "A grid needs its values: give values, whole numbers, or a step by q; or method: random."
        raise InvalidSpec([Fault(pointer=f"/parameters/{name}", code="no_grid", detail=text) for name in endless])
    size = grid_size(space)
    if size > LARGEST_SWEEP:
        text = f"The grid has {size:,} points, and a sweep at most {LARGEST_SWEEP:,} trials: choose method: random."
        raise InvalidSpec.at("/parameters", "too_many", text)
    return size


def _run_cap(fields: Mapping[str, Any], space: Space) -> int:
    """Most trials: as asked, or the usual number; of a grid no more than its points."""
    asked = fields.get("run_cap")
    if (given := fields["population"]) is not None:
        return asked or min(most_trials(given["size"], given["interval"], given["max_iter"]), LARGEST_SWEEP)
    size = _grid_size(fields["method"], space)
    if asked and size is None and asked > (points := _points(space)):
        text = (
            f"The parameters have only {points:,} combinations: set run_cap to at most {points:,}, add values, or "
            "leave run_cap out."
        )
        raise InvalidSpec.at("/run_cap", "too_many", text)
    return min(asked or size or min(USUAL_RUN_CAP, _points(space)), size or LARGEST_SWEEP)


def _check_population(fields: Mapping[str, Any], space: Space) -> None:
    """Refuse fields of other methods beside a population, and a population beside another method."""
    faults = [
        Fault(pointer=pointer, code="population", detail=detail)
        for pointer, detail in _population_faults(fields, fields["population"], space)
    ]
    if faults:
        raise InvalidSpec(faults)


def _population_faults(
    fields: Mapping[str, Any], given: Mapping[str, Any] | None, space: Space
) -> Iterator[tuple[str, str]]:
    is_method = fields["method"] == Sweep.Method.POPULATION
    if given is None:
        if is_method:
            yield "/population", "The method population needs it: {size: 8, interval: 500, max_iter: 10000}."
        return
    if not is_method:
        yield "/population", "It is of the method population alone: write method: population, or leave it out."
        return
    if fields["early_terminate"]:
        yield "/early_terminate", "A population replaces its worst members: leave early_terminate out."
    for name in ("run_cap", "at_a_time"):
        if fields.get(name, given["size"]) < given["size"]:
            yield f"/{name}", f"It is at least population.size, {given['size']}: leave it out, or give more."
    if unknown := next((name for name in given["keep"] if name not in space), None):
        yield "/population/keep", f"{shortened(unknown)} is no parameter of the sweep.{guess_of(unknown, space)}"


def _points(space: Space) -> int:
    """Different points of the space; `LARGEST_SWEEP` if a parameter has no end of values."""
    try:
        return grid_size(space)
    except ValueError:
        return LARGEST_SWEEP


def _refuse_slow_search(method: str, space: Space) -> None:
    """Refuse choices of so many values that a suggestion would take seconds of the scheduler's loop."""
    values = sum(len(one.values) for one in space.values() if isinstance(one, Values))
    if method == Sweep.Method.BAYES and values > MOST_VALUES_OF_BAYES:
        text = f"The choices have {values:,} values, and bayes takes {MOST_VALUES_OF_BAYES}: choose method: random."
        raise InvalidSpec.at("/parameters", "too_many", text)


def _first_point(space: Space) -> Params:
    return {name: one.values[0] if isinstance(one, Values) else one.least for name, one in space.items()}


def _stored(spec: Any) -> Any:
    """The spec as it was written, without its team, which may be renamed, and without anchors of YAML."""
    if not isinstance(spec, Mapping):
        return spec
    return {name: value for name, value in spec.items() if name != "team" and not str(name).startswith("x-")}
