"""A job that uses more memory than it asked for fails with both figures, unless the site limits no memory."""

import pytest
from pytest_django import Settings

from jobs_app.models import Job
from tests.service_lab import Lab

HOG = ["python3", "-ESc", "import time; block = bytearray(200 << 20); time.sleep(3)"]


@pytest.mark.parametrize(("limited", "state"), [(True, Job.State.FAILED), (False, Job.State.SUCCEEDED)])
def test_memory_per_gpu_is_a_limit_where_the_site_says_so(
    limited: bool, state: Job.State, lab: Lab, settings: Settings
) -> None:
    settings.MOTLEY_LIMIT_MEMORY = limited
    lab.node("n1")
    job = lab.until_state(lab.submit(HOG, memory_per_gpu="100MiB"), state)
    assert ("had asked for 0.1 GiB" in job.message) == limited
