"""Forms: a job (common fields one by one, all others as YAML, lossless both ways), a token, a secret, members."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from cluster_app.models import GpuType, Storage
from cluster_app.storage import Volunteers
from jobs_app.errors import InvalidSpec
from jobs_app.models import ApiToken, JobDependency, Team
from jobs_app.models.secret import IS_NAME
from jobs_app.secrets import LEAST_CHARACTERS, MOST_BYTES
from jobs_app.submission.conversion import parse_spec, parse_yaml, write_yaml
from jobs_app.submission.spec import JobSpec
from jobs_app.teams import LIMITS_OF_LEADS
from web.rest.errors import Fault

WHOLE_NUMBERS = ("cpus_per_gpu", "total_steps", "retries")
TEXTS = (
    *("name", "team", "command", "workdir", "image", "volunteers"),
    *("gpu_memory", "memory_per_gpu", "workload", "time_limit", "idle_limit", "code", "setup", "array"),
)
TIMES = ("begin_time", "deadline")
PAIRS = ("env", "tags")
LISTS = ("gpu_types", "mounts")
FIELD_OF = {
    "/checkpoint/grace_seconds": "grace_seconds",
    "/checkpoint/restore_seconds": "restore_seconds",
}


FEW_ROWS = {"rows": 2, "spellcheck": "false"}
LOCAL_TIME = forms.DateTimeInput(attrs={"type": "datetime-local"})


class JobForm(forms.Form):
    """Collects the fields; validation is that of the spec, the same as over REST."""

    name = forms.CharField(required=False, max_length=100)
    team = forms.ChoiceField(required=False)
    command = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="Run by /bin/sh.",
    )
    gpus = forms.CharField(required=False, label="GPUs", help_text="Minimum number of GPUs.")
    gpus_max = forms.CharField(
        required=False,
        label="Maximum",
        help_text="A larger number makes the job elastic: it is doubled while GPUs are free.",
    )
    replicas = forms.CharField(
        required=False,
        help_text="In place of GPUs, if the model needs several: its copies, e.g. 2, or 1-4 for an elastic job.",
    )
    gpus_per_replica = forms.CharField(
        required=False, label="GPUs per replica", help_text="One number, or by GPU type: a100: 2, v100: 4."
    )
    gpu_types = forms.MultipleChoiceField(
        required=False,
        label="GPU types",
        widget=forms.CheckboxSelectMultiple,
        help_text="None selected: any type. More types mean a shorter wait.",
    )
    gpu_memory = forms.CharField(required=False, label="GPU memory", help_text="At least, e.g. 16GiB.")
    cpus_per_gpu = forms.CharField(required=False, label="CPUs per GPU")
    memory_per_gpu = forms.CharField(required=False, label="Memory per GPU", help_text="e.g. 32GiB.")
    workdir = forms.CharField(required=False, label="Folder", help_text="Empty: a new folder for each job.")
    image = forms.CharField(
        required=False, help_text="Of a container in which it runs, e.g. localhost/torch:2.5. Empty: no container."
    )
    volunteers = forms.ChoiceField(
        required=False,
        label="Volunteers' machines",
        choices=[("", "those that its team allows"), *Volunteers.choices],
        help_text="Their owners can read all that runs there. A job with secrets goes to trusted ones only, "
        "one with a folder to none.",
    )
    mounts = forms.MultipleChoiceField(
        required=False,
        label="Storage",
        widget=forms.CheckboxSelectMultiple,
        help_text="Each has its path in MOTLEY_MOUNT_<NAME>; the job runs only on nodes that have all of it.",
    )
    workload = forms.CharField(required=False, help_text="Jobs of the same workload share measured throughput.")
    total_steps = forms.CharField(
        required=False, label="Total steps", help_text="Lets Motley estimate the remaining time."
    )
    begin_time = forms.CharField(required=False, label="Not before", widget=LOCAL_TIME, help_text="Empty: at once.")
    deadline = forms.CharField(
        required=False, widget=LOCAL_TIME, help_text="It comes before others as that draws near."
    )
    after = forms.CharField(
        required=False,
        label="After",
        widget=forms.Textarea(attrs=FEW_ROWS),
        help_text="Names or ids of jobs that must succeed before, one a line; with end behind it: must have ended.",
    )
    array = forms.CharField(required=False, help_text="A task for each index, as in sbatch: 0-9, 1,3,5 or 0-99%10.")
    env = forms.CharField(
        required=False, label="Environment", widget=forms.Textarea(attrs=FEW_ROWS), help_text="One a line: LR=0.1."
    )
    tags = forms.CharField(
        required=False, widget=forms.Textarea(attrs=FEW_ROWS), help_text="One a line: project=imagenet."
    )
    secrets = forms.CharField(required=False, help_text="Names of secrets, e.g. WANDB_API_KEY, HF_TOKEN.")
    weight = forms.CharField(required=False, help_text="Within the team; 1 is usual.")
    code = forms.CharField(required=False, help_text="Digest of code that was uploaded before. Empty: none.")
    setup = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs=FEW_ROWS),
        help_text="Makes the environment, once for jobs with the same packages, e.g. uv sync.",
    )
    idle_limit = forms.CharField(required=False, help_text="Ends a notebook without input or output for so long: 1h.")
    time_limit = forms.CharField(required=False, help_text="Of running time, e.g. 48h, 90m or 2:00:00.")
    retries = forms.CharField(required=False, help_text="After failures; preemptions do not count.")
    grace_seconds = forms.CharField(required=False, label="Time to save when stopped (s)")
    restore_seconds = forms.CharField(required=False, label="Time to restore (s)")
    not_preemptible = forms.BooleanField(
        required=False, label="Not preemptible", help_text="Never stopped for another job; it may wait longer to start."
    )
    more = forms.CharField(
        required=False,
        label="Other fields, as YAML",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="sensitivity, rates, batch_size, uneven_gang, slurm_variables.",
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        current = Team.objects.current()
        teams = current if user.is_staff else current.filter(members=user)
        default, choices = current.default_of(user), [(team.name, team.name) for team in teams]
        named = self.initial.setdefault("team", default.name if default else "")
        _choices(self, "team").choices = choices if self.data.get("team", named) else [("", "choose a team"), *choices]
        _choices(self, "gpu_types").choices = [(kind.name, kind.name.upper()) for kind in GpuType.objects.current()]
        names = Storage.objects.order_by("name").values_list("name", flat=True).distinct()
        _choices(self, "mounts").choices = [(name, name) for name in names]

    def written(self) -> dict[str, Any]:
        """Spec from the fields; raises `InvalidSpec` with all faults if one cannot be read."""
        data, plain = self.cleaned_data, self._plain()
        given = [name for name in PAIRS if data[name].strip()]
        readers: dict[str, Callable[[], Any]] = {name: partial(pairs_of, data[name], name) for name in given}
        read, faults = values_and_faults(readers | {"more": self._more})
        more = read.pop("more", {})
        spec = plain | read
        if twice := [name for name in more if spec.get(name) and spec[name] != more[name]]:
            text = f"{', '.join(twice)} is a field of its own above, with another value: leave it out in one of them."
            faults.append(Fault(pointer="/more", code="given_twice", detail=text))
        spec |= more
        if faults:
            raise InvalidSpec([*faults, *_faults_of(spec)])
        return {name: spec[name] for name in sorted(spec, key=_place)}

    def _plain(self) -> dict[str, Any]:
        """What the fields with a plain value say."""
        data = self.cleaned_data
        spec: dict[str, Any] = {name: data[name].strip() for name in TEXTS if data[name].strip()}
        spec |= {name: number_or_text(data[name]) for name in WHOLE_NUMBERS if data[name].strip()}
        spec |= _size(data)
        spec |= {name: data[name] for name in LISTS if data[name]}
        spec |= {name: _time_with_zone(data[name]) for name in TIMES if data[name].strip()}
        if data["weight"].strip():
            spec["weight"] = _number(data["weight"])
        if names := re.split(r"[,\s]+", data["secrets"].strip(", \n")):
            spec |= {"secrets": names} if names != [""] else {}
        if needs := [_need_of(line) for line in data["after"].splitlines() if line.strip()]:
            spec["after"] = needs
        if checkpoint := {n: data[n] for n in ("grace_seconds", "restore_seconds") if data[n].strip()}:
            spec["checkpoint"] = checkpoint
        if data["not_preemptible"]:
            spec["preemptible"] = False
        return spec

    def _more(self) -> dict[str, Any]:
        if not self.cleaned_data["more"].strip():
            return {}
        more = parse_yaml(self.cleaned_data["more"])
        if isinstance(more, Mapping):
            return dict(more)
        raise InvalidSpec.at("/more", "not_a_map", "Write one field per line, e.g. tags: {project: imagenet}.")

    def show(self, faults: Iterable[Fault]) -> None:
        """Add each fault to its field."""
        for fault in faults:
            name = field_of(fault["pointer"])
            self.add_error(name if name in self.fields else "more", fault["detail"])


def _faults_of(spec: Mapping[str, Any]) -> Iterable[Fault]:
    """Faults of a spec beside those of fields that could not be read; needs are named, and read later."""
    try:
        parse_spec({name: value for name, value in spec.items() if name != "after"})
    except InvalidSpec as error:
        return error.faults
    return ()


def field_of(pointer: str) -> str:
    """Form field for a JSON pointer into the spec."""
    return FIELD_OF.get(pointer, pointer.split("/")[1] if "/" in pointer else "more")


def fields_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Initial values of the form for a spec."""
    rest = dict(spec)
    gpus, checkpoint = rest.pop("gpus", ""), rest.pop("checkpoint", {})
    array = rest.pop("array", None)
    values = {name: rest.pop(name) for name in (*TEXTS, *WHOLE_NUMBERS, *LISTS) if name in rest}
    if array is not None:  # an object is that of older specs
        (values if isinstance(array, str | int) else rest)["array"] = array
    if isinstance(kinds := values.get("gpu_types"), list):
        values["gpu_types"] = [str(name).lower() for name in kinds]  # as the choices of the form
    if isinstance(values.get("command"), list):
        values["command"] = shlex.join(map(str, values["command"]))
    elastic = isinstance(gpus, Mapping)
    values |= {"gpus": gpus.get("min", ""), "gpus_max": gpus.get("max", "")} if elastic else {"gpus": gpus}
    values |= {name: _text_of(rest.pop(name)) for name in ("replicas", "gpus_per_replica") if name in rest}
    values |= {name: local_time_of(str(rest.pop(name))) for name in TIMES if rest.get(name)}
    values |= {name: lines_of(rest.pop(name)) for name in PAIRS if _are_pairs(rest.get(name))}
    if isinstance(rest.get("secrets"), list):
        values["secrets"] = ", ".join(map(str, rest.pop("secrets")))
    if "weight" in rest:
        values["weight"] = rest.pop("weight")
    if (needs := _lines_of_needs(rest.get("after"))) is not None:
        values["after"] = needs
        del rest["after"]
    values |= checkpoint if isinstance(checkpoint, Mapping) else {}
    values["not_preemptible"] = rest.pop("preemptible", True) is False
    return values | {"more": write_yaml(rest) if rest else ""}


