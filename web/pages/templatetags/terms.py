"""Template tag of explained words."""

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import slugify

from web.pages.terms import TERMS

register = template.Library()


@register.simple_tag
def term(name: str, words: str = "") -> SafeString:
    """The word, with its meaning on hover, and as a link to the glossary, which the keyboard reaches."""
    address = f"{reverse('glossary')}#{slugify(name)}"
    return format_html('<a class="term" href="{}" title="{}">{}</a>', address, TERMS[name], words or name)
