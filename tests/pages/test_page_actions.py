"""Actions on pages: submit, cancel, hold, drain, replay, with plain forms and without JavaScript."""

import json
import re
from datetime import timedelta
from io import BytesIO
from zipfile import ZipFile

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from cluster_app.models import GpuType, Node
from cluster_app.storage import Volunteers
from jobs_app.lifecycle.commands import requeue_job
from jobs_app.models import Attempt, Job
from scheduler_app.models import Round
from tests.service_lab import UNTIL_LET_GO

FORM = {"mode": "form", "do": "submit", "name": "train", "team": "vision", "command": "python train.py", "gpus": "2"}


def test_the_form_submits_a_job_and_leads_to_its_page(member, cluster, web):
    answer = web(member).post(reverse("new-job"), FORM | {"gpu_types": ["a100", "v100"], "time_limit": "2h"})
    job = Job.objects.get()
    assert answer.url == reverse("job", args=[job.pk])
    assert (job.gpus_min, job.gpu_types, job.time_limit_s) == (2, ["a100", "v100"], 7200)


def checked(client: Client, **fields: str) -> str:
    """The plan that the page shows of this form."""
    return client.post(reverse("check-job"), FORM | fields).json()["plan"]


def test_the_plan_has_a_chart_of_cost_and_time_with_its_table(member, cluster, web):
    plan = checked(web(member), total_steps="72000", more="rates: {a100: 10, v100: 5}")
    figure = json.loads(re.search(r'<script id="cost-and-time"[^>]*>(.*?)</script>', plan, re.DOTALL)[1])
    assert [trace["name"] for trace in figure["data"]] == ["Pareto-optimal", "fastest", "A100", "T4", "V100"]
    rows = re.findall(r'<td data-label="Pareto-optimal">(\w+)</td>', plan)
    assert len(rows) == 3
    assert rows[0] == "yes", "the fastest is first"
    assert plan.count('<span class="badge">fastest</span>') == 2, "in the plan and in the chart's table"


@pytest.mark.parametrize(("currency", "heading"), [("EUR", "Cost, EUR"), ("", "Cost")])
@pytest.mark.usefixtures("cluster")
def test_columns_of_costs_name_the_currency(member, web, settings, currency, heading):
    settings.MOTLEY_CURRENCY = currency
    GpuType.objects.update(price_per_hour=2)
    plan = checked(web(member), total_steps="72000", more="rates: {a100: 10, v100: 5}")
    assert re.findall(r'<th class="num">(Cost[^<]*)</th>', plan) == [heading, heading], "in the plan and at the chart"
    assert set(re.findall(r'data-label="(Cost[^"]*)"', plan)) == {heading}


def test_the_plan_says_why_it_has_no_chart_where_the_run_time_is_not_known(member, cluster, web):
    plan = checked(web(member))
    assert "Cost and time are not shown: the job does not state its total steps" in plan
    assert 'data-figure="cost-and-time"' not in plan


def test_what_the_form_lacks_is_written_beside_it_as_yaml(member, cluster, web):
    curve = "sensitivity: {cpu_curve: {1: 0.5, 4: 1}}"
    web(member).post(reverse("new-job"), FORM | {"more": f"tags: {{project: imagenet}}\nweight: 0.5\n{curve}"})
    job = Job.objects.get()
    assert (job.tags, job.weight) == ({"project": "imagenet"}, 0.5)
    assert job.sensitivity == {"cpu_curve": {"1": 0.5, "4": 1.0}}


@pytest.mark.parametrize(("chosen", "stored"), [("", "trusted"), ("none", "none"), ("any", "trusted")])
def test_the_form_says_to_which_volunteers_machines_a_job_may_go(member, cluster, web, chosen, stored):
    """Its team allows trusted ones at most."""
    answer = web(member).post(reverse("new-job"), FORM | {"volunteers": chosen})
    assert Job.objects.get().volunteers == stored
    assert (Volunteers.NONE.label in web(member).get(answer.url).content.decode()) == (stored == "none")


def test_replicas_of_several_gpus_are_fields_of_the_form(member, cluster, web):
    size = {"gpus": "", "replicas": "1-2", "gpus_per_replica": "a100: 2"}
    web(member).post(reverse("new-job"), FORM | size)
    job = Job.objects.get()
    assert (job.gpus_min, job.gpus_max, job.gpus_per_replica) == (2, 4, {"a100": 2})
    page = web(member).get(reverse("job", args=[job.pk])).content.decode()
    assert "1 to 2 replicas of 2 A100" in page
    copy = web(member).get(reverse("new-job"), {"clone": job.pk}).content.decode()
    assert 'value="1-2"' in copy
    assert 'value="a100: 2"' in copy


