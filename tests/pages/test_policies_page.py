"""The page of the policies: what each is, choosing one, and going back."""

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from inspect import getdoc
from typing import Any
from xml.etree import ElementTree

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import sync_playwright

from allocation.policies import POLICIES
from cluster_app.models import GpuType
from insight_app.policy_effects.effects import read_restart_cost
from jobs_app.models import Attempt
from scheduler_app.models import PolicySetting
from scheduler_app.policy.catalogue import (
    GREEK,
    PROBLEM,
    PolicyDescription,
    describe_policies,
    describe_policy,
    mathml,
)
from tests import parametrised_policy
from tests.chromium import CHROMIUM

RULES = {"fifo"}
"""These policies have no source to name."""


# -- what is written of each -------------------------------------------------------------------------------------


def formulas(policy: PolicyDescription) -> list[str]:
    return [part.html for part in policy.text if part.is_formula]


def test_a_policy_is_told_with_all_its_formulas_and_what_they_are_written_in():
    policy = describe_policy("sia")
    assert len(formulas(policy)) == 2
    assert ("T", "goodput of each job on each choice of GPUs, useful steps/s") in policy.symbols


def faults_in_text(policy: PolicyDescription) -> list[str]:
    """What is missing in the docstring of a policy, or left of its mark-up."""
    html = "".join(part.html for part in policy.text)
    texts = ["".join(ElementTree.fromstring(f"<p>{part.html}</p>").itertext()) for part in policy.text]
    found = {
        "the summary is no sentence": not policy.summary.endswith("."),
        "when to choose it": not re.fullmatch(r"Choose it .+\.", policy.choose_when, re.DOTALL),
        "asterisks": "**" in html,
        "LaTeX": any({*text} & {*"\\$", *"&" * part.is_formula} for text, part in zip(texts, policy.text, strict=True)),
        "a mark of bold text or of a source": any(re.search(r"\*\*|\]_", text) for text in texts),
        "no formula": policy.name not in RULES and not "".join(formulas(policy)).startswith("<math"),
        "no symbols": policy.name not in RULES and not policy.symbols,
        "no source": policy.name not in RULES and not policy.sources,
    }
    return [fault for fault, is_there in found.items() if is_there]


def test_every_policy_says_what_it_does_when_to_choose_it_and_its_formula_and_source_without_mark_up():
    faults = {policy.name: faults_in_text(policy) for policy in describe_policies()}
    assert faults == {name: [] for name in POLICIES}


@pytest.mark.parametrize(
    ("latex", "pieces"),
    [
        (r"a & \le b \\ c & = d", ["<mtable", '<mtd columnalign="right"><mi>a</mi></mtd>']),
        (r"\operatorname*{arg\,min}_{i \in \{1, 2\}} t_i", ["<munder><mrow><mtext>arg&#x000A0;min</mtext></mrow>"]),
        (r"\operatorname{rank}(i)", ["<mtext>rank</mtext>"]),
        (r"\max_{X} z", ["<munder><mo>max</mo>"]),
        (r"\tfrac{a}{b}", ["<mfrac>"]),
        (r"\begin{cases} a & b \\ c & d \end{cases}", ['columnalign="left"']),
    ],
)
def test_what_docstrings_write_becomes_mathml(latex, pieces):
    drawn = mathml(latex)
    ElementTree.fromstring(drawn)
    assert [piece for piece in pieces if piece not in drawn] == []


def letters_without_words(name: str) -> set[str]:
    """Letters that either the maths or the explanations of a policy have, and not the other."""
    written = PROBLEM.search((getdoc(POLICIES[name]) or "") + "\n")
    assert written, name
    explained = {letter for letter, _ in describe_policy(name).symbols if letter}
    used = {GREEK.get(letter, letter) for letter in re.findall(r"(\w+) = ", " ".join(written[1].split()))}
    return explained ^ used


def test_letters_of_formulas_are_explained_in_words_and_no_shape_of_an_array_is_shown():
    assert {name: letters_without_words(name) for name in POLICIES} == {name: set() for name in POLICIES}
    words = {policy.name: " ".join(words for _, words in policy.symbols) for policy in describe_policies()}
    assert [name for name, text in words.items() if re.search(r"\([mnK],", text)] == []


# -- the page ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    parametrised_policy.install(monkeypatch)


def shown_to(client: Any) -> str:
    return client.get(reverse("policies")).content.decode()


