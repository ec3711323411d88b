"""Form of policy settings in the administration: parameters as lines of name=value."""

from typing import Any

from django import forms
from django.core.validators import MaxValueValidator
from django.forms.fields import InvalidJSONInput
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from allocation.policies.parameters import Parameter
from cluster_app.form_fields import KeyValueField
from scheduler_app.models import PolicySetting
from scheduler_app.policy.catalogue import describe_policies
from scheduler_app.policy.settings import KEPT_FIELDS, LONGEST_S, inherited_parameters, policy_faults, with_defaults


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


def ranges(parameter: Parameter) -> str:
    """Valid values and default of a parameter."""
    if parameter.kind is bool:
        return "On by default" if parameter.default else "Off by default"
    if parameter.kind is str:
        return f"One of {', '.join(parameter.names)}; default {parameter.default}"
    return f"From {parameter.least:g} to {parameter.most:g}; default {parameter.default:g}"
