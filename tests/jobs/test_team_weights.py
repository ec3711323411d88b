"""Weights of teams in the administration: those that solvers cannot tell from rounding errors are refused."""

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.forms import modelform_factory

from cluster_app.models import GpuType
from jobs_app.models import Team

OUT_OF_RANGE = ["1e300", "1e-300", "0", "-1", "inf", "nan"]


@pytest.mark.parametrize("weight", OUT_OF_RANGE)
@pytest.mark.parametrize("name", ["weight", "max_job_weight"])
def test_the_form_names_the_field_and_the_range(name, weight):
    form = modelform_factory(Team, fields=("weight", "max_job_weight"))(
        {"weight": "1", "max_job_weight": "1"} | {name: weight}
    )
    assert form.errors[name] in (["Write a weight from 0.000001 to 1000000."], ["Enter a number."])
    assert list(form.errors) == [name]


@pytest.mark.parametrize("weight", [1e300, 1e-300])
@pytest.mark.database
@pytest.mark.django_db
def test_the_database_refuses_it(weight):
    with pytest.raises(IntegrityError):
        Team.objects.create(name="vision", weight=weight)


@pytest.mark.parametrize("name", ["tflops", "bandwidth_gbs"])
@pytest.mark.parametrize("speed", [1e300, 1e-300])
def test_the_speed_of_a_gpu_type_has_a_range(name, speed):
    with pytest.raises(ValidationError, match=r"Write a number from 0\.001 to 1000000"):
        GpuType._meta.get_field(name).clean(speed, None)