def test_a_size_that_is_not_whole_is_told_at_its_field(member, cluster, web):
    size = {"gpus": "", "replicas": "2", "gpus_per_replica": ""}
    answer = web(member).post(reverse("new-job"), FORM | size)
    assert "gpus_per_replica" in answer.context["form"].errors


def test_at_most_more_gpus_makes_the_job_elastic(member, cluster, web):
    web(member).post(reverse("new-job"), FORM | {"gpus_max": "4"})
    assert (Job.objects.get().gpus_min, Job.objects.get().gpus_max) == (2, 4)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"gpus": "many"}, "gpus"),
        ({"volunteers": "some"}, "volunteers"),
        ({"gpus": "99"}, "gpus"),
        ({"name": ""}, "name"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"grace_seconds": "0"}, "grace_seconds"),
        ({"more": "colour: red"}, "more"),
        ({"more": "a: [b"}, "more"),
        ({"more": "sensitivity: {dataset: 1GiB}"}, "more"),
        ({"more": "just words"}, "more"),
        ({"more": "gpus: 4"}, "more"),
        ({"more": "name: other"}, "more"),
    ],
)
def test_a_fault_is_said_at_its_field(wrong, field, member, cluster, web):
    answer = web(member).post(reverse("new-job"), FORM | wrong)
    assert list(answer.context["form"].errors) == [field]


def test_nothing_typed_is_lost_when_a_field_is_wrong(member, cluster, web):
    answer = web(member).post(reverse("new-job"), FORM | {"gpus": "many", "more": "tags: {a: b}", "workdir": "/data"})
    shown = answer.content.decode()
    assert all(typed in shown for typed in ("python train.py", "many", "tags: {a: b}", "/data"))


def test_yaml_submits_the_same_job(member, cluster, web):
    text = "name: train\nteam: vision\ncommand: [python, train.py]\ngpus: {min: 1, max: 4}\n"
    web(member).post(reverse("new-job"), {"mode": "yaml", "do": "submit", "yaml": text})
    assert Job.objects.get().command == ["python", "train.py"]


@pytest.mark.parametrize("mode", ["form", "yaml"])
def test_what_is_filled_in_for_a_newcomer_can_be_submitted_as_it_is(mode, member, cluster, web):
    client = web(member)
    given = client.get(reverse("new-job"), {"mode": mode}).context
    typed = {"yaml": given["yaml"]} if mode == "yaml" else given["form"].initial
    client.post(reverse("new-job"), {"mode": mode, "do": "submit", **typed})
    assert Job.objects.get().name == "hello"


def test_text_that_is_not_yaml_is_kept_and_its_line_named(member, cluster, web):
    text = "name: train\ngpus: [1\ncommand: x\n"
    shown = web(member).post(reverse("new-job"), {"mode": "yaml", "do": "submit", "yaml": text}).content.decode()
    assert "line 3" in shown
    assert "gpus: [1" in shown


def test_a_fault_in_yaml_names_its_place(member, cluster, web):
    text = "name: train\nteam: vision\ncommand: x\ngpus: 1\ncolour: red\n"
    shown = web(member).post(reverse("new-job"), {"mode": "yaml", "do": "submit", "yaml": text}).content.decode()
    assert "/colour" in shown


def test_from_form_to_yaml_and_back_nothing_changes(member, cluster, web):
    client, full = (
        web(member),
        FORM | {"gpus_max": "4", "gpu_types": ["t4"], "volunteers": "none", "more": "rates:\n  t4: 3.5\n"},
    )
    yaml = client.post(reverse("new-job"), full | {"do": "yaml"}).context["yaml"]
    form = client.post(reverse("new-job"), {"mode": "yaml", "do": "form", "yaml": yaml}).context["form"]
    again = {name: form[name].value() for name in full if name in form.fields}
    assert {name: str(value) for name, value in again.items()} == {name: str(full[name]) for name in again}


