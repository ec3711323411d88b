"""What a policy may be chosen with: every fault at once, each with its place and its remedy. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from allocation.parameters import InvalidParameter, Parameter, Policy, parameters_of, read_parameters, with_parameters
from allocation.policies import POLICIES
from jobs_app.errors import Fault, encodable, escaped
from scheduler_app.errors import InvalidChoice, NoSuchPolicy

Parameters = dict[str, Any]
LONGEST_S = 7 * 86_400
"""From round to round, and before a preemption."""
LEAST_PART = 0.01
"""Of a round's length, for its decision."""
KEPT = ("round_length_s", "min_run_s", "solve_limit_part")
"""What else a setting says, and keeps when another policy is chosen."""
SIMULATED = (
    "is for simulations only, for a GPU here belongs to one job at a time. "
    "Leave it out, or try it by `motley simulate run … --policy {policy}:{name}=true`."
)


def checked(policy: str, given: Mapping[str, Any]) -> Parameters:
    """Every parameter of the policy, those that are not given at their defaults; or `InvalidChoice`."""
    if faults := list(faults_of_choice(policy, given)):
        raise InvalidChoice(faults)
    known = offered(policy)
    return {name: parameter.read(given.get(name, parameter.default)) for name, parameter in known.items()}


def offered(policy: str) -> dict[str, Parameter]:
    """The parameters of the policy that a service can act upon; there are others that only a simulation can."""
    known = parameters_of(POLICIES[policy])
    return {name: parameter for name, parameter in known.items() if not parameter.simulated}


def policy_of(name: str, parameters: Mapping[str, Any]) -> Policy:
    """The function that decides so; `NoSuchPolicy` or `InvalidParameter` where the code has changed since."""
    if name not in POLICIES:
        raise NoSuchPolicy(name)
    return with_parameters(POLICIES[name], parameters)


def in_full(policy: str, chosen: Mapping[str, Any]) -> Parameters:
    """What was chosen, and the defaults of what was not."""
    known = offered(policy) if policy in POLICIES else {}
    return {name: parameter.default for name, parameter in known.items()} | dict(chosen)


def words_of(parameters: Mapping[str, Any]) -> str:
    """As in `power=-0.5, strict=true, first=old`."""
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in parameters.items()
    )


def faults_of_choice(policy: str, given: Mapping[str, Any]) -> Iterator[Fault]:
    """An unknown policy, or each parameter that it cannot take."""
    if policy not in POLICIES:
        detail = f"There is no policy {policy!r}; there are {', '.join(POLICIES)}."
        yield Fault(pointer="/policy", code="invalid_choice", detail=encodable(detail))
        return
    for name, value in given.items():
        if reason := refusal(policy, name, value):
            yield Fault(pointer=encodable(f"/parameters/{escaped(name)}"), code="invalid", detail=encodable(reason))


def carried_over(policy: str, given: Mapping[str, Any] | None, *, before: str, kept: Parameters) -> Mapping[str, Any]:
    """What is chosen where nothing is said: parameters belong to their policy, another starts from its defaults."""
    if given is not None:
        return given
    return kept if policy == before else {}


def refusal(policy: object, name: str, value: object) -> str:
    """Why this policy cannot take the parameter, and what it can; empty if it can, or if there is no such policy."""
    if not isinstance(policy, str) or policy not in POLICIES:
        return ""
    if name in parameters_of(POLICIES[policy]).keys() - offered(policy).keys():
        return f"{name} {SIMULATED.format(policy=policy, name=name)}"
    try:
        read_parameters(offered(policy), {name: value})
    except InvalidParameter as error:
        return f"{name} {_sentence(error.reason)}"
    return ""


def _sentence(reason: str) -> str:
    """`unknown; this policy has p` becomes "is unknown: …"."""
    kind, _, known = reason.partition("; ")
    return f"is {kind}: {known}." if known else f"{reason}."
