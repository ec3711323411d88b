"""Forms of policy settings: one field per parameter on the policies page, one of lines in the administration."""

from typing import Any

from django import forms
from django.core.validators import MaxValueValidator
from django.forms.fields import InvalidJSONInput
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from allocation.policies.parameters import Parameter
from cluster_app.form_fields import KeyValueField
from scheduler_app.models import PolicySetting
from scheduler_app.policy.catalogue import PolicyDescription, describe_policies
from scheduler_app.policy.settings import (
    KEPT_FIELDS,
    LEAST_PART,
    LONGEST_S,
    inherited_parameters,
    parameter_fault,
    policy_faults,
    with_defaults,
)

OF_PARAMETERS = "parameter-"
"""Prefix of the names of parameter fields; avoids collisions with other fields."""


class ChoiceForm(forms.Form):
    """Settings of one policy: its parameters, times, and how CPUs and memory are shared."""

    round_length_s = forms.FloatField(label="Round length (s)", min_value=1, max_value=LONGEST_S)
    min_run_s = forms.FloatField(
        label="Minimum run time (s)",
        min_value=0,
        max_value=LONGEST_S,
        help_text="A job is not preempted before, nor within half a round.",
    )
    solve_limit_part = forms.FloatField(
        label="Solver time limit (fraction of a round)",
        min_value=LEAST_PART,
        max_value=1,
        help_text="When it is reached, the best certified decision so far is used.",
    )
    cpu_memory = forms.ChoiceField(
        label="CPUs and memory",
        choices=PolicySetting.CpuMemory.choices,
        help_text="How jobs that ask for no fixed number of CPUs, or for no memory, share those of a node.",
    )
    note = forms.CharField(required=False, max_length=300, help_text="Reason, shown in the history.")

    def __init__(self, data: Any = None, *, policy: PolicyDescription, current: PolicySetting) -> None:
        chosen = current.parameters if current.policy == policy.name else {}
        initial = {name: getattr(current, name) for name in KEPT_FIELDS}
        initial |= {OF_PARAMETERS + name: value for name, value in with_defaults(policy.name, chosen).items()}
        super().__init__(data, initial=initial, auto_id=f"{policy.name}-%s")
        self.policy = policy
        of_parameters = {OF_PARAMETERS + parameter.name: _field(parameter) for parameter in policy.parameters}
        self.fields = of_parameters | self.fields

    def clean(self) -> dict[str, Any]:
        """Refuse parameters that the policy does not have."""
        for field in self.data.keys() - self.fields.keys():
            if field.startswith(OF_PARAMETERS):
                name = field.removeprefix(OF_PARAMETERS)
                self.add_error(None, parameter_fault(self.policy.name, name, self.data[field]))
        return self.cleaned_data

    def setting(self) -> PolicySetting:
        """The setting as filled in; empty fields have their defaults."""
        given = {name: self.cleaned_data[OF_PARAMETERS + name] for name in (p.name for p in self.policy.parameters)}
        others = {name: self.cleaned_data[name] for name in (*KEPT_FIELDS, "note")}
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
    """Valid values and default of a parameter."""
    if parameter.kind is bool:
        return "On by default" if parameter.default else "Off by default"
    if parameter.kind is str:
        return f"One of {', '.join(parameter.names)}; default {parameter.default}"
    return f"From {parameter.least:g} to {parameter.most:g}; default {parameter.default:g}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


class ParametersField(KeyValueField):
    """Map of names and values that also refuses values that Python cannot parse, such as a number of 5,000 digits."""

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError("A number is too long, or the value is nested too deeply.") from error


class PolicySettingForm(forms.ModelForm[PolicySetting]):
    """Form of the admin: parameters as lines, with the parameters of each policy as help text."""

    class Meta:
        model = PolicySetting
        fields = ("policy", "parameters", *KEPT_FIELDS, "note")
        field_classes = {"parameters": ParametersField}  # as Django requires

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["parameters"].help_text = help_on_parameters()
        for name in ("round_length_s", "min_run_s"):
            self.fields[name].validators.append(MaxValueValidator(LONGEST_S))

    def clean_parameters(self) -> Any:
        given = self.cleaned_data["parameters"]
        if given is not None and not isinstance(given, dict):
            raise forms.ValidationError("Write one name=value per line, such as power=2, or nothing.")
        return given or {}

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or self.cleaned_data
        if {"policy", "parameters"} <= found.keys():
            now = PolicySetting.objects.current()
            touched = found["parameters"] if found["parameters"] != with_defaults(now.policy, now.parameters) else None
            found["parameters"] = inherited_parameters(found["policy"], touched, before=now.policy, kept=now.parameters)
            for fault in policy_faults(found["policy"], found["parameters"]):
                self.add_error("parameters", fault["detail"])
        return found


def help_on_parameters() -> SafeString | str:
    """Help text: the parameters of each policy."""
    listed = [
        f"{policy.name}: " + "; ".join(f"{p.name}, {_lower(ranges(p))} ({p.meaning})" for p in policy.parameters)
        for policy in describe_policies()
        if policy.parameters
    ]
    if not listed:
        return "No policy has parameters: leave it empty."
    lines = format_html_join(mark_safe("<br>"), "{}", ((line,) for line in listed))
    first = "One name=value per line; parameters that are left out have their defaults."
    return format_html("{}<details><summary>Parameters of each policy</summary>{}</details>", first, lines)


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