def _place(name: str) -> int:
    """Position of a field in the YAML: as in the schema; unknown fields come last."""
    names = list(JobSpec._declared_fields)
    return names.index(name) if name in names else len(names)


def _choices(form: forms.Form, name: str) -> forms.ChoiceField:
    field = form.fields[name]
    assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared so
    return field


def _size(data: Mapping[str, Any]) -> dict[str, Any]:
    """GPUs, or replicas and the GPUs of each."""
    spec: dict[str, Any] = {}
    if data["replicas"].strip():
        least, is_range, most = data["replicas"].partition("-")
        spec["replicas"] = gpus_of(least, most if is_range else "")
    if text := data["gpus_per_replica"].strip():
        spec["gpus_per_replica"] = _replica_size(text)
    if data["gpus"].strip() or data["gpus_max"].strip() or not spec:
        spec["gpus"] = gpus_of(data["gpus"], data["gpus_max"])
    return spec


def _replica_size(text: str) -> Any:
    """One number, or a map from `a100: 2, v100: 4`; validation of the spec refuses other text."""
    pairs = [part.partition(":") for part in text.strip("{}").split(",")]
    if not all(colon for _, colon, _ in pairs):
        return number_or_text(text)
    return {name.strip(): number_or_text(gpus) for name, _, gpus in pairs}


