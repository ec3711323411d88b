"""Parameters of policies: what is declared is documented, and what is given is checked."""

from typing import Annotated, Literal

import numpy as np
import pytest

from allocation.decision import Decision
from allocation.policies import POLICIES
from allocation.policies.parameters import (
    Choice,
    InvalidParameter,
    Parameter,
    Range,
    Switch,
    parameters_of,
    with_parameters,
)
from allocation.problem import Problem


def anything(
    problem: Problem,
    *,
    power: Annotated[float, Range(-4, 4, "how steep")] = -0.5,
    queues: Annotated[int, Range(1, 9, "how many")] = 3,
    strict: Annotated[bool, Switch("no mercy")] = False,
    first: Annotated[Literal["old", "new"], Choice("who goes first")] = "old",
) -> Decision:
    return Decision.of_assignment(
        [], prices=np.zeros(len(problem.capacity)), objective=power + queues + strict + 10 * (first == "new")
    )


def test_parameters_are_read_from_the_signature():
    assert list(parameters_of(anything).values()) == [
        Parameter("power", float, -0.5, -4, 4, "how steep"),
        Parameter("queues", int, 3, 1, 9, "how many"),
        Parameter("strict", bool, False, 0, 1, "no mercy"),
        Parameter("first", str, "old", 0, 1, "who goes first", ("old", "new")),
    ]


def test_what_is_given_reaches_the_policy():
    problem = Problem.of(np.zeros((0, 1)), [[1]], [1])
    assert with_parameters(anything, {"power": 1, "strict": True})(problem).objective == 1 + 3 + 1
    assert with_parameters(anything, {"power": 1, "first": "new"})(problem).objective == 1 + 3 + 10


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"powr": 1}, "powr: unknown; this policy has power, queues, strict, first"),
        ({"power": "1"}, "power: must be a number"),
        ({"power": True}, "power: must be a number"),
        ({"power": float("nan")}, "power: must be a number"),
        ({"power": 5}, "power: must be from -4 to 4"),
        ({"queues": 2.5}, "queues: must be a whole number"),
        ({"strict": 1}, "strict: must be true or false"),
        ({"first": "oldest"}, "first: must be one of old, new"),
        ({"first": 1}, "first: must be one of old, new"),
    ],
)
def test_a_fault_names_the_parameter_and_the_remedy(given, reason):
    with pytest.raises(InvalidParameter, match=reason):
        with_parameters(anything, given)


@pytest.mark.parametrize("name", POLICIES)
def test_every_default_is_one_that_could_be_given(name):
    parameters = parameters_of(POLICIES[name])
    with_parameters(POLICIES[name], {p.name: p.default for p in parameters.values()})
    assert all(p.meaning for p in parameters.values())