def test_a_clone_is_prefilled_with_all_of_the_job(submit, member, web):
    job = submit(name="first", rates={"a100": 4.0}, tags={"a": "b"}, gpu_types=["a100"])
    form = web(member).get(reverse("new-job"), {"clone": str(job.pk)}).context["form"]
    assert (form["name"].value(), form["gpu_types"].value()) == ("first", ["a100"])
    assert "rates:" in form["more"].value()


def test_a_job_of_another_team_cannot_be_cloned(jobs, stranger, web):
    assert web(stranger).get(reverse("new-job"), {"clone": str(jobs[0].pk)}).status_code == 404


def test_cancel_says_first_what_is_at_stake_and_does_nothing_yet(submit, member, web):
    job = submit()
    shown = web(member).get(reverse("cancel-jobs"), {"job": str(job.pk)}).content.decode()
    assert "It has not run yet." in shown
    assert Job.objects.get().state == Job.State.QUEUED


def test_several_jobs_are_cancelled_together(jobs, member, web):
    chosen = [str(job.pk) for job in jobs[:3]]
    web(member).post(reverse("cancel-jobs"), {"job": chosen})
    assert Job.objects.filter(state=Job.State.CANCELLED).count() == 3


def test_a_finished_job_is_not_cancelled_again_but_said_to_be_over(submit, member, web):
    job = submit()
    address = {"job": str(job.pk)}
    web(member).post(reverse("cancel-jobs"), address)
    answer = web(member).post(reverse("cancel-jobs"), address, follow=True)
    assert "The job has already been cancelled." in answer.content.decode()


def test_a_job_is_held_and_released(submit, member, web):
    client, job = web(member), submit()
    client.post(reverse("act", args=[job.pk, "hold"]))
    held = Job.objects.get().held
    client.post(reverse("act", args=[job.pk, "release"]))
    assert (held, Job.objects.get().held) == (True, False)


def test_a_comment_is_on_the_page_until_its_author_deletes_it(submit, member, web):
    client, job = web(member), submit()
    events = client.post(reverse("comment", args=[job.pk]), {"text": "loss is <NaN>"}, follow=True).content.decode()
    assert events.count("loss is &lt;NaN&gt;") == 2  # in its row, and in the name of the button that deletes it
    assert "loss is &lt;NaN&gt;" in client.get(reverse("job", args=[job.pk])).content.decode()
    client.post(reverse("delete-comment", args=[job.pk, job.events.latest("pk").pk]))
    assert "loss is" not in client.get(reverse("job", args=[job.pk])).content.decode()


def test_staff_delete_any_comment(submit, member, staff, web):
    job = submit()
    web(member).post(reverse("comment", args=[job.pk]), {"text": "the key is 1234"})
    web(staff).post(reverse("delete-comment", args=[job.pk, job.events.latest("pk").pk]))
    assert "1234" not in web(member).get(f"{reverse('job', args=[job.pk])}?tab=events").content.decode()


def test_a_blank_comment_is_refused_with_a_message(submit, member, web):
    answer = web(member).post(reverse("comment", args=[submit().pk]), {"text": "  "}, follow=True)
    assert "Write the comment." in answer.content.decode()


def test_others_of_the_team_see_a_comment_but_cannot_delete_it(submit, member, stranger, web):
    job = submit()
    web(member).post(reverse("comment", args=[job.pk]), {"text": "loss is NaN"})
    job.team.members.add(stranger)
    address = reverse("delete-comment", args=[job.pk, job.events.latest("pk").pk])
    shown = web(stranger).post(address, follow=True).content.decode()
    assert ("Only its author or an administrator" in shown, address in shown, "loss is NaN" in shown) == (
        True,
        False,
        True,
    )


def test_a_deed_without_the_forms_token_is_refused(submit, member):
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    assert client.post(reverse("act", args=[submit().pk, "hold"])).status_code == 403


@pytest.mark.parametrize("verb", ["hold", "release", "requeue"])
def test_reading_an_address_changes_nothing(verb, submit, member, web):
    assert web(member).get(reverse("act", args=[submit().pk, verb])).status_code == 405


def test_staff_drain_a_node_with_a_reason_that_all_see(cluster, staff, member, web):
    web(staff).post(reverse("act-on-node", args=["emu-t4-1", "drain"]), {"reason": "a fan is loud"})
    assert "a fan is loud" in web(member).get(reverse("cluster")).content.decode()


def test_a_drain_without_a_reason_is_refused_in_words(cluster, staff, web):
    answer = web(staff).post(reverse("act-on-node", args=["emu-t4-1", "drain"]), {"reason": " "}, follow=True)
    assert "Give a reason" in answer.content.decode()