def _text_of(value: Any) -> Any:
    """Text of the form for a number of replicas or the size of one."""
    if not isinstance(value, Mapping):
        return value
    if value.keys() == {"min", "max"}:
        return f"{value['min']}-{value['max']}"
    return ", ".join(f"{name}: {gpus}" for name, gpus in value.items())


def gpus_of(least: str, most: str) -> Any:
    """A number of GPUs, or the least and the most of an elastic job."""
    if most.strip() and most.strip() != least.strip():
        return {"min": number_or_text(least), "max": number_or_text(most)}
    return number_or_text(least)


def pairs_of(text: str, field: str) -> dict[str, str]:
    """Map from lines `name=value`; raises `InvalidSpec` with the line that has no name, or one that is there before."""
    found: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not (name.strip() and equals):
            raise InvalidSpec.at(f"/{field}", "not_a_pair", f"Write one name=value a line, not {line.strip()!r}.")
        if name.strip() in found:
            raise InvalidSpec.at(f"/{field}", "given_twice", f"{name.strip()} is there twice: leave one line out.")
        found[name.strip()] = value.rstrip("\r")
    return found


def values_and_faults(readers: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, Any], list[Fault]]:
    """What each field reads as, and the faults of those that do not read: all of them, not the first."""
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, read in readers.items():
        try:
            found[name] = read()
        except InvalidSpec as error:
            faults += error.faults
    return found, faults


