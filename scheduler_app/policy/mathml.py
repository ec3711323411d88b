"""Convert the LaTeX formulas of docstrings to MathML, which browsers draw without a script. Pure."""

import re

from django.utils.safestring import SafeString, mark_safe
from latex2mathml.converter import convert

NESTED = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
"""Text between braces, which may be nested two levels deep."""
OPERATOR_OVER = re.compile(rf"\\operatorname\*\{{({NESTED})\}}_(?:\{{({NESTED})\}}|(\w))")
OPERATOR = re.compile(rf"\\operatorname\*?\{{({NESTED})\}}")
ALIGNED = re.compile(r"(?<!\\)&|\\\\")
MAX_OR_MIN_OVER = re.compile(r"\\(max|min)_")


def mathml(latex: str, *, inline: bool = False) -> SafeString:
    """Convert to a displayed formula, aligned at each `&`, or to an inline one."""
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