def page_of(client: Any, policy: str = parametrised_policy.NAME) -> str:
    return client.get(reverse("policy", args=[policy])).content.decode()


def choose(client: Any, **fields: Any) -> Any:
    times = {"round_length_s": 60, "min_run_s": 0, "solve_limit_part": 0.5}
    filled = {**times, "cpu_memory": "proportional", "note": "", **fields}
    return client.post(reverse("choose-policy", args=[parametrised_policy.NAME]), filled, follow=True)


def test_everybody_compares_all_policies_in_one_table(member, web):
    shown = unescape(shown_to(web(member)))
    for policy in describe_policies():
        row = re.search(rf'href="/policies/{policy.name}" data-row>.*?</tr>', shown, re.DOTALL)
        assert row
        for words in (policy.aims_at, policy.preempts, ", ".join(policy.needs) or "nothing"):
            assert words in row[0]
    assert "<math" not in shown


def test_everybody_reads_of_a_policy_on_its_page(member, web):
    client = web(member)
    for policy in describe_policies():
        shown = unescape(page_of(client, policy.name))
        missing = [words for words in (policy.summary, policy.choose_when, *policy.sources) if words not in shown]
        assert (policy.name, missing, "<math" in shown) == (policy.name, [], bool(formulas(policy)))


def test_a_page_of_a_policy_that_there_is_not_is_not_found(member, web):
    assert web(member).get(reverse("policy", args=["lottery"])).status_code == 404


def test_the_history_is_reached_from_the_top_of_the_page(member, web):
    shown = shown_to(web(member))
    assert shown.index('href="#history"') < shown.index('id="compare"')


def test_restarts_and_overhead_since_the_choice_are_shown(member, web, jobs):
    now = timezone.now()
    PolicySetting.objects.create(policy="fifo", created_at=now - timedelta(hours=1))
    kind = GpuType.objects.first()
    times = [
        (60, Attempt.Outcome.MOVED, 30.0),
        (1200, Attempt.Outcome.PREEMPTED, 0.0),
        (90 * 60, Attempt.Outcome.PREEMPTED, 50.0),
    ]
    Attempt.objects.bulk_create(
        Attempt(
            job=jobs[0],
            number=n,
            state="ended",
            outcome=outcome,
            gpu_type=kind,
            gpu_count=2,
            engine="local",
            master_port=1,
            round_number=1,
            launched_at=now - timedelta(seconds=ended + 100),
            started_at=now - timedelta(seconds=ended + 90),
            ended_at=now - timedelta(seconds=ended),
            work_lost_gpu_s=lost,
        )
        for n, (ended, outcome, lost) in enumerate(times, start=1)
    )
    cost = read_restart_cost(now - timedelta(hours=1), now)
    assert (cost.preempted, cost.moved, cost.jobs) == (1, 1, 1)
    assert cost.held_gpu_s == pytest.approx(400)
    assert cost.overhead == pytest.approx((2 * 2 * 10 + 30) / 400)
    shown = " ".join(shown_to(web(member)).split())
    assert '<dd class="num">1 time<' in shown
    assert "18 %" in shown


def test_only_staff_are_offered_to_choose(member, staff, web):
    assert "Use this policy" not in page_of(web(member))
    assert "Use this policy" in page_of(web(staff))


@pytest.mark.usefixtures("tuned_policy")
def test_the_time_limit_is_chosen_and_shown_in_seconds(staff, web):
    choose(web(staff), solve_limit_part="0.25")
    assert PolicySetting.objects.current().solve_limit_part == 0.25
    assert "15 s: 25 % of the round length" in shown_to(web(staff))


def test_a_time_limit_of_short_rounds_has_its_fraction_of_a_second(member, web):
    PolicySetting.objects.create(policy="fifo", round_length_s=5)
    assert "2.5 s: 50 % of the round length" in shown_to(web(member))


def test_the_first_choice_is_undone_to_the_defaults(staff, web):
    PolicySetting.objects.create(policy="motley", round_length_s=5, created_by=staff)
    assert "Undo: back to motley by default" in shown_to(web(staff))


def test_the_setting_with_which_the_service_began_is_not_offered_to_be_undone(staff, web):
    first = PolicySetting.objects.create(policy="motley", round_length_s=5)
    assert "Undo: back to" not in shown_to(web(staff))
    told = web(staff).post(reverse("undo-policy", args=[first.pk]), follow=True).content.decode()
    assert "there is nothing to undo" in told
    assert PolicySetting.objects.get() == first