def lines_of(pairs: Mapping[str, str]) -> str:
    """The text that `pairs_of` reads."""
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def local_time_of(text: str) -> str:
    """A time of a spec as a field for local times has it, in the zone of the page; other texts as they are."""
    try:
        at = parse_datetime(text)
        return f"{timezone.localtime(at):%Y-%m-%dT%H:%M}" if at and timezone.is_aware(at) else text
    except (ValueError, OverflowError):  # the first or last day of the calendar has none in the zone of the page
        return text


def _are_pairs(value: Any) -> bool:
    """Whether `pairs_of` reads the map as it is: values of one line."""
    return isinstance(value, Mapping) and not any("\n" in f"{name}{text}" for name, text in value.items())


def _need_of(line: str) -> Any:
    """A dependency: a name or an id, and on what, where that is not success."""
    job, _, on = line.strip().rpartition(" ")
    return {"job": job.strip(), "on": on} if job and on in JobDependency.On.values else line.strip()


def _lines_of_needs(needs: Any) -> str | None:
    """The text that `_need_of` reads line by line; None for what is no list of dependencies."""
    if not isinstance(needs, list):
        return None
    texts = [need if isinstance(need, str) else _line_of_need(need) for need in needs]
    return None if None in texts else "\n".join(map(str, texts))


def _line_of_need(need: Any) -> str | None:
    if not isinstance(need, Mapping) or not isinstance(need.get("job"), str):
        return None
    on = need.get("on", JobDependency.On.SUCCESS)
    return need["job"] if on == JobDependency.On.SUCCESS else f"{need['job']} {on}"


def _time_with_zone(text: str) -> str:
    """A local time of the form with the offset of the page's zone; other texts as they are."""
    try:
        at = parse_datetime(text.strip())
    except ValueError:
        return text
    return timezone.make_aware(at).isoformat() if at and timezone.is_naive(at) else text.strip()


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def number_or_text(text: str) -> int | str:
    """Convert to int if possible; validation of the spec refuses other text."""
    stripped = text.strip()
    return int(stripped) if re.fullmatch(r"[0-9]{1,100}", stripped) else stripped


SCOPES = (
    (ApiToken.Scope.READ, "read"),
    (ApiToken.Scope.SUBMIT, "read, submit and change jobs"),
    (ApiToken.Scope.ADMIN, "everything that I may do"),
)
LIFETIMES = (("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "never"))


class TokenForm(forms.Form):
    """New API token; scope admin is offered only to administrators."""

    name = forms.CharField(max_length=100, help_text="What will use the token, e.g. laptop or nightly-eval.")
    scope = forms.ChoiceField(choices=SCOPES, initial=ApiToken.Scope.SUBMIT, label="Scope")
    lifetime = forms.ChoiceField(choices=LIFETIMES, initial="90", required=False, label="Expires after")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not user.is_staff:
            _choices(self, "scope").choices = SCOPES[:2]

    def expires_at(self, now: datetime) -> datetime | None:
        days = self.cleaned_data["lifetime"]
        return now + timedelta(days=int(days)) if days else None


class SecretForm(forms.Form):
    """A secret of the user, or of one of the user's teams."""

    name = forms.CharField(max_length=100, validators=[IS_NAME], help_text="Of the environment variable.")
    value = forms.CharField(
        min_length=LEAST_CHARACTERS,
        max_length=MOST_BYTES,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text="It is shown to nobody, and masked in logs.",
    )
    team = forms.ModelChoiceField(Team.objects.none(), required=False, empty_label="only my jobs", label="For")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        teams: Any = self.fields["team"]
        teams.queryset = user.teams.all()


class MemberForm(forms.Form):
    """An account that becomes a member of a team."""

    username = forms.CharField(max_length=150, label="Name", widget=forms.TextInput(attrs={"autocapitalize": "none"}))


class InviteMemberForm(forms.Form):
    """A new person, who becomes a member of a team."""

    username = forms.CharField(
        max_length=150,
        label="Name",
        help_text="To log in with.",
        widget=forms.TextInput(attrs={"autocapitalize": "none"}),
    )
    email = forms.EmailField(required=False, label="Mail address", help_text="Where the invitation is sent.")
    lead = forms.BooleanField(required=False, label="Lead: manages members and their limits")


class MemberLimitsForm(forms.ModelForm[Team]):
    """Limits of a team's members, which its leads set."""

    class Meta:
        model = Team
        fields = LIMITS_OF_LEADS
