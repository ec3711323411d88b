"""Forms by which a policy is chosen: on its page, a field for each parameter; in the administration, all in one."""

from typing import Any

from django import forms
from django.core.validators import MaxValueValidator
from django.forms.fields import InvalidJSONInput
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from allocation.parameters import Parameter
from scheduler_app.choosing import KEPT, LEAST_PART, LONGEST_S, carried_over, faults_of_choice, in_full, refusal
from scheduler_app.describing import Described, all_described
from scheduler_app.models import PolicySetting

OF_PARAMETERS = "parameter-"
"""Begins the names of their fields, so that none is taken for another field."""


class ChoiceForm(forms.Form):
    """One policy: its parameters, and how often and how firmly it decides."""

    round_length_s = forms.FloatField(label="Round length (s)", min_value=1, max_value=LONGEST_S)
    min_run_s = forms.FloatField(
        label="Least run (s)", min_value=0, max_value=LONGEST_S, help_text="No preemption before."
    )
    solve_limit_part = forms.FloatField(
        label="Time limit (part of a round)",
        min_value=LEAST_PART,
        max_value=1,
        help_text="When it is over, the best certified decision counts.",
    )
    note = forms.CharField(required=False, max_length=300, help_text="Why, for the history.")

    def __init__(self, data: Any = None, *, policy: Described, current: PolicySetting) -> None:
        chosen = current.parameters if current.policy == policy.name else {}
        initial = {name: getattr(current, name) for name in KEPT}
        initial |= {OF_PARAMETERS + name: value for name, value in in_full(policy.name, chosen).items()}
        super().__init__(data, initial=initial, auto_id=f"{policy.name}-%s")
        self.policy = policy
        of_parameters = {OF_PARAMETERS + parameter.name: _field(parameter) for parameter in policy.parameters}
        self.fields = of_parameters | self.fields

    def clean(self) -> dict[str, Any]:
        """Refuse parameters that there is no field for, rather than pass them by."""
        for field in self.data.keys() - self.fields.keys():
            if field.startswith(OF_PARAMETERS):
                name = field.removeprefix(OF_PARAMETERS)
                self.add_error(None, refusal(self.policy.name, name, self.data[field]))
        return self.cleaned_data

    def setting(self) -> PolicySetting:
        """What was filled in; what was left empty has its default."""
        given = {name: self.cleaned_data[OF_PARAMETERS + name] for name in (p.name for p in self.policy.parameters)}
        others = {name: self.cleaned_data[name] for name in (*KEPT, "note")}
        parameters = {name: value for name, value in given.items() if value is not None}
        return PolicySetting(policy=self.policy.name, parameters=parameters, **others)


def _field(parameter: Parameter) -> forms.Field:
    label, meaning = parameter.name, parameter.meaning
    if parameter.kind is bool:
        return forms.BooleanField(required=False, label=label, help_text=_sentence(meaning))
    if parameter.kind is str:
        names = [(name, name) for name in parameter.names]
        return forms.TypedChoiceField(
            required=False, empty_value=None, choices=names, label=label, help_text=_sentence(meaning)
        )
    text, (least, most) = f"{_sentence(meaning)} {ranges(parameter)}.", (parameter.least, parameter.most)
    if parameter.kind is int:
        ends = int(least), int(most)
        return forms.IntegerField(required=False, label=label, help_text=text, min_value=ends[0], max_value=ends[1])
    return forms.FloatField(required=False, label=label, help_text=text, min_value=least, max_value=most)


def ranges(parameter: Parameter) -> str:
    """What it may be, and what it is if nobody says."""
    if parameter.kind is bool:
        return "On unless told" if parameter.default else "Off unless told"
    if parameter.kind is str:
        return f"One of {', '.join(parameter.names)}; {parameter.default} unless told"
    return f"From {parameter.least:g} to {parameter.most:g}; {parameter.default:g} unless told"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


class ParametersField(forms.JSONField):
    """Django takes only what is no JSON for a fault; a number of 5,000 digits is one, too."""

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError("A number is too long, or maps are nested too deep.") from error


class PolicySettingForm(forms.ModelForm[PolicySetting]):
    """All policies in one form: the parameters are JSON, and the help lists what each policy has."""

    class Meta:
        model = PolicySetting
        fields = ("policy", "parameters", *KEPT, "note")
        field_classes = {"parameters": ParametersField}  # as Django wants it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["parameters"].help_text = help_on_parameters()
        for name in ("round_length_s", "min_run_s"):
            self.fields[name].validators.append(MaxValueValidator(LONGEST_S))

    def clean_parameters(self) -> Any:
        given = self.cleaned_data["parameters"]
        if given is not None and not isinstance(given, dict):
            raise forms.ValidationError('Write a map from names to values, as {"name": 1}; or {}.')
        return given or {}

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if {"policy", "parameters"} <= found.keys():
            now = PolicySetting.objects.current()
            touched = found["parameters"] if found["parameters"] != in_full(now.policy, now.parameters) else None
            found["parameters"] = carried_over(found["policy"], touched, before=now.policy, kept=now.parameters)
            for fault in faults_of_choice(found["policy"], found["parameters"]):
                self.add_error("parameters", fault["detail"])
        return found


def help_on_parameters() -> SafeString | str:
    """Each policy that has parameters, with what they are."""
    listed = [
        f"{policy.name}: " + "; ".join(f"{p.name}, {_lower(ranges(p))} ({p.meaning})" for p in policy.parameters)
        for policy in all_described()
        if policy.parameters
    ]
    if not listed:
        return "No policy has parameters: write {}."
    first = "A map from names to values; what is left out has its default."
    return format_html_join(mark_safe("<br>"), "{}", ((line,) for line in (first, *listed)))


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