def test_a_drained_node_is_resumed(cluster, staff, web):
    web(staff).post(reverse("act-on-node", args=["emu-t4-1", "cordon"]), {"reason": "a look"})
    web(staff).post(reverse("act-on-node", args=["emu-t4-1", "resume"]))
    assert Node.objects.get(name="emu-t4-1").state == Node.State.READY


def test_after_a_drain_the_page_is_the_one_on_which_it_was_asked_for(cluster, staff, web):
    browser, shown = web(staff), "?gpu_type=t4&page=1"
    assert f'drain{shown.replace("&", "&amp;")}"' in browser.get(reverse("cluster") + shown).content.decode()
    answer = browser.post(reverse("act-on-node", args=["emu-t4-1", "drain"]) + shown, {"reason": "a fan is loud"})
    assert answer["Location"] == reverse("cluster") + shown


def test_the_page_of_a_node_takes_it_out_and_says_why_at_its_top(cluster, staff, member, web):
    address, browser = reverse("node", args=["emu-t4-1"]), web(staff)
    assert "Take out of service" in browser.get(address).content.decode()
    assert "Take out of service" not in web(member).get(address).content.decode()
    drained = reverse("act-on-node", args=["emu-t4-1", "drain"]) + "?from=node"
    answer = browser.post(drained, {"reason": "a fan is loud"}, follow=True)
    assert answer.redirect_chain[-1][0] == address
    shown = answer.content.decode()
    assert shown.index("a fan is loud") < shown.index("<h2>Availability")
    assert "By ada" in shown
    assert "a fan is loud" in (told := web(member).get(address).content.decode())
    assert "By ada" not in told
    assert "Resume</button>" in shown
    browser.post(reverse("act-on-node", args=["emu-t4-1", "resume"]) + "?from=node", {"reason": "a new fan"})
    node = Node.objects.get(name="emu-t4-1")
    assert (node.state, node.events.first().message) == ("ready", "a new fan")


def test_members_take_no_node_out_of_service(cluster, member, web):
    assert web(member).post(reverse("act-on-node", args=["emu-t4-1", "drain"]), {"reason": "x"}).status_code == 403


def test_a_round_solved_again_is_equal(decided, member, web):
    assert "<b>Identical.</b>" in web(member).post(reverse("replay", args=[decided.number])).content.decode()


def test_a_round_without_its_snapshot_says_that_it_cannot_be_replayed(decided, member, web):
    Round.objects.update(archive=None)
    assert "has no snapshot" in web(member).post(reverse("replay", args=[decided.number])).content.decode()


@pytest.mark.parametrize("damage", ["garbage", "cut", "one bit"])
def test_a_round_with_a_damaged_snapshot_is_shown_without_its_decisions(decided, member, web, damage):
    Round.objects.update(archive=damaged(bytes(Round.objects.get(number=decided.number).archive), damage))
    Round.objects.update(started_at=decided.started_at + timedelta(microseconds=1))  # unpacked ones are kept by it
    client = web(member)
    page = client.get(reverse("round", args=[decided.number]))
    assert (page.status_code, "is damaged" in page.content.decode()) == (200, True)
    whole = client.get(f"/api/v1/rounds/{decided.number}")
    assert (whole.status_code, whole.json()["decisions"]) == (200, [])
    assert client.get(f"/api/v1/rounds/{decided.number}/decisions").json()["results"] == []
    job = Job.objects.visible_to(member).first()
    assert client.get(f"/api/v1/jobs/{job.pk}/explain").status_code == 200
    assert "is damaged" in client.post(reverse("replay", args=[decided.number])).content.decode()


