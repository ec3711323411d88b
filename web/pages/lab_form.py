"""Form of a run of the policy lab: history or trace, policies, weights, quotas and budgets of teams, rounds, nodes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django import forms
from django.core.files.uploadedfile import UploadedFile

from allocation.policies import POLICIES
from insight_app.lab.requests import MOST_NODES, MOST_POLICIES, USUAL_DAYS, LabRequest
from insight_app.lab.scenario import BudgetChange, NodeGpus, QuotaChange, budget_changes, quota_changes
from insight_app.lab.uploads import MOST_BYTES, UPLOAD_FORMATS, Upload
from insight_app.models.lab_run import MOST_DAYS
from scheduler_app.policy.settings import LONGEST_S
from simulation.scenario.setting import InvalidSetting
from simulation.traces.reading import LEAST_WEIGHT, MOST_WEIGHT
from web.rest.errors import Fault

Change = TypeVar("Change", QuotaChange, BudgetChange)
OF_NODES = "nodes-"
"""Prefix of the names of the fields of nodes, one for each GPU type."""


class TextFile(forms.FileField):
    """Text of an uploaded file; empty if there is none."""

    def clean(self, data: Any, initial: Any = None) -> str:
        file: UploadedFile[Any] | None = super().clean(data, initial)
        if file is None:
            return ""
        if (file.size or 0) > MOST_BYTES:
            raise forms.ValidationError(f"The file has more than {MOST_BYTES >> 20} MiB: leave out jobs.")
        try:
            return str(file.read().decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise forms.ValidationError(f"The file is not text in UTF-8: {error}.") from error


class LabForm(forms.Form):
    """Form of the input of a run; the fields of nodes depend on the cluster."""

    days = forms.IntegerField(required=False, label="Last days", initial=USUAL_DAYS, min_value=1, max_value=MOST_DAYS)
    trace = TextFile(required=False, label="Trace", help_text="In place of the last days; 8 MiB of text at most.")
    trace_format = forms.ChoiceField(
        label="Format of the trace", choices=[(n, n) for n in UPLOAD_FORMATS], initial="csv"
    )
    throughputs = TextFile(
        required=False, label="Rates of the trace's workloads", help_text="In Gavel's JSON format, for its traces."
    )
    policies = forms.MultipleChoiceField(
        required=False, choices=[(name, name) for name in POLICIES], widget=forms.CheckboxSelectMultiple
    )
    with_parameters = forms.CharField(
        required=False,
        max_length=2000,
        label="With parameters",
        help_text="A policy on each line, as in sia:power=-0.5,gap=0.01.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    round_length_s = forms.FloatField(
        required=False, label="Round length (s)", min_value=1, max_value=LONGEST_S, help_text="Empty: as it is now."
    )
    team_weights = forms.CharField(
        required=False,
        max_length=10_000,
        label="Weights of teams",
        help_text="In place of the present ones, one on each line, as in vision=2.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    quotas = forms.CharField(
        required=False,
        max_length=10_000,
        label="Quotas on GPU types",
        help_text="In place of the present ones, one on each line: TEAM:TYPE=GPUS[:BORROWED[:LENT]], as in "
        "vision:a100=8:4, or vision:a100=none.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    budgets = forms.CharField(
        required=False,
        max_length=10_000,
        label="Budgets of teams",
        help_text="In place of the present ones, one on each line: TEAM=GPU-HOURS/PERIOD[:KIND], as in "
        "vision=500/month:hard, or vision=none.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def __init__(self, *args: Any, nodes: NodeGpus, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields |= {f"{OF_NODES}{name}": _nodes_field(name, len(of_type)) for name, of_type in nodes.items()}

    @property
    def node_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(OF_NODES)]

    def clean_with_parameters(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["with_parameters"].splitlines() if line.strip()]

    def clean_team_weights(self) -> dict[str, float]:
        lines = [line for line in self.cleaned_data["team_weights"].splitlines() if line.strip()]
        return dict(_weight(line) for line in lines)

    def clean_quotas(self) -> list[QuotaChange]:
        return _changes(self.cleaned_data["quotas"], quota_changes)

    def clean_budgets(self) -> list[BudgetChange]:
        return _changes(self.cleaned_data["budgets"], budget_changes)

    def clean(self) -> dict[str, Any]:
        chosen = [*self.cleaned_data.get("policies", ()), *self.cleaned_data.get("with_parameters", ())]
        if not chosen and not self.errors:
            self.add_error("policies", "Choose a policy, or write one with parameters.")
        if len(chosen) > MOST_POLICIES:
            self.add_error("policies", f"Choose {MOST_POLICIES} policies at most.")
        return self.cleaned_data

    def request(self) -> LabRequest:
        """The request of a valid form."""
        filled = self.cleaned_data
        upload = Upload(text=filled["trace"], format_name=filled["trace_format"], throughputs=filled["throughputs"])
        nodes = {name.removeprefix(OF_NODES): n for name, n in filled.items() if name.startswith(OF_NODES) and n}
        return LabRequest(
            policies=[*filled["policies"], *filled["with_parameters"]],
            days=filled["days"] or USUAL_DAYS,
            upload=upload if filled["trace"] else None,
            round_length_s=filled["round_length_s"],
            nodes=nodes,
            team_weights=filled["team_weights"],
            quotas=filled["quotas"],
            budgets=filled["budgets"],
        )

    def show(self, faults: Iterable[Fault]) -> None:
        """Add each fault to its field."""
        for fault in faults:
            field = self._field_of(*fault["pointer"].split("/")[1:])
            self.add_error(field if field in self.fields else None, fault["detail"])

    def _field_of(self, name: str, place: str = "", *_: str) -> str:
        named: Mapping[str, Callable[[], str]] = {
            "nodes": lambda: f"{OF_NODES}{place}",
            "policies": lambda: self._policy_field(int(place)),
        }
        return named[name]() if name in named else name

    def _policy_field(self, place: int) -> str:
        return "policies" if place < len(self.cleaned_data.get("policies", ())) else "with_parameters"


def _nodes_field(gpu_type: str, there: int) -> forms.Field:
    text = f"There {'is' if there == 1 else 'are'} {there}. A negative number takes nodes away."
    return forms.IntegerField(
        required=False, label=f"Nodes of {gpu_type} added", min_value=-there, max_value=MOST_NODES, help_text=text
    )


def _changes(text: str, read: Callable[[Iterable[str]], list[Change]]) -> list[Change]:
    try:
        return read(text.splitlines())
    except InvalidSetting as error:
        raise forms.ValidationError(f"{error}.") from error


def _weight(line: str) -> tuple[str, float]:
    team, _, weight = line.rpartition("=")
    try:
        number = float(weight)
    except ValueError:
        number = 0.0
    if not team.strip() or not LEAST_WEIGHT <= number <= MOST_WEIGHT:
        raise forms.ValidationError(f"{line.strip():.60} is not TEAM=WEIGHT with a weight over 0, as in vision=2.")
    return team.strip(), number
