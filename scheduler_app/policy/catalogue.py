"""Catalogue of policies for people, read from their docstrings and signatures. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from textwrap import dedent
from typing import NamedTuple

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from allocation.policies import POLICIES
from allocation.policies.parameters import Parameter, Policy
from scheduler_app.policy.mathml import mathml
from scheduler_app.policy.settings import live_parameters

CHOOSE = "Choose it "
MATHS = ".. math::\n"
INLINE = re.compile(r":math:`([^`]+)`")
PROBLEM = re.compile(r"^problem : Problem\n((?: {4}.*\n)+)", re.MULTILINE)
REFERENCES = re.compile(r"^References\n-+\n(.*?)(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"^\.\. \[\d+\] (.*?)(?=^\.\. \[|\Z)", re.MULTILINE | re.DOTALL)
KINDS = {float: "number", int: "whole number", bool: "on or off", str: "one of"}


class Passage(NamedTuple):
    """A paragraph, or a displayed formula."""

    is_formula: bool
    html: SafeString


@dataclass(frozen=True)
class PolicyDescription:
    """A policy's description: summary, when to choose it, how it decides, its sources.

    The text is a sequence of paragraphs and MathML formulas; `symbols` explains the letters of the formulas.
    """

    name: str
    summary: str
    choose_when: str
    text: tuple[Passage, ...]
    symbols: str
    sources: tuple[str, ...]
    parameters: tuple[Parameter, ...]


def describe_policy(name: str) -> PolicyDescription:
    """Describe one policy of `POLICIES`."""
    return _described(name, POLICIES[name])


def describe_policies() -> list[PolicyDescription]:
    """Describe every policy, in the order of the registry."""
    return [describe_policy(name) for name in POLICIES]


def kind_of(parameter: Parameter) -> str:
    """The type of a parameter's values in words."""
    return KINDS[parameter.kind]


@cache  # neither a docstring nor a signature changes while the service runs
def _described(name: str, policy: Policy) -> PolicyDescription:
    doc = (getdoc(policy) or "") + "\n"
    summary, *others = re.split(r"\n\s*\n", doc.partition("\nParameters\n---")[0].strip("\n"))
    symbols = PROBLEM.search(doc)
    return PolicyDescription(
        name=name,
        summary=_one_line(summary),
        choose_when=next((_one_line(p) for p in others if p.startswith(CHOOSE)), ""),
        text=tuple(_shown(p) for p in others if not p.startswith(CHOOSE)),
        symbols=_one_line(symbols[1]) if symbols else "",
        sources=tuple(_sources(doc)),
        parameters=tuple(live_parameters(name).values()),
    )


def _shown(paragraph: str) -> Passage:
    if paragraph.startswith(MATHS):
        return Passage(is_formula=True, html=mathml(dedent(paragraph.removeprefix(MATHS))))
    pieces = INLINE.split(" ".join(paragraph.split()))
    shown = (mathml(piece, inline=True) if n % 2 else piece.replace("`", "") for n, piece in enumerate(pieces))
    return Passage(is_formula=False, html=format_html_join("", "{}", ((piece,) for piece in shown)))


def _sources(text: str) -> Iterator[str]:
    section = REFERENCES.search(text)
    return (_one_line(item) for item in REFERENCE.findall(section[1] + "\n" if section else ""))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("`", "")
