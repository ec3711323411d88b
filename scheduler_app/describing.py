"""What a policy is, for people: read from its docstring and its signature, so that nothing is written twice. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from textwrap import dedent
from typing import NamedTuple

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from allocation.parameters import Parameter, Policy
from allocation.policies import POLICIES
from scheduler_app.choosing import offered
from scheduler_app.formulas import mathml

CHOOSE = "Choose it "
MATHS = ".. math::\n"
INLINE = re.compile(r":math:`([^`]+)`")
PROBLEM = re.compile(r"^problem : Problem\n((?: {4}.*\n)+)", re.MULTILINE)
REFERENCES = re.compile(r"^References\n-+\n(.*?)(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"^\.\. \[\d+\] (.*?)(?=^\.\. \[|\Z)", re.MULTILINE | re.DOTALL)
KINDS = {float: "number", int: "whole number", bool: "on or off", str: "one of"}


class Part(NamedTuple):
    """A paragraph, or a formula on lines of its own."""

    is_formula: bool
    html: SafeString


@dataclass(frozen=True)
class Described:
    """A policy in words: its first sentence, when to choose it, how it decides, and where it comes from.

    The text is paragraphs and formulas as MathML, in their order; symbols are what the formulas are written in.
    """

    name: str
    summary: str
    choose_when: str
    text: tuple[Part, ...]
    symbols: str
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
    doc = (getdoc(policy) or "") + "\n"
    summary, *others = re.split(r"\n\s*\n", doc.partition("\nParameters\n---")[0].strip("\n"))
    symbols = PROBLEM.search(doc)
    return Described(
        name=name,
        summary=_one_line(summary),
        choose_when=next((_one_line(p) for p in others if p.startswith(CHOOSE)), ""),
        text=tuple(_shown(p) for p in others if not p.startswith(CHOOSE)),
        symbols=_one_line(symbols[1]) if symbols else "",
        sources=tuple(_sources(doc)),
        parameters=tuple(offered(name).values()),
    )


def _shown(paragraph: str) -> Part:
    if paragraph.startswith(MATHS):
        return Part(is_formula=True, html=mathml(dedent(paragraph.removeprefix(MATHS))))
    pieces = INLINE.split(" ".join(paragraph.split()))
    shown = (mathml(piece, inline=True) if n % 2 else piece.replace("`", "") for n, piece in enumerate(pieces))
    return Part(is_formula=False, html=format_html_join("", "{}", ((piece,) for piece in shown)))


def _sources(text: str) -> Iterator[str]:
    section = REFERENCES.search(text)
    return (_one_line(item) for item in REFERENCE.findall(section[1] + "\n" if section else ""))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("`", "")
