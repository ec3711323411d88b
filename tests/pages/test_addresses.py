"""Addresses that people write by hand: tabs as paths, values that do not exist, filters that there are not."""

from pathlib import Path

import pytest
from django.urls import reverse

from audit_app.models import Action
from web.pages.account import actions_by_thing
from web.pages.job_rows import TYPE_COLOURS, colour_numbers
from web.pages.templatetags.terms import TERMS


def test_a_tab_of_a_job_is_found_as_a_path(submit, member, web):
    job = submit()
    answer = web(member).get(f"/jobs/{job.pk}/logs")
    assert (answer.status_code, answer["Location"]) == (302, f"/jobs/{job.pk}?tab=logs")
    assert web(member).get(f"/jobs/{job.pk}/hold").status_code == 405
    assert web(member).get(f"/jobs/{job.pk}/nothing").status_code == 404


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/fairness?window=foo", "There is no window=foo. There are: 1h,"),
        ("/timeline?by=colour", "There is no by=colour. There are: node, team, job."),
        ("/timeline?window=2y", "There is no window=2y."),
        ("/report?month=may", "month=may is no month: write one as 2026-11."),
    ],
)
def test_a_value_that_does_not_exist_is_told_with_those_that_do(cluster, member, web, address, told):
    answer = web(member).get(address)
    assert answer.status_code == 404
    assert told in answer.content.decode()


def test_other_refusals_tell_no_names_of_models(submit, stranger, web):
    answer = web(stranger).get(f"/jobs/{submit().pk}/would-start")
    assert "No Job matches" not in (shown := answer.content.decode())
    assert shown.count('aria-current="page"') == 1
    assert 'aria-current="page"' not in web(stranger).get("/nowhere").content.decode()


def test_the_list_of_jobs_says_which_filters_it_does_not_know(submit, member, web):
    submit()
    shown = web(member).get("/jobs?state=foo&bogus=1").content.decode()
    assert "bogus: There is no such filter. There are: q, name, state," in shown
    assert "state: " in shown
    assert "There is no such filter" not in web(member).get("/jobs?state=queued&limit=5").content.decode()


def test_actions_of_the_activity_list_are_grouped_by_what_they_change(staff, web):
    groups = dict(actions_by_thing())
    assert [value for value, _ in groups["node"]][:2] == ["node.cordon", "node.drain"]
    assert sum(map(len, groups.values())) == len(Action.choices)
    assert '<optgroup label="logging in">' in web(staff).get(reverse("audit")).content.decode()


def test_a_list_has_fewer_rows_on_a_phone(submit, member, web):
    for _ in range(25):
        submit()
    phone = {"User-Agent": "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Mobile Safari/537.36"}
    assert len(web(member).get("/jobs", headers=phone).context["rows"]) == 20
    assert len(web(member).get("/jobs").context["rows"]) == 25


# -- colours of GPU types -------------------------------------------------------------------------------------------


def test_a_type_that_is_added_changes_the_colour_of_no_other():
    types = [(3, "t4"), (4, "a100"), (9, "v100"), (12, "h100"), (13, "b200"), (20, "l4"), (21, "l40"), (30, "gb")]
    for count in range(1, len(types)):
        before, after = colour_numbers(types[:count]), colour_numbers(types[: count + 1])
        assert before.items() <= after.items()


def test_the_first_types_differ_in_colour():
    types = [(1 + 6 * n, f"type-{n}") for n in range(len(TYPE_COLOURS))]
    assert len(set(colour_numbers(types).values())) == len(TYPE_COLOURS)


# -- explained words ------------------------------------------------------------------------------------------------


def test_pages_explain_words_of_their_own_where_they_stand_first(decided, member, staff, web):
    job = decided and member.teams.first().jobs.first()
    places = {"/rounds": "round", f"/jobs/{job.pk}": "workload", f"/jobs/{job.pk}?tab=why": "shadow-price"}
    for address, word in places.items():
        assert f'class="term" href="/glossary#{word}"' in web(member).get(address).content.decode(), address
    assert '<dt id="shadow-price">' in web(member).get("/glossary").content.decode()


def test_the_glossary_of_pages_says_what_that_of_the_documents_says():
    text = Path("docs/glossary.md").read_text()
    for name in ("attempt", "gang", "workload", "round", "reference GPU-hour", "shadow price"):
        assert f"| {name} | {TERMS[name]} |" in text