@pytest.mark.usefixtures("tuned_policy")
def test_how_cpus_and_memory_are_shared_is_chosen_and_shown(staff, web):
    assert "<dd>in proportion to GPUs</dd>" in shown_to(web(staff))
    choose(web(staff), cpu_memory="tune")
    assert "<dd>by what they gain each job, none below its proportion</dd>" in shown_to(web(staff))


@pytest.mark.usefixtures("tuned_policy")
@pytest.mark.parametrize("part", ["0", "1.01", "nan"])
def test_a_time_limit_of_nothing_or_more_than_a_round_is_refused(staff, web, part):
    choose(web(staff), solve_limit_part=part)
    assert PolicySetting.objects.current().policy != parametrised_policy.NAME


@pytest.mark.usefixtures("tuned_policy")
def test_parameters_are_listed_with_what_they_may_be(member, web):
    shown = page_of(web(member))
    for words in (
        "number, -4 to 4",
        "whole number, 1 to 9",
        "on or off",
        "one of old, new",
        "how steep it is",
        "no mercy",
    ):
        assert words in shown


@pytest.mark.usefixtures("tuned_policy")
def test_staff_choose_with_parameters_and_a_note(staff, web):
    choose(
        web(staff), **{"parameter-power": "2", "parameter-strict": "on", "parameter-first": "new", "note": "to compare"}
    )
    current = PolicySetting.objects.current()
    assert (current.policy, current.note, current.created_by) == (parametrised_policy.NAME, "to compare", staff)
    assert current.parameters == {"power": 2.0, "queues": 3, "strict": True, "first": "new"}


@pytest.mark.usefixtures("tuned_policy")
def test_a_faulty_parameter_is_marked_and_nothing_is_chosen(staff, web):
    answer = choose(web(staff), **{"parameter-power": "9", "parameter-queues": "2.5"}).content.decode()
    assert "Ensure this value is less than or equal to 4" in answer
    assert "Enter a whole number" in answer
    assert "Not saved: see the errors in the form below." in answer
    assert not PolicySetting.objects.exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("packed", "packed is for simulations only"), ("powr", "powr is unknown: this policy has no")]
)
def test_a_parameter_without_a_field_is_refused_not_passed_by(staff, web, name, reason):
    filled = {"round_length_s": 60, "min_run_s": 0, "note": "", f"parameter-{name}": "on"}
    answer = web(staff).post(reverse("choose-policy", args=["makespan"]), filled, follow=True).content.decode()
    assert f"Not saved: {reason}" in unescape(answer)
    assert not PolicySetting.objects.exists()
    assert "parameter-packed" not in answer


def test_a_policy_that_there_is_not_is_not_found(staff, web):
    assert web(staff).post(reverse("choose-policy", args=["lottery"])).status_code == 404


@pytest.mark.usefixtures("tuned_policy")
def test_a_choice_is_undone(staff, web):
    first = PolicySetting.objects.create(policy="max_min_fairness", note="as it was")
    choose(web(staff))
    answer = web(staff).post(reverse("go-back", args=[first.pk]), follow=True).content.decode()
    assert "max_min_fairness is the current policy again" in answer
    assert PolicySetting.objects.current().policy == "max_min_fairness"


def test_a_choice_that_the_code_knows_no_more_is_told(staff, web):
    gone = PolicySetting.objects.create(policy="lottery")
    answer = web(staff).post(reverse("go-back", args=[gone.pk]), follow=True).content.decode()
    assert "There is no policy &#x27;lottery&#x27;" in answer


def test_the_page_costs_as_many_queries_for_many_choices_as_for_few(staff, web, django_assert_max_num_queries):
    PolicySetting.objects.bulk_create(PolicySetting(created_by=staff) for _ in range(30))
    client = web(staff)
    with django_assert_max_num_queries(13):  # four of them for what nodes would save
        shown_to(client)


# -- in a browser ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        absent = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        absent("no Chromium: install the package chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def test_a_browser_without_scripts_lays_a_formula_out_in_rows(browser):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.set_content(formulas(describe_policy("max_min_fairness"))[0])
    tops = {round(row.bounding_box()["y"]) for row in page.locator("mtr").all()}
    assert len(tops) == 4
    fraction = page.locator("mfrac").first
    over, under = (part.bounding_box()["y"] for part in fraction.locator("> *").all())
    assert over < under
