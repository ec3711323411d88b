"""Form of a new job: fields of their own for order, times, arrays, environment and tags, and own files."""

import re
import tarfile
from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs_app.code.storage import path_of
from jobs_app.forms import JobForm, fields_of
from jobs_app.models import CodeArchive, Job, Team
from jobs_app.submission.conversion import parse_yaml

PAGE = reverse("new-job")
FIELDS = {"name": "mine", "team": "vision", "command": "python train.py", "gpus": "1"}


@pytest.fixture
def browser(member, web, cluster, settings, tmp_path) -> Client:
    settings.MOTLEY_CODE_ROOT = tmp_path
    return web(member)


def submitted(browser: Client, **fields: object) -> Job:
    answer = browser.post(PAGE, FIELDS | fields)
    assert answer.status_code == 302, answer.context["form"].errors
    return Job.objects.latest("pk")


def team_selected(shown: str) -> str:
    """Team that the form sends as the page shows it: of a selector without a selected option the first."""
    options = shown.partition('<select name="team"')[2].partition("</select>")[0]
    names = re.findall(r'<option value="([^"]*)"( selected)?', options)
    return next((name for name, selected in names if selected), names[0][0])


def test_form_and_yaml_of_an_administrator_in_no_team_name_the_same_team(staff, web, cluster):
    """The first; of a job that names none, and of several teams, none is selected, and one has to be chosen."""
    browser = web(staff)
    answer = browser.get(PAGE)
    assert (team_selected(answer.content.decode()), parse_yaml(answer.context["yaml"])["team"]) == ("language",) * 2
    sent = {"mode": "yaml", "yaml": "command: x\ngpus: 1\n", "team": "language"}
    assert browser.post(reverse("check-job"), sent).json()["fields"]["team"] == ""
    assert team_selected(browser.post(PAGE, sent | {"do": "form"}).content.decode()) == ""
    refused = browser.post(PAGE, FIELDS | {"team": ""})
    assert refused.context["form"].errors["team"] == ["Choose a team. Your teams: language, vision."]
    assert team_selected(refused.content.decode()) == ""
    Team.objects.get(name="language").delete()
    assert browser.post(reverse("check-job"), sent).json()["fields"]["team"] == "vision"


def test_a_yaml_without_a_team_selects_the_one_that_the_job_gets(browser, member):
    """With the script and without it, whatever was selected before."""
    sent = {"mode": "yaml", "yaml": "command: x\ngpus: 1\n", "team": "language"}
    default = Team.objects.default_of(member)
    assert default is not None
    assert browser.post(reverse("check-job"), sent).json()["fields"]["team"] == default.name
    assert team_selected(browser.post(PAGE, sent | {"do": "form"}).content.decode()) == default.name


def spec_of_form(member, **fields: str) -> dict[str, object]:
    form = JobForm(FIELDS | fields, user=member)
    assert form.is_valid(), form.errors
    return form.written()


def test_every_field_of_a_job_that_people_use_has_one_in_the_form(browser, member, submit):
    before, at = submit(name="prepare"), (timezone.now() + timedelta(days=1)).replace(second=0, microsecond=0)
    texts = {
        "env": "LR=0.1\nSEED=7",
        "tags": "project=imagenet",
        "after": "prepare\n",
        "array": "0-2%1",
        "weight": "0.5",
    }
    times = {"begin_time": f"{at:%Y-%m-%dT%H:%M}", "deadline": f"{at + timedelta(days=1):%Y-%m-%dT%H:%M}"}
    job = submitted(browser, **texts, **times, idle_limit="1h", setup="uv sync")
    assert (job.env, job.tags, job.weight) == ({"LR": "0.1", "SEED": "7"}, {"project": "imagenet"}, 0.5)
    assert [need.parent for need in job.needs.all()] == [before]
    assert (job.begin_time, job.deadline) == (at, at + timedelta(days=1))
    assert (job.array.at_a_time, job.idle_limit_s, job.setup) == (1, 3600, "uv sync")


def test_local_times_are_of_the_zone_of_the_page_and_the_yaml_says_which(browser):
    browser.cookies["time_zone"] = "Asia/Kathmandu"
    at = (timezone.now() + timedelta(days=1)).replace(second=0, microsecond=0)
    local = f"{at + timedelta(hours=5, minutes=45):%Y-%m-%dT%H:%M}"
    assert submitted(browser, begin_time=local).begin_time == at
    told = browser.post(reverse("check-job"), FIELDS | {"begin_time": local, "mode": "form"}).json()
    assert f"{local}:00+05:45" in told["yaml"]


