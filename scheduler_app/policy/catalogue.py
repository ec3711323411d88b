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

from allocation.policies import POLICIES, REGISTRY, Registered
from allocation.policies.parameters import Parameter, Policy
from scheduler_app.policy.settings import live_parameters

CHOOSE = "Choose it "
MATHS = ".. math::\n"
BOLD = re.compile(r"\*\*([^*]+)\*\*")
INLINE = re.compile(r":math:`([^`]+)`")
CITATION = re.compile(r"\[(\d+)\]_")
PROBLEM = re.compile(r"^problem : Problem\n((?: {4}.*\n)+)", re.MULTILINE)
REFERENCES = re.compile(r"^References\n-+\n(.*?)(?=\n\n\S|\Z)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"^\.\. \[\d+\] (.*?)(?=^\.\. \[|\Z)", re.MULTILINE | re.DOTALL)
NESTED = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
"""Text between braces, which may be nested two levels deep."""
OPERATOR_OVER = re.compile(rf"\\operatorname\*\{{({NESTED})\}}_(?:\{{({NESTED})\}}|(\w))")
OPERATOR = re.compile(rf"\\operatorname\*?\{{({NESTED})\}}")
ALIGNED = re.compile(r"(?<!\\)&|\\\\")
MAX_OR_MIN_OVER = re.compile(r"\\(max|min)_")
SYMBOL = re.compile(r"(?:(?P<letter>\w+) = )?\b(?P<column>[A-Za-z_]{4,})\b")
"""A column of the problem, and the letter that stands for it in the formulas."""
GREEK = {"omega": "\N{GREEK SMALL LETTER OMEGA}", "rho": "\N{GREEK SMALL LETTER RHO}"}
COLUMNS = {
    "rate": "throughput of each job on each choice of GPUs, steps/s",
    "goodput": "goodput of each job on each choice of GPUs, useful steps/s",
    "usage": "GPUs of each type that a choice of GPUs takes",
    "capacity": "GPUs of each type that may be given",
    "GPUs": "GPUs of each type in the smallest gang of each job",
    "replicas": "replicas of each job on each choice of GPUs",
    "weight": "weight of each job: that of its team, divided among its jobs",
    "job_weight": "weight of each job alone",
    "team": "team of each job",
    "team_backlog_s": "how far each job's team is behind its share, seconds of the whole cluster",
    "base_gpus": "GPUs of the smallest gang of each job",
    "base_rate": "throughput of that gang on the cluster's average GPU, steps/s",
    "age_s": "time since each job was submitted, s",
    "remaining_steps": "steps left of each job",
    "total_steps": "steps of each job",
    "attained_gpu_s": "GPU time that each job has received, s",
    "isolated_s": "time that the work so far would have taken on an equal part of the cluster, s",
    "held": "GPUs that each job holds now",
    "held_s": "time for which it has held them, s",
    "restart_s": "time that a restart of each job costs, s",
    "restarts": "restarts of each job so far",
    "most_replicas": "the most replicas that jobs of its workload ever ran with",
    "locked": "jobs that keep their GPUs in this round",
    "deadline_s": "time to the deadline of each job, s",
    "limit_s": "time that each job may still run by its time limit, s",
    "price_per_gpu_hour": "price of each GPU type per hour",
    "array_others_gpu_s": "GPU time that is left of the other tasks of the job's array, s",
    "pilot": "tasks that tell how long their array's take",
    "unsampled": "tasks that wait for those to end",
}
"""Columns of a problem in words, for readers who do not know its arrays."""
KINDS = {float: "number", int: "whole number", bool: "on or off", str: "one of"}


class Paragraph(NamedTuple):
    """A paragraph, or a displayed formula."""

    is_formula: bool
    html: SafeString


@dataclass(frozen=True)
class PolicyDescription:
    """A policy's description: summary, when to choose it, how it decides, its sources.

    The text is a sequence of paragraphs and MathML formulas; `symbols` explains the letters of the formulas.
    """

    name: str
    aims_at: str
    preempts: str
    needs: tuple[str, ...]
    elastic: bool
    summary: str
    choose_when: str
    text: tuple[Paragraph, ...]
    symbols: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]
    parameters: tuple[Parameter, ...]


def describe_policy(name: str) -> PolicyDescription:
    """Describe one policy of `POLICIES`."""
    return _described(name, POLICIES[name], REGISTRY[name])


def describe_policies() -> list[PolicyDescription]:
    """Describe every policy, in the order of the registry."""
    return [describe_policy(name) for name in POLICIES]


def kind_of(parameter: Parameter) -> str:
    """The type of a parameter's values in words."""
    return KINDS[parameter.kind]


@cache  # neither a docstring nor a signature changes while the service runs
def _described(name: str, policy: Policy, registered: Registered) -> PolicyDescription:
    doc = (getdoc(policy) or "") + "\n"
    summary, *others = re.split(r"\n\s*\n", doc.partition("\nParameters\n---")[0].strip("\n"))
    symbols = PROBLEM.search(doc)
    return PolicyDescription(
        name=name,
        aims_at=registered.aims_at,
        preempts=registered.preempts.value,
        needs=tuple(need.value for need in registered.needs),
        elastic=registered.elastic,
        summary=_one_line(summary),
        choose_when=next((_one_line(p) for p in others if p.startswith(CHOOSE)), ""),
        text=tuple(_shown(p) for p in others if not p.startswith(CHOOSE)),
        symbols=tuple(_symbols(_one_line(symbols[1]))) if symbols else (),
        sources=tuple(_sources(doc)),
        parameters=tuple(live_parameters(name).values()),
    )


def _shown(paragraph: str) -> Paragraph:
    if paragraph.startswith(MATHS):
        return Paragraph(is_formula=True, html=mathml(dedent(paragraph.removeprefix(MATHS))))
    pieces = INLINE.split(CITATION.sub(r"[\1]", " ".join(paragraph.split())))
    shown = (
        mathml(piece, inline=True) if n % 2 else _with_bold(piece.replace("`", "")) for n, piece in enumerate(pieces)
    )
    return Paragraph(is_formula=False, html=format_html_join("", "{}", ((piece,) for piece in shown)))


def _symbols(text: str) -> Iterator[tuple[str, str]]:
    """Each column that the policy reads: the letter of its formulas, if it has one, and the column in words."""
    named = [(match["column"], match["letter"] or "") for match in SYMBOL.finditer(text)]
    found = {column: GREEK.get(letter, letter) for column, letter in reversed(named) if letter or column != "GPUs"}
    if "goodput" in found:
        found["goodput"] = found.pop("rate")
    return ((found[column], words) for column, words in COLUMNS.items() if column in found)


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
