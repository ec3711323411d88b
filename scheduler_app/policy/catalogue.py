"""Catalogue of policies for people, read from their docstrings and signatures, with formulas as MathML. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import getdoc
from textwrap import dedent
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from latex2mathml.converter import convert

from allocation.policies import POLICIES
from allocation.policies.parameters import Parameter, Policy
from scheduler_app.policy.settings import live_parameters

CHOOSE = "Choose it "
MATHS = ".. math::\n"
BOLD = re.compile(r"\*\*([^*]+)\*\*")
INLINE = re.compile(r":math:`([^`]+)`")
PROBLEM = re.compile(r"^problem : Problem\n((?: {4}.*\n)+)", re.MULTILINE)
REFERENCES = re.compile(r"^References\n-+\n(.*?)(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"^\.\. \[\d+\] (.*?)(?=^\.\. \[|\Z)", re.MULTILINE | re.DOTALL)
NESTED = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
"""Text between braces, which may be nested two levels deep."""
OPERATOR_OVER = re.compile(rf"\\operatorname\*\{{({NESTED})\}}_(?:\{{({NESTED})\}}|(\w))")
OPERATOR = re.compile(rf"\\operatorname\*?\{{({NESTED})\}}")
ALIGNED = re.compile(r"(?<!\\)&|\\\\")
MAX_OR_MIN_OVER = re.compile(r"\\(max|min)_")
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
    shown = (
        mathml(piece, inline=True) if n % 2 else _with_bold(piece.replace("`", "")) for n, piece in enumerate(pieces)
    )
    return Passage(is_formula=False, html=format_html_join("", "{}", ((piece,) for piece in shown)))


def _with_bold(text: str) -> SafeString:
    parts = ((format_html("<b>{}</b>", part) if n % 2 else part,) for n, part in enumerate(BOLD.split(text)))
    return format_html_join("", "{}", parts)


def _sources(text: str) -> Iterator[str]:
    section = REFERENCES.search(text)
    return (_one_line(item) for item in REFERENCE.findall(section[1] + "\n" if section else ""))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("`", "")


def mathml(latex: str, *, inline: bool = False) -> SafeString:
    """Convert LaTeX to MathML, which browsers draw without a script.

    The formula is inline, or displayed and aligned at each `&`.
    """
    prepared = _limits_below(latex.strip()).replace(":=", r"\coloneqq ")
    if ALIGNED.search(prepared) and not prepared.startswith(r"\begin"):
        prepared = rf"\begin{{align*}}{prepared}\end{{align*}}"
    return mark_safe(convert(prepared, display="inline" if inline else "block"))  # noqa: S308  # of our own docstrings


def _limits_below(latex: str) -> str:
    """Rewrite named operators, which the converter lacks, and limits below max and min."""
    under = OPERATOR_OVER.sub(lambda m: rf"\underset{{{m[2] or m[3]}}}{{\text{{{_plain(m[1])}}}}}\,", latex)
    named = OPERATOR.sub(lambda m: rf"\text{{{_plain(m[1])}}}\,", under)
    return MAX_OR_MIN_OVER.sub(r"\\\1\\limits_", named)


def _plain(name: str) -> str:
    return re.sub(r"\\[,;: ]", " ", name)
