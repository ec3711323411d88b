"""What only a browser can show: live rows keep focus and choice, keys, themes, and nothing breaks a strict policy."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Browser, Page, Route, expect

from accounting_app.gpu_watch.minutes import store_readings
from accounting_app.models import TeamUsage
from cluster_app.models import Node, NodeEvent
from engines.protocol import GpuReading, Throttle
from insight_app.models import JobForecast
from jobs_app.lifecycle.commands import hold_job
from jobs_app.measurement.progress_curves import CurvePoint, note_points
from jobs_app.models import Attempt, Job, PersonalSettings, Team
from scheduler_app.models import Round, TimeWindow
from tests.chromium import browser_of_live_server, skip_module_without_chromium  # noqa: F401 - a fixture
from tests.rest.world import added_recipe, added_recurring_job
from tests.service_lab import UNTIL_LET_GO

STRICT = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'"

expect.set_options(timeout=300_000)  # a limit for a loaded machine; nothing waits for it

skip_module_without_chromium()


def strictly(route: Route) -> None:
    answer = route.fetch(max_redirects=0)
    route.fulfill(response=answer, headers=answer.headers | {"content-security-policy": STRICT})


@contextmanager
def signed_in(browser: Browser, live_server: Any, user: User, zone: str = "UTC") -> Iterator[Page]:
    """A page under a strict content security policy; nothing may complain on the console."""
    client = Client()
    client.force_login(user)
    context = browser.new_context(
        base_url=live_server.url, viewport={"width": 1280, "height": 900}, timezone_id=zone, locale="en-GB"
    )
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
    opened = context.new_page()
    opened.route(f"{live_server.url}/**", strictly)
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    yield opened
    opened.goto("about:blank")
    opened.unroute_all(behavior="wait")
    context.close()
    assert not faults


@pytest.fixture
def page(browser: Browser, live_server: Any, decided: Any, staff: User) -> Iterator[Page]:
    with signed_in(browser, live_server, staff) as opened:
        yield opened


def test_a_page_shows_under_a_strict_policy(page: Page) -> None:
    for name in ("home", "jobs", "cluster", "rounds", "policies", "new-job", "tokens", "change-password", "audit"):
        page.goto(reverse(name))
        expect(page.locator("h1").first).to_be_attached()


def test_a_chart_is_drawn_under_a_strict_policy(page: Page) -> None:
    for name in ("fairness", "utilization"):
        page.goto(reverse(name))
        expect(page.locator(".chart .main-svg").first).to_be_visible()


OVERLAPS = """() => [...document.querySelectorAll(".chart")].flatMap((chart) => {
  const box = (some) => some.getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const legends = [...chart.querySelectorAll(".legend .bg")].map(box);  // without what it hides until it is scrolled
  const words = [...chart.querySelectorAll(".xtitle, .ytitle, .xtick text, .ytick text")];
  const cut = (a) => a.top < box(chart).top - 1 || a.bottom > box(chart).bottom + 1;
  const faulty = (a) => cut(a) || legends.some((legend) => !apart(a, legend));
  const shown = (one) => one.getClientRects().length > 0;  // Plotly hides a time at the edge that has no room
  return words.filter((one) => shown(one) && faulty(box(one))).map((one) => one.textContent);
})"""


@pytest.mark.parametrize("width", [360, 1280])
def test_no_word_of_a_chart_is_cut_off_or_below_its_legend(running: "Attempt", page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    claim = running.claims.select_related("gpu__node").first()
    assert claim is not None
    reading = GpuReading(claim.gpu_id, 80.0, 4096.0, 250.0, 83.0, 0, Throttle(0))
    for minutes in (40, 0):
        store_readings([reading], {claim.gpu_id: running.pk}, timezone.now() - timedelta(minutes=minutes))
    node = reverse("node", args=[claim.gpu.node.name])
    of_round = reverse("round", args=[Round.objects.get().number])
    found = {}
    for address in (reverse("fairness"), reverse("utilization"), reverse("timeline"), of_round, node):
        page.goto(address)
        expect(page.locator(".chart .main-svg").first).to_be_visible()
        found[address] = page.evaluate(OVERLAPS)
    assert {address: words for address, words in found.items() if words} == {}


LEGEND_PARTS = """() => [...document.querySelectorAll(".chart")].flatMap((chart) => {
  const height = (one) => one.getBoundingClientRect().height;
  return [...chart.querySelectorAll(".legend .bg")].map((legend) => height(legend) / height(chart));
})"""


def test_a_legend_of_many_teams_leaves_a_phone_the_chart(decided: Round, page: Page) -> None:
    for number in range(12):
        team = Team.objects.create(name=f"team-number-{number}")
        for minutes in (40, 20):
            at = timezone.now() - timedelta(minutes=minutes)
            TeamUsage.objects.create(team=team, minute=at, entitled_share_s=5, active_s=60, gpu_s=60, work_gpu_s=60)
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(reverse("fairness"))
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    parts = page.evaluate(LEGEND_PARTS)
    assert len(parts) >= 2
    assert max(parts) < 0.2
    assert page.evaluate(OVERLAPS) == []


def test_a_list_within_a_card_keeps_its_marks_inside(cluster: Any, page: Page) -> None:
    now = timezone.now()
    window = {
        "kind": TimeWindow.Kind.MAINTENANCE,
        "reason": "fans",
        "begins_at": now,
        "ends_at": now + timedelta(hours=1),
    }
    TimeWindow.objects.create(**window).nodes.add(Node.objects.first())
    page.goto(reverse("cluster"))
    card, item = (
        page.locator(".card:has(#windows)").bounding_box(),
        page.locator(".card:has(#windows) li").bounding_box(),
    )
    assert card is not None
    assert item is not None
    assert item["x"] - card["x"] > 24
    expect(page.locator(".card:has(#windows) li")).to_contain_text(re.compile(r"fans\s+on \S"))


def test_on_a_phone_long_names_of_facts_leave_room_for_them(page: Page, member: User) -> None:
    page.set_viewport_size({"width": 400, "height": 740})
    page.goto(reverse("recurring-job", args=[added_recurring_job(member).pk]))
    expect(page.locator("main dl.facts")).to_be_visible()
    widths = page.locator("main dl.facts > dd").evaluate_all(
        "all => all.map((one) => one.clientWidth / one.parentElement.clientWidth)"
    )
    assert min(widths) > 0.5


@pytest.fixture
def running(decided: Any, staff: User) -> Attempt:
    """An attempt as if its processes ran for ten minutes."""
    attempt = Attempt.objects.filter(claims__isnull=False).first()
    assert attempt is not None
    began = timezone.now() - timedelta(minutes=10)
    times = {"claimed_at": began, "launched_at": began, "started_at": began}
    Attempt.objects.filter(pk=attempt.pk).update(state=Attempt.State.RUNNING, **times)
    attempt.claims.update(held_from=began)
    return attempt


def test_a_bar_of_the_timeline_tells_its_job_and_opens_it(running: Attempt, page: Page) -> None:
    page.goto(f"{reverse('timeline')}?by=job&window=1h")
    chart = page.locator(".chart .nsewdrag").first.bounding_box()
    assert chart is not None
    now = chart["width"] * 60 / 90  # an hour of the past and half an hour ahead, in one row
    x, y = chart["x"] + now - chart["width"] * 5 / 90, chart["y"] + chart["height"] / 2
    page.mouse.move(x, y)
    expect(page.locator(".bar-label")).to_contain_text(running.job.name)
    page.mouse.move(x - chart["width"] / 2, y)
    expect(page.locator(".bar-label")).to_be_hidden()
    page.mouse.click(x, y)
    expect(page).to_have_url(re.compile(reverse("job", args=[running.job_id])))


def test_a_slider_chooses_the_moment_of_the_cluster(running: Attempt, page: Page) -> None:
    NodeEvent.objects.update(at=timezone.now() - timedelta(hours=2))
    page.goto(f"{reverse('cluster-then')}?window=1h")
    expect(page.locator(".dense-node").first).to_be_visible()
    expect(page.locator("#jobs-then")).to_be_hidden()
    page.locator("#moment input[type=range]").press("End")
    expect(page.locator(f"#then a[href='{reverse('job', args=[running.job_id])}']")).to_be_visible()
    expect(page.locator("#moment output")).not_to_be_empty()
    expect(page).to_have_url(re.compile(r"at=\d+"))


def test_the_timeline_is_saved_as_a_picture(running: Attempt, page: Page) -> None:
    page.goto(reverse("timeline"))
    with page.expect_download() as saved:
        page.locator(".modebar-btn").first.click()
    assert saved.value.suggested_filename == "timeline.png"
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_change_arrives_while_focus_and_choice_stay(page: Page) -> None:
    job = Job.objects.queued().first()
    page.goto(reverse("jobs"))
    row = page.locator(f"#job-{job.pk}")
    row.locator("input[type=checkbox]").check()
    row.locator("a").focus()
    hold_job(job, actor=None)
    expect(row.locator(".state")).to_have_text("held")
    expect(row.locator("input[type=checkbox]")).to_be_checked()
    expect(row.locator("a")).to_be_focused()


def test_selected_jobs_are_held_by_the_bar_that_appears_with_the_selection(page: Page) -> None:
    first, second = Job.objects.queued()[:2]
    page.goto(reverse("jobs"))
    bar = page.get_by_role("group", name="Selected jobs")
    expect(bar).to_be_hidden()
    for job in (first, second):
        page.locator(f"#pick-{job.pk}").check()
    expect(bar).to_contain_text("2 selected")
    bar.get_by_role("button", name="Hold").click()
    expect(page.locator(".messages")).to_contain_text("Holding 2 jobs")
    assert {job.pk for job in Job.objects.filter(held=True)} == {first.pk, second.pk}


def test_all_jobs_of_a_page_are_selected_at_once(page: Page) -> None:
    page.goto(reverse("jobs"))
    page.get_by_label("Select all on this page").check()
    unfinished = Job.objects.unfinished().count()
    expect(page.get_by_role("group", name="Selected jobs")).to_contain_text(f"{unfinished} selected")


def test_a_chart_of_a_running_job_gains_points_without_a_reload(running: Attempt, page: Page) -> None:
    began = timezone.now() - timedelta(minutes=5)

    def report(number: int) -> None:
        with transaction.atomic():  # as its caller in a service has
            note_points({running.job_id: CurvePoint(began + timedelta(seconds=10 * number), 10 * number, 1 / number)})

    for number in (1, 2, 3):
        report(number)
    page.goto(reverse("job", args=[running.job_id]))
    points = "(count) => document.querySelector('[data-figure]').data?.[0].x.length === count"
    page.wait_for_function(points, arg=3)
    report(4)
    page.wait_for_function(points, arg=4)


def test_what_is_being_typed_survives_a_live_update(page: Page) -> None:
    page.goto(reverse("cluster"))
    page.locator("summary", has_text="Take out of service").first.click()
    field = page.locator("input[name=reason]").first
    field.fill("a fan is lo")
    with page.expect_response(lambda answer: answer.url.endswith("/cluster")):
        pass
    field.press_sequentially("ud")
    expect(field).to_have_value("a fan is loud")


def test_a_forecast_names_times_in_the_zone_of_the_reader(
    browser: Browser, live_server: Any, decided: Any, staff: User
) -> None:
    job, now = Job.objects.filter(state=Job.State.STARTING).first(), timezone.now()
    at = now + timedelta(minutes=1)
    ends = dict.fromkeys(("finish_low", "finish_median", "finish_high"), at)
    JobForecast.objects.create(job=job.pk, made_at=now, **ends, place=0, queue=1)
    with signed_in(browser, live_server, staff, zone="Asia/Kolkata") as page:
        page.goto(reverse("jobs"))
        local = f"{at.astimezone(ZoneInfo('Asia/Kolkata')):%H:%M}"
        expect(page.locator(f"#job-{job.pk} .eta time").first).to_have_text(local)
        expect(page.locator(f"#job-{job.pk} .eta")).to_contain_text("IST")


def test_the_rows_are_walked_and_opened_by_keys(page: Page) -> None:
    page.goto(reverse("jobs"))
    rows = page.locator("[data-row]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("nav.tabs")).to_be_visible()


def test_slash_goes_to_the_search_and_a_question_mark_helps(page: Page) -> None:
    page.goto(reverse("jobs"))
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()


def test_the_chosen_theme_is_kept(page: Page) -> None:
    page.goto(reverse("jobs"))
    page.locator("#theme").click()
    page.goto(reverse("home"))
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_a_page_says_how_fresh_it_is(page: Page) -> None:
    page.goto(reverse("jobs"))
    expect(page.locator("#freshness")).to_have_text("live, 0 s")


def test_a_page_fits_a_phone(page: Page) -> None:
    of_cluster, of_jobs = ("cluster", "cluster-then", "timeline"), ("home", "jobs", "new-job", "rounds")
    page.set_viewport_size({"width": 360, "height": 740})
    widths = {}
    for name in (*of_cluster, *of_jobs, "fairness", "utilization", "tokens", "audit"):
        page.goto(reverse(name))
        widths[name] = page.evaluate("document.documentElement.scrollWidth")
    recipe = added_recipe(User.objects.get(username="mia"))
    for address in ("/recipes", "/recipes/new", f"/recipes/{recipe.pk}", f"/recipes/{recipe.pk}/change", "/jobs/new"):
        page.goto(address)
        widths[address] = page.evaluate("document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > 360} == {}


def test_a_log_is_followed_from_before_the_start_to_the_end(browser: Browser, lab: Any, live_server: Any) -> None:
    lab.node("n1")
    job = lab.submit(f"echo first; {UNTIL_LET_GO}; printf 'last <b>\\033[1m'; echo")
    with signed_in(browser, live_server, lab.user()) as page:
        page.goto(f"{reverse('job', args=[job.pk])}?tab=logs")
        expect(page.locator("main")).to_contain_text("No output yet")
        lab.running(job)
        expect(page.locator("#log")).to_contain_text("first")
        lab.let_go(job)
        lab.until_state(job, Job.State.SUCCEEDED)
        expect(page.locator("#log")).to_have_text("first\nlast <b>\n")
        expect(page.locator("#log-mark")).to_have_text("complete")
        page.reload()
        expect(page.locator("#log")).to_have_text("first\nlast <b>\n")
        expect(page.get_by_label("follow")).to_be_hidden()


# -- a new job, by form and YAML side by side --------------------------------------------------------------------


def test_the_yaml_follows_the_form(page: Page) -> None:
    page.goto(reverse("new-job"))
    page.get_by_label("Command").fill("python mine.py")
    page.get_by_label("GPUs", exact=True).fill("2")
    expect(page.locator("#yaml")).to_have_value(re.compile(r"command: python mine\.py\ngpus: 2"))


def test_the_steps_of_an_example_go_with_its_command(page: Page) -> None:
    page.goto(reverse("new-job"))
    steps = page.get_by_label("Total steps")
    expect(steps).to_have_value("500")
    page.get_by_label("Command").fill("python mine.py")
    expect(steps).to_have_value("")
    steps.fill("700")
    page.get_by_label("Command").fill("python mine.py --fast")
    expect(page.locator("#yaml")).to_have_value(re.compile(r"--fast\ngpus: 1\ntotal_steps: 700"))


def test_the_form_follows_the_yaml(page: Page) -> None:
    page.goto(reverse("new-job"))
    page.locator("#yaml").fill("name: mine\nteam: language\ncommand: x\ngpus: 3\ngpu_types: [t4]\ntags: {a: b}\n")
    expect(page.get_by_label("Name")).to_have_value("mine")
    expect(page.get_by_label("Team")).to_have_value("language")
    expect(page.get_by_label("T4")).to_be_checked()
    expect(page.get_by_label("Tags")).to_have_value("a=b")


def test_the_first_plan_leaves_the_selected_text_alone(page: Page) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/jobs/new/check", hold)
    with page.expect_request("**/jobs/new/check"):
        page.goto(reverse("new-job"))
    page.locator("#yaml").select_text()
    page.unroute("**/jobs/new/check")
    held.pop().fallback()
    expect(page.locator("#plan-options tbody tr")).to_have_count(3)
    page.keyboard.insert_text("name: mine\nteam: language\ncommand: x\n")
    expect(page.get_by_label("Name")).to_have_value("mine")


def test_a_plan_says_what_each_gpu_type_would_give(page: Page) -> None:
    page.goto(reverse("new-job"))
    rows = page.locator("#plan-options tbody tr")
    expect(rows).to_have_count(3)
    expect(page.locator("#plan-forecast")).to_contain_text(re.compile("starts (now|in about)"))
    expect(page.locator("#plan-forecast")).to_contain_text("UTC")
    page.get_by_label("GPUs", exact=True).fill("8")
    expect(rows.filter(has_text="A100")).to_contain_text("no gang of 8")


@pytest.mark.parametrize("width", [1100, 1280])
def test_a_plan_stays_within_its_card(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(reverse("new-job"))
    expect(page.locator("#plan-options tbody tr")).to_have_count(3)
    table, card = page.locator("#plan-options").bounding_box(), page.locator(".card:has(#plan)").bounding_box()
    assert table is not None
    assert card is not None
    assert table["x"] + table["width"] <= card["x"] + card["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def new_job_with_rates(page: Page) -> None:
    """A new job whose rates are known: without them there is no run time to draw."""
    page.goto(reverse("new-job"))
    page.locator("details", has=page.locator("[name=more]")).first.evaluate("details => details.open = true")
    page.locator("[name=more]").fill("rates: {a100: 30, v100: 20, t4: 10}")


def test_the_chart_of_cost_and_time_follows_what_is_written(page: Page) -> None:
    new_job_with_rates(page)
    chart = page.locator("#plan .chart")
    expect(chart.locator(".main-svg").first).to_be_visible()
    expect(chart.locator(".legendtext").first).to_have_text("A100")
    expect(chart.locator(".scatterlayer .point")).to_have_count(4)  # three GPU types, and the ring
    page.get_by_label("T4").check()
    expect(chart.locator(".scatterlayer .point")).to_have_count(2)
    page.get_by_label("Total steps").fill("")
    expect(page.locator("#plan")).to_contain_text("does not state its total steps")
    expect(chart).to_have_count(0)


def test_the_table_of_the_chart_stays_open_and_focused_when_the_plan_changes(page: Page) -> None:
    new_job_with_rates(page)
    summary = page.locator("#plan summary")
    summary.click()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/jobs/new/check", hold)
    with page.expect_request("**/jobs/new/check"):
        page.get_by_label("T4").check()
    summary.focus()
    page.unroute("**/jobs/new/check")
    held.pop().fallback()
    rows = page.locator("#plan details tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_be_visible()
    expect(summary).to_be_focused()


def test_of_a_plan_only_its_note_and_its_forecast_are_read_out(page: Page) -> None:
    new_job_with_rates(page)
    expect(page.locator("#plan summary")).to_be_visible()
    expect(page.locator("[aria-live] table, [aria-live] .chart")).to_have_count(0)
    note = page.locator("#plan-note[aria-live]")
    expect(note).to_contain_text("GPUs are free now")
    page.get_by_label("GPUs", exact=True).fill("many")
    expect(note).to_contain_text("whole number")
    page.get_by_label("GPUs", exact=True).fill("1")
    expect(note).to_contain_text("GPUs are free now")


def test_a_fault_appears_at_its_field_and_goes_when_it_is_mended(page: Page) -> None:
    page.goto(reverse("new-job"))
    field = page.locator("[data-field=gpus]")
    page.get_by_label("GPUs", exact=True).fill("many")
    expect(field.locator(".fault")).to_contain_text("whole number")
    page.get_by_label("GPUs", exact=True).fill("1")
    expect(field.locator(".fault")).to_have_count(0)


def test_a_fault_of_a_refused_form_stays_at_its_field_until_it_is_mended(page: Page) -> None:
    page.goto(reverse("new-job"))
    page.get_by_label("Name").fill("refused")
    page.get_by_label("Command").fill("true")
    page.get_by_label("GPUs", exact=True).fill("0")
    page.get_by_role("button", name="Submit", exact=True).last.click()
    expect(page.get_by_role("alert")).to_contain_text("Not submitted")
    expect(page.locator("#plan-note .faults")).to_contain_text("from 1 to")  # the check at loading has been answered
    field = page.locator("[data-field=gpus]")
    expect(field.locator(".fault")).to_contain_text("from 1 to")
    page.get_by_label("GPUs", exact=True).fill("1")
    expect(field.locator(".fault")).to_have_count(0)


def test_a_fault_of_the_yaml_is_named_with_its_line(page: Page) -> None:
    page.goto(reverse("new-job"))
    page.locator("#yaml").fill("name: [x\ngpus: 1\n")
    expect(page.locator("#plan-note")).to_contain_text("line 2")


def test_what_was_written_last_is_submitted(page: Page) -> None:
    page.goto(reverse("new-job"))
    page.get_by_label("Name").fill("from-the-form")
    page.locator("#yaml").fill("name: from-the-yaml\nteam: vision\ncommand: 'true'\ngpus: 1\n")
    page.get_by_role("button", name="Submit", exact=True).last.click()
    expect(page.locator("h1")).to_contain_text("from-the-yaml")


def test_a_starting_point_fills_both_sides(page: Page) -> None:
    page.goto(reverse("new-job"))
    page.get_by_role("link", name="Sweep").click()
    expect(page.get_by_label("Name")).to_have_value("sweep")
    expect(page.locator("#yaml")).to_have_value(re.compile("at_a_time: 10"))


def test_bars_and_logs_are_in_the_zone_of_the_page(
    running: Attempt, browser: Browser, live_server: Any, staff: User
) -> None:
    """In a browser of Los Angeles whose reader has chosen Kathmandu; Plotly takes numbers for local times."""
    PersonalSettings.objects.create(user=staff, time_zone="Asia/Kathmandu")
    began = running.claims.get().held_from.astimezone(ZoneInfo("Asia/Kathmandu"))
    with signed_in(browser, live_server, staff, zone="America/Los_Angeles") as page:
        page.goto(f"{reverse('timeline')}?by=job&window=1h")
        expect(page.locator("html")).to_have_attribute("data-zone", "Asia/Kathmandu")
        chart = page.locator(".chart .nsewdrag").first.bounding_box()
        assert chart is not None
        now = chart["width"] * 60 / 90
        page.mouse.move(chart["x"] + now - chart["width"] * 5 / 90, chart["y"] + chart["height"] / 2)
        expect(page.locator(".bar-label")).to_contain_text(f"{began:%H:%M:%S}")
        ticks = page.locator(".chart .xtick text").all_text_contents()
        shown = {int(text.strip()[:2]) for text in ticks}
        assert shown & {began.hour, (began + timedelta(hours=1)).hour, (began - timedelta(hours=1)).hour}


def test_the_menu_is_walked_with_arrows_and_closes_with_escape(page: Page) -> None:
    page.goto(reverse("jobs"))
    menu = page.locator("details.menu")
    menu.locator("summary").press("Enter")
    page.keyboard.press("ArrowDown")
    expect(menu.locator(".sheet a").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(menu.locator("summary")).to_be_focused()


def test_on_a_phone_a_new_job_begins_on_the_first_screen_and_the_tab_is_seen(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(reverse("new-job"))
    expect(page.get_by_label("Name", exact=True)).to_be_in_viewport(ratio=1)
    page.goto(reverse("utilization"))
    expect(page.locator("nav [aria-current=page]")).to_be_in_viewport(ratio=1)


def test_a_folder_of_the_browser_is_the_code_of_the_job(page: Page, tmp_path: Path, settings: Any) -> None:
    settings.MOTLEY_CODE_ROOT = tmp_path / "code"
    (tmp_path / "mine" / "models").mkdir(parents=True)
    (tmp_path / "mine" / "train.py").write_text("print(1)\n")
    (tmp_path / "mine" / "models" / "net.py").write_text("x = 1\n")
    page.goto(reverse("new-job"))
    page.locator("input[name=folder]").set_input_files(tmp_path / "mine")
    page.get_by_role("button", name="Submit").click()
    expect(page).to_have_url(re.compile(r"/jobs/[0-9a-f-]{36}"))
    job = Job.objects.latest("pk")
    assert job.code is not None
    assert job.code.files == 2


def test_a_long_name_does_not_widen_the_list_of_activity(browser, live_server, member, submit):
    hold_job(submit(name="n" * 100), actor=member)
    with signed_in(browser, live_server, member) as page:
        page.goto(reverse("audit"))
        expect(page.get_by_text("n" * 100).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
