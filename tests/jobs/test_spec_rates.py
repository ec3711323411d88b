"""A declared rate that no job could have must not reach the round, which it would make fail for all jobs."""

import pytest

from jobs_app.errors import InvalidSpec
from jobs_app.submission.conversion import parse_spec


@pytest.mark.parametrize("rate", [1e-300, 1e300, 0, -1])
def test_an_absurd_rate_is_refused_with_the_bounds(rate: float) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec({"name": "job", "command": "true", "gpus": 1, "rates": {"a100": rate}})
    (fault,) = refused.value.faults
    assert fault["pointer"] == "/rates/a100"
    assert "from 1e-06 to 1e+12" in fault["detail"]
