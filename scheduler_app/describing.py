"""What a policy is, for people: read from its docstring and its signature, so that nothing is written twice. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from textwrap import dedent

from django.utils.safestring import SafeString

from allocation.parameters import Parameter, Policy, parameters_of
from allocation.policies import POLICIES
from scheduler_app.formulas import mathml

CHOOSE = "Choose it "
MATHS = re.compile(r"^\.\. math::\n+((?:(?: {4}.*)?\n)+)", re.MULTILINE)
REFERENCES = re.compile(r"^References\n-+\n(.*?)(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"^\.\. \[\d+\] (.*?)(?=^\.\. \[|\Z)", re.MULTILINE | re.DOTALL)
KINDS = {float: "number", int: "whole number", bool: "on or off"}


@dataclass(frozen=True)
class Described:
    """A policy in words: its first sentence, when to choose it, its formula as MathML, and where it comes from."""

    name: str
    summary: str
    choose_when: str
    formula: SafeString | str
    sources: tuple[str, ...]
    parameters: tuple[Parameter, ...]


def described(name: str) -> Described:
    """One of `POLICIES`."""
    return _described(name, POLICIES[name])


def all_described() -> list[Described]:
    """Every policy, in the order of the registry."""
    return [described(name) for name in POLICIES]


def kind_of(parameter: Parameter) -> str:
    """The kind of a parameter in words."""
    return KINDS[parameter.kind]


@cache  # neither a docstring nor a signature changes while the service runs
def _described(name: str, policy: Policy) -> Described:
    text = (getdoc(policy) or "") + "\n"
    paragraphs = [_one_line(paragraph) for paragraph in re.split(r"\n\s*\n", text)]
    maths = MATHS.search(text)
    return Described(
        name=name,
        summary=paragraphs[0],
        choose_when=next((p for p in paragraphs if p.startswith(CHOOSE)), ""),
        formula=mathml(dedent(maths[1])) if maths else "",
        sources=tuple(_sources(text)),
        parameters=tuple(parameters_of(policy).values()),
    )


def _sources(text: str) -> Iterator[str]:
    section = REFERENCES.search(text)
    return (_one_line(item) for item in REFERENCE.findall(section[1] + "\n" if section else ""))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("`", "")
