"""Words of Motley that pages explain where they stand first, as in `docs/glossary.md`, and their template tag."""

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

register = template.Library()

TERMS: dict[str, str] = {
    "attempt": "one try at running a job, on certain GPUs",
    "gang": "the GPUs of one attempt, which all start together",
    "workload": "a group of jobs with the same rates: a measurement of one counts for all",
    "round": "one decision for the whole cluster: read, decide, commit",
    "reference GPU-hour": "work of an hour on the cluster's average GPU; an hour on a GPU of twice the speed for the "
    "job is two",
    "shadow price": "how much one more GPU of the type would improve the objective of a round; pages say its unit",
    "rho": "finish-time fairness: time from submission to end, divided by that on the job's own part of the cluster",
    "JCT": "job completion time: from submission to end",
    "completed rate": "a rate on a GPU type or gang where the workload was not measured, completed from the rates of "
    "other workloads there",
    "p99": "the value that 99 of 100 jobs do not exceed",
}


@register.simple_tag
def term(name: str, words: str = "") -> SafeString:
    """The word, with its meaning on hover, and as a link to the glossary, which the keyboard reaches."""
    address = f"{reverse('glossary')}#{slugify(name)}"
    return format_html('<a class="term" href="{}" title="{}">{}</a>', address, TERMS[name], words or name)