def damaged(blob: bytes, how: str) -> bytes:
    match how:
        case "garbage":
            return b"garbage"
        case "cut":
            return blob[: len(blob) // 2]
    entry = ZipFile(BytesIO(blob)).getinfo("prices.npy")  # a bit of its content: not each of its head is looked at
    middle = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    return blob[:middle] + bytes([blob[middle] ^ 1]) + blob[middle + 1 :]


def test_what_a_job_printed_is_on_its_page_after_its_end(lab, web):
    lab.node("n1")
    printed = r"printf 'a\033[31mred\033[0m 10%%\r 99%%\n<b>bold</b>\n'; echo oops >&2"
    job = lab.until_state(lab.submit(printed), Job.State.SUCCEEDED)
    client, address = web(lab.user()), reverse("job", args=[job.pk])
    shown = client.get(address, {"tab": "logs"}).content.decode()
    assert re.search(r"> 99%\n</span><span[^>]*>&lt;b&gt;bold&lt;/b&gt;\n", shown)
    assert "oops" in client.get(address, {"tab": "logs", "stream": "stderr"}).content.decode()


def test_the_whole_log_is_downloaded_as_it_was_written(lab, web):
    lab.node("n1")
    job = lab.until_state(lab.submit(r"printf 'a\033[31mred'"), Job.State.SUCCEEDED)
    answer = web(lab.user()).get(reverse("raw-log", args=[job.pk]), {"stream": "stdout"})
    assert b"".join(answer.streaming_content) == b"a\x1b[31mred"


def test_cancelling_a_running_job_names_its_gpus_and_the_work_at_stake(lab, web):
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO, gpus=2)
    lab.running(job)
    Attempt.objects.filter(job=job).update(started_at=timezone.now() - timedelta(hours=1))
    shown = web(lab.user()).get(reverse("cancel-jobs"), {"job": str(job.pk)}).content.decode()
    assert "2 x A100" in shown
    assert re.search(r"known to be saved: <b>2(\.\d)? GPU-hours", shown), shown


def test_every_tab_of_a_preempted_job_answers_and_the_attempt_that_was_stopped_has_a_receipt(preempted, lab, web):
    client, address = web(lab.user()), reverse("job", args=[preempted.pk])
    tabs = ("overview", "why", "logs", "files", "checkpoints", "gpus", "cost", "attempts", "events", "spec")
    answers = {tab: client.get(address, {"tab": tab}) for tab in tabs}
    assert {tab: answer.status_code for tab, answer in answers.items()} == dict.fromkeys(tabs, 200)
    receipt = r"Requeued by hand</b>: by ada\..*Work lost: [\d.]+ GPU-(second|minute)s?"
    assert re.search(receipt, answers["attempts"].content.decode(), re.DOTALL)


@pytest.fixture
def preempted(lab) -> Job:
    """A job whose first attempt was stopped by hand."""
    lab.node("n1")
    job = lab.submit(UNTIL_LET_GO)
    lab.running(job)
    requeue_job(job, actor=lab.user())
    lab.until(lambda: job.attempts.filter(number=1, state=Attempt.State.ENDED).exists())  # a second may run already
    return job


@pytest.mark.parametrize(
    ("address", "back"), [("/jobs/{job}/hold", "/jobs/{job}"), ("/policies/fifo/choose", "/policies/fifo")]
)
def test_an_address_of_a_button_opened_as_a_page_leads_back(jobs, member, web, address, back):
    answer = web(member).get(address.format(job=jobs[0].pk))
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert f'href="{back.format(job=jobs[0].pk)}">Go back' in answer.content.decode()


def test_the_form_takes_names_of_jobs_to_wait_for(submit, member, web):
    first, task = submit(name="prepare"), submit(name="sweep", array={"start": 0, "end": 3})
    web(member).post(reverse("new-job"), FORM | {"more": "after: [prepare, {job: 'sweep[2]', on: end}]"})
    waited_for = Job.objects.get(name="train").needs.order_by("parent__name").values_list("parent__name", "on")
    assert list(waited_for) == [("prepare", "success"), ("sweep", "end")]
    assert first.needed_by.exists()
    assert Job.objects.get(array=task.array, array_index=2).needed_by.exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody", "No job named nobody"),
        ("sweep", "an array: give one of its tasks"),
        ("two", "Several jobs are named two"),
    ],
)
def test_a_name_that_tells_no_one_job_is_refused_at_the_form(submit, member, web, name, says):
    submit(name="sweep", array={"start": 0, "end": 3})
    for _ in range(2):
        submit(name="two")
    page = web(member).post(reverse("new-job"), FORM | {"more": f"after: [{name}]"}).content.decode()
    assert says in page
    assert not Job.objects.filter(name="train").exists()


def test_jobs_of_other_teams_are_not_waited_for_by_name(submit, stranger, web):
    submit(name="prepare")
    page = (
        web(stranger).post(reverse("new-job"), FORM | {"team": "speech", "more": "after: [prepare]"}).content.decode()
    )
    assert "No job named prepare that you may see: check the name, or give its id." in page
