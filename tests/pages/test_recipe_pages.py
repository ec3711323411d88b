"""Pages of recipes: cards on *New job*, the form by which a job is submitted, changes as versions."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs_app.models import Job, Recipe, Team

YAML = """\
parameters:
  lr: 0.1
  data: {description: path of the data}
  mixed: {default: false, choices: []}
name: train
team: vision
command: python train.py ${{ lr }} ${{ data }} ${{ mixed }}
gpus: 1
"""
FIELDS = {"name": "resnet", "description": "ResNet on ImageNet", "editors": "members", "spec": YAML}


@pytest.fixture
def mia(web, member, cluster) -> Client:
    return web(member)


def add(client: Client, **fields: str) -> Recipe:
    client.post("/recipes/new", FIELDS | fields)
    return Recipe.objects.latest("pk")


def text_of(client: Client, address: str) -> str:
    return " ".join(client.get(address).content.decode().split())


def test_it_is_added_by_the_form_and_has_a_card_on_new_job(mia):
    recipe = add(mia)
    assert (recipe.name, recipe.team.name, recipe.version) == ("resnet", "vision", 1)
    assert [(row["name"], row["type"]) for row in recipe.versions.get().parameters] == [
        *(("lr", "number"), ("data", "text"), ("mixed", "boolean")),
    ]
    assert f'href="/recipes/{recipe.pk}"' in text_of(mia, "/jobs/new")
    assert "ResNet on ImageNet" in text_of(mia, "/recipes")


def test_a_job_is_submitted_by_its_parameters_and_leads_back(mia):
    recipe = add(mia)
    place = f"/recipes/{recipe.pk}"
    assert "path of the data" in text_of(mia, place)
    values = {"value-lr": "0.2", "value-data": "/my data", "value-mixed": "true", "changes": "retries: 3"}
    mia.post(place, values)
    job = Job.objects.get()
    assert (job.command, job.retries) == ("python train.py 0.2 '/my data' true", 3)
    assert f'by the recipe <a href="{place}?version=1">resnet</a>' in text_of(mia, f"/jobs/{job.pk}")
    assert "Ran 1 time" in text_of(mia, place)
    assert str(job.pk) in text_of(mia, "/jobs?recipe=resnet")


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"value-data": ""}, "This field is required"),
        ({"value-lr": "fast"}, "Write a number"),
        ({"changes": "gpus: 9000"}, "gpus: "),
        ({"changes": "gpu: 2"}, "Did you mean"),
        ({"changes": "a: ["}, "not valid YAML"),
        ({"changes": "1: 2"}, "is not the name of a field"),
    ],
)
def test_a_wrong_value_is_marked_at_its_field(mia, values, fault):
    recipe = add(mia)
    answer = mia.post(f"/recipes/{recipe.pk}", {"value-data": "x", "value-lr": "1", "value-mixed": "true"} | values)
    assert (answer.status_code, fault in answer.content.decode()) == (200, True)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("name: [\n", "This is not valid YAML"),
        (YAML.replace("gpus: 1", "gpus: 9000"), "gpus: "),
        (YAML.replace("${{ lr }}", "${{ rate }}"), "is no parameter"),
        (YAML.replace("lr: 0.1", "lr: [1]"), "parameters/lr"),
        (f"{YAML}\n1: 2\n", "is not the name of a field"),
    ],
)
def test_a_fault_of_the_file_is_shown_and_nothing_is_added(mia, spec, fault):
    answer = mia.post("/recipes/new", FIELDS | {"spec": spec})
    assert (answer.status_code, fault in answer.content.decode()) == (200, True)
    assert not Recipe.objects.exists()


def test_a_job_is_kept_as_a_recipe(mia, submit):
    job = submit(name="resnet", deadline="2100-01-01T00:00Z")
    assert f'href="/recipes/new?job={job.pk}"' in text_of(mia, f"/jobs/{job.pk}")
    form = text_of(mia, f"/recipes/new?job={job.pk}")
    assert ("name: resnet" in form, "deadline: 2100" in form) == (True, False)


def test_the_file_that_is_shown_can_be_saved_as_it_is_and_another_is_a_version(mia):
    recipe = add(mia)
    shown = mia.get(f"/recipes/{recipe.pk}/change").context["form"].initial
    mia.post(f"/recipes/{recipe.pk}/change", shown)
    recipe.refresh_from_db()
    assert recipe.version == 1
    mia.post(f"/recipes/{recipe.pk}/change", shown | {"spec": shown["spec"].replace("train.py", "other.py")})
    recipe.refresh_from_db()
    assert recipe.version == 2
    page = text_of(mia, f"/recipes/{recipe.pk}?version=1")
    assert ("train.py" in page, "other.py" in page, "of which the latest is" in page) == (True, False, True)
    assert mia.get(f"/recipes/{recipe.pk}?version=3").status_code == 404


def test_whoever_may_not_change_it_is_offered_no_button_and_refused(web, mia, staff):
    recipe = add(mia)
    web(staff).post(f"/recipes/{recipe.pk}/change", FIELDS | {"editors": "leads"})
    assert "/change" not in text_of(mia, f"/recipes/{recipe.pk}")
    refused = mia.post(f"/recipes/{recipe.pk}/change", FIELDS)
    assert "Only leads of the team" in refused.content.decode()
    assert "Only leads" in mia.post(f"/recipes/{recipe.pk}/delete", follow=True).content.decode()
    Team.objects.get(name="vision").leads.add(*Team.objects.get(name="vision").members.all())
    assert "Its jobs stay." in mia.post(f"/recipes/{recipe.pk}/delete", follow=True).content.decode()


def test_lists_and_cards_cost_the_same_however_many_there_are(mia):
    add(mia)
    counts = []
    for number in range(3):
        with CaptureQueriesContext(connection) as queries:
            mia.get("/recipes")
            mia.get("/jobs/new")
        counts.append(len(queries))
        mia.post(f"/recipes/{add(mia, name=str(number)).pk}", {"value-data": "x"})
    assert len(set(counts[1:])) == 1
