"""Forms. A job: the common fields one by one, everything else as YAML, both ways without loss. A token."""

import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User

from cluster_app.models import GpuType
from jobs_app.errors import Fault, InvalidSpec
from jobs_app.models import ApiToken, Team
from jobs_app.spec import JobSpec, parse_yaml, write_yaml

WHOLE_NUMBERS = ("cpus_per_gpu", "total_steps", "retries")
TEXTS = ("name", "team", "command", "workdir", "gpu_memory", "memory_per_gpu", "workload", "time_limit")
FIELD_OF = {
    "/checkpoint/grace_seconds": "grace_seconds",
    "/checkpoint/restore_seconds": "restore_seconds",
}


class JobForm(forms.Form):
    """Only collects: what is right or wrong is said by the spec, the same for every door."""

    name = forms.CharField(required=False, max_length=100)
    team = forms.ChoiceField(required=False)
    command = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="Run by /bin/sh.",
    )
    gpus = forms.CharField(required=False, label="GPUs", help_text="How many the job needs at least.")
    gpus_max = forms.CharField(
        required=False,
        label="At most",
        help_text="More makes it elastic: it doubles while GPUs are free.",
    )
    gpu_types = forms.MultipleChoiceField(
        required=False,
        label="GPU types",
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: any. More types, less waiting.",
    )
    gpu_memory = forms.CharField(required=False, label="GPU memory", help_text="Least of one GPU, as 16GiB.")
    cpus_per_gpu = forms.CharField(required=False, label="CPUs per GPU")
    memory_per_gpu = forms.CharField(required=False, label="Memory per GPU", help_text="As 32GiB.")
    workdir = forms.CharField(required=False, label="Folder", help_text="Empty: a fresh folder for each job.")
    workload = forms.CharField(required=False, help_text="Jobs of one workload share measured rates.")
    total_steps = forms.CharField(required=False, label="Steps in all", help_text="Lets Motley know what is left.")
    time_limit = forms.CharField(required=False, help_text="Of running time, as 48h or 90m.")
    retries = forms.CharField(required=False, help_text="After failures; preemptions never count.")
    grace_seconds = forms.CharField(required=False, label="Grace (s)", help_text="To save its work when stopped.")
    restore_seconds = forms.CharField(required=False, label="Restore (s)", help_text="To load it again.")
    not_preemptible = forms.BooleanField(
        required=False, label="Never stop it for another job", help_text="It may wait longer to start."
    )
    more = forms.CharField(
        required=False,
        label="Other fields, as YAML",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="env, rates, batch_size, deadline, after, array, tags, weight, uneven_gang.",
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        teams = Team.objects.all() if user.is_staff else Team.objects.filter(members=user)
        _choices(self, "team").choices = [(team.name, team.name) for team in teams]
        _choices(self, "gpu_types").choices = [(kind.name, kind.name.upper()) for kind in GpuType.objects.all()]

    def written(self) -> dict[str, Any]:
        """The spec that the fields say, or `InvalidSpec` where the YAML among them cannot be read."""
        data = self.cleaned_data
        spec: dict[str, Any] = {name: data[name].strip() for name in TEXTS if data[name].strip()}
        spec |= {name: number_or_text(data[name]) for name in WHOLE_NUMBERS if data[name].strip()}
        spec["gpus"] = _gpus(data["gpus"], data["gpus_max"])
        if data["gpu_types"]:
            spec["gpu_types"] = data["gpu_types"]
        if checkpoint := {n: data[n] for n in ("grace_seconds", "restore_seconds") if data[n].strip()}:
            spec["checkpoint"] = checkpoint
        if data["not_preemptible"]:
            spec["preemptible"] = False
        spec |= self._more()
        return {name: spec[name] for name in sorted(spec, key=_place)}

    def _more(self) -> dict[str, Any]:
        if not self.cleaned_data["more"].strip():
            return {}
        more = parse_yaml(self.cleaned_data["more"])
        if isinstance(more, Mapping):
            return dict(more)
        raise InvalidSpec.at("/more", "not_a_map", "Write one field per line, as tags: {project: imagenet}.")

    def show(self, faults: Iterable[Fault]) -> None:
        """Put each fault where it can be mended."""
        for fault in faults:
            name = field_of(fault["pointer"])
            self.add_error(name if name in self.fields else "more", fault["detail"])


def field_of(pointer: str) -> str:
    """The form's field for a pointer into the spec."""
    return FIELD_OF.get(pointer, pointer.split("/")[1] if "/" in pointer else "more")


def fields_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The form's values for a spec."""
    rest = dict(spec)
    gpus, checkpoint = rest.pop("gpus", ""), rest.pop("checkpoint", {})
    values = {name: rest.pop(name) for name in (*TEXTS, *WHOLE_NUMBERS, "gpu_types") if name in rest}
    if isinstance(values.get("command"), list):
        values["command"] = shlex.join(map(str, values["command"]))
    elastic = isinstance(gpus, Mapping)
    values |= {"gpus": gpus.get("min", ""), "gpus_max": gpus.get("max", "")} if elastic else {"gpus": gpus}
    values |= checkpoint if isinstance(checkpoint, Mapping) else {}
    values["not_preemptible"] = rest.pop("preemptible", True) is False
    return values | {"more": write_yaml(rest) if rest else ""}


def _place(name: str) -> int:
    """Where people expect a field in the YAML: as in the documentation; what is unknown comes last."""
    names = list(JobSpec._declared_fields)
    return names.index(name) if name in names else len(names)


def _choices(form: forms.Form, name: str) -> forms.ChoiceField:
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared so
    return field


def _gpus(least: str, most: str) -> Any:
    if most.strip() and most.strip() != least.strip():
        return {"min": number_or_text(least), "max": number_or_text(most)}
    return number_or_text(least)


def number_or_text(text: str) -> int | str:
    """A whole number where it is one; what else was typed is for the spec to refuse."""
    stripped = text.strip()
    return int(stripped) if re.fullmatch(r"[0-9]{1,100}", stripped) else stripped


SCOPES = (
    (ApiToken.Scope.READ, "look"),
    (ApiToken.Scope.SUBMIT, "look, submit, change jobs"),
    (ApiToken.Scope.ADMIN, "do all that I may"),
)
LIFETIMES = (("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("", "never expires"))


class TokenForm(forms.Form):
    """A new token; the scope that only administrators can use is offered to them alone."""

    name = forms.CharField(max_length=100, help_text="What will use it, as laptop or nightly-eval.")
    scope = forms.ChoiceField(choices=SCOPES, initial=ApiToken.Scope.SUBMIT, label="It may")
    lifetime = forms.ChoiceField(choices=LIFETIMES, initial="90", required=False, label="Expires after")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not user.is_staff:
            _choices(self, "scope").choices = SCOPES[:2]

    def expires_at(self, now: datetime) -> datetime | None:
        days = self.cleaned_data["lifetime"]
        return now + timedelta(days=int(days)) if days else None
