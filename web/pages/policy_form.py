"""Form of a policy's settings on the page Policies, with a field for each parameter."""

from typing import Any

from django import forms

from allocation.policies.parameters import Parameter
from scheduler_app.models import PolicySetting
from scheduler_app.policy.catalogue import PolicyDescription
from scheduler_app.policy.setting_form import ranges
from scheduler_app.policy.settings import (
    KEPT_FIELDS,
    LEAST_PART,
    LONGEST_S,
    parameter_fault,
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


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."