def test_a_time_without_a_zone_in_the_yaml_is_of_utc_as_over_rest(browser):
    browser.cookies["time_zone"] = "Asia/Kathmandu"
    at = (timezone.now() + timedelta(days=1)).replace(second=0, microsecond=0)
    yaml = f"name: y\nteam: vision\ncommand: x\ngpus: 1\nbegin_time: '{at:%Y-%m-%dT%H:%M:%S}'\n"
    browser.post(PAGE, {"mode": "yaml", "yaml": yaml})
    assert Job.objects.get(name="y").begin_time == at


def test_form_and_spec_are_the_same_both_ways(member, cluster):
    spec = spec_of_form(
        member, env="A=1", tags="b=", after="one\ntwo end", array="1,3", secrets="HF_TOKEN, KEY", weight="2"
    )
    assert spec["after"] == ["one", {"job": "two", "on": "end"}]
    assert spec["secrets"] == ["HF_TOKEN", "KEY"]
    fields = fields_of(spec)
    assert not fields["more"]
    assert spec_of_form(member, **{name: str(value) for name, value in fields.items() if name not in FIELDS}) == spec


def test_what_has_no_line_of_its_own_stays_in_other_fields():
    fields = fields_of({"env": {"A": "1\n2"}, "after": [{"on": "end"}], "array": {"start": 0, "end": 3}})
    assert not {"env", "after", "array"} & fields.keys()
    assert all(name in fields["more"] for name in ("env", "after", "array"))


def test_a_line_that_is_no_pair_is_told_at_its_field(browser):
    told = browser.post(PAGE, FIELDS | {"env": "no pair"}).content.decode()
    assert "Write one name=value a line, not &#x27;no pair&#x27;." in told


def test_every_wrong_field_is_marked(browser):
    wrong = {"env": "no pair", "tags": "a=1\na=2", "retries": "many", "more": "rates: ["}
    form = browser.post(PAGE, FIELDS | wrong).context["form"]
    assert {name for name, faults in form.errors.items() if faults} == wrong.keys()
    assert form.errors["tags"] == ["a is there twice: leave one line out."]


def test_a_deadline_comes_after_the_begin(browser):
    now = timezone.now()
    times = {"begin_time": now + timedelta(days=2), "deadline": now + timedelta(days=1)}
    form = browser.post(PAGE, FIELDS | {name: f"{at:%Y-%m-%dT%H:%M}" for name, at in times.items()}).context["form"]
    assert form.errors.keys() == {"deadline"}


def test_the_yaml_beside_a_refused_form_is_that_of_the_form(browser):
    answer = browser.post(PAGE, FIELDS | {"gpus": "5000", "yaml": "name: before\n"})
    assert "name: mine" in answer.context["yaml"]
    assert "gpus: 5000" in answer.context["yaml"]


def test_files_that_a_refused_form_lost_are_asked_for_again(browser):
    files = {"files": [SimpleUploadedFile("train.py", b"x\n")]}
    assert "Choose the files again" in browser.post(PAGE, FIELDS | files | {"gpus": "5000"}).content.decode()
    assert "Choose the files again" not in browser.post(PAGE, FIELDS | {"gpus": "5000"}).content.decode()


# -- own files ------------------------------------------------------------------------------------------------------


def test_uploaded_files_are_the_code_of_the_job(browser):
    script = SimpleUploadedFile("run.sh", b"#!/bin/sh\ntrue\n")
    job = submitted(browser, files=[script, SimpleUploadedFile("train.py", b"print(1)\n")])
    with tarfile.open(path_of(job.code)) as archive:
        modes = {member.name: member.mode for member in archive.getmembers()}
    assert modes == {"run.sh": 0o755, "train.py": 0o644}


def test_a_folder_keeps_its_folders_and_loses_its_name(browser):
    files = [SimpleUploadedFile(name, b"x = 1\n") for name in ("train.py", "net.py", "net.pyc", "config")]
    paths = "mine/train.py\nmine/models/net.py\nmine/models/__pycache__/net.pyc\nmine/.git/config"
    job = submitted(browser, folder=files, paths=paths)
    with tarfile.open(path_of(job.code)) as archive:
        assert archive.getnames() == ["models/net.py", "train.py"]


def test_the_same_files_are_stored_once(browser):
    for _ in range(2):
        submitted(browser, files=[SimpleUploadedFile("train.py", b"print(1)\n")])
    assert CodeArchive.objects.count() == 1


@pytest.mark.parametrize("path", ["x/../../etc/passwd", "x//etc/passwd"])
def test_a_path_that_leaves_the_folder_is_refused(browser, path):
    answer = browser.post(PAGE, FIELDS | {"folder": [SimpleUploadedFile("p", b"x")], "paths": path})
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert not Job.objects.exists()
    assert not CodeArchive.objects.exists()


def test_files_are_not_stored_for_a_team_of_others(browser, stranger):
    answer = browser.post(PAGE, FIELDS | {"team": "speech", "files": [SimpleUploadedFile("a", b"x")]})
    assert answer.status_code == 200
    assert not CodeArchive.objects.exists()
