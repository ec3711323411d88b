"""A policy applied from a run of the lab: exactly what was simulated, watched, undone; and the cautions before."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.template.loader import render_to_string
from django.urls import reverse
from rest_framework.test import APIClient

from audit_app.models import AuditEntry
from insight_app.lab.applying import applied_from
from insight_app.lab.requests import LabRequest, ask_for_run
from insight_app.lab.runs import claim_run
from insight_app.models import LabRun, PolicyGuard
from insight_app.policy_effects.effects import read_effects
from insight_app.policy_effects.watch import judge_policy_when_due
from jobs_app.models import Job
from operations.demo import declare_emulated_cluster
from operations.metrics import exposition
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy, undo_choice, with_defaults
from tests.rest_callers import Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab
from tests.two_connections import one_after_the_other, only_there

FIGURES = {"avg_jct_h": 2.0, "queueing_h": 1.0, "restarts_per_job": 0.0, "utilization": 0.5, "makespan_h": 10.0}
PREEMPTIVE = "sia:power=-0.25"
WITH = with_defaults("sia", {"power": -0.25})
State = PolicyGuard.State


@pytest.fixture
def cluster(lab: Lab, plain_static: None) -> Lab:
    lab.node("n1", gpus=2)
    lab.policy("fifo", round_s=30)
    return lab


@pytest.fixture
def root(cluster: Lab) -> APIClient:
    return caller(cluster.user("root", "admins", staff=True), Scope.ADMIN)


@pytest.fixture
def run(root: APIClient, cluster: Lab) -> LabRun:
    """A finished run that simulated two policies, one of which failed."""
    rows = [
        {"policy": PREEMPTIVE, "parameters": WITH, "failed": "", "figures": FIGURES, "teams": []},
        {"policy": "srtf", "parameters": {}, "failed": "no memory", "figures": None, "teams": []},
    ]
    result = {
        "jobs": 100,
        "cluster": "a100=1x2",
        "actual": FIGURES,
        "present": {"policy": "fifo", "figures": FIGURES, "errors": {"avg_jct_h": 0.0}},
        "policies": rows,
        "summary": "",
    }
    return LabRun.objects.create(
        owner=cluster.user("root", staff=True), days=7, policies=[PREEMPTIVE, "srtf"], round_length_s=90, state="done",
        result=result, created_at=cluster.now, finished_at=cluster.now,
    )  # fmt: skip


def applied(root: APIClient, run: LabRun, **body: Any) -> Any:
    answer = root.post(f"/api/v1/lab/runs/{run.pk}/apply", {"policy": PREEMPTIVE, **body}, format="json")
    assert answer.status_code == 201, answer.json()
    return answer.json()


# -- applied -----------------------------------------------------------------------------------------------------


def test_exactly_what_was_simulated_is_applied_with_a_note_and_its_prediction(root: APIClient, run: LabRun) -> None:
    answer = applied(root, run, note="less waiting", guard_hours=3)
    current = PolicySetting.objects.current()
    assert (current.policy, current.parameters["power"], current.round_length_s) == ("sia", -0.25, 90)
    assert current.note == f"from run {run.pk} of the lab; less waiting"
    assert AuditEntry.objects.get(action="policy.choose", actor_name="root").message.endswith("; less waiting")
    assert (answer["setting"]["id"], answer["guard"]["state"], answer["cautions"]) == (current.pk, "too_few", [])
    guard = PolicyGuard.objects.get()
    assert (guard.predicted["chosen"], guard.predicted["arrivals_per_h"]) == (FIGURES, 10)
    assert (guard.until - current.created_at, guard.undo_by_itself) == (timedelta(hours=3), False)


@only_there
@pytest.mark.django_db(transaction=True)
def test_what_a_run_does_not_say_stays_as_it_is_when_it_is_applied(root: APIClient, run: LabRun) -> None:
    tuned = PolicySetting(policy="srtf", cpu_memory="tune")
    one_after_the_other(lambda: choose_policy(tuned, actor=None), lambda: applied(root, run))
    current = PolicySetting.objects.current()
    assert (current.policy, current.cpu_memory) == ("sia", "tune")


def test_what_was_simulated_is_applied_where_defaults_have_changed_since(root: APIClient, run: LabRun) -> None:
    run.result["policies"][0]["parameters"] = WITH | {"gap": 0.02}  # type: ignore[index]
    run.save()
    applied(root, run)
    assert PolicySetting.objects.current().parameters["gap"] == 0.02, "the words name the power alone"


def test_a_run_that_does_not_tell_its_parameters_is_applied_by_its_words_with_a_caution(
    root: APIClient, run: LabRun
) -> None:
    del run.result["policies"][0]["parameters"]  # type: ignore[index]
    run.save()
    (caution,) = applied(root, run)["cautions"]
    assert "those not named get the defaults of today" in caution
    assert PolicySetting.objects.current().parameters["power"] == -0.25


@pytest.mark.parametrize("kept", [{}, {"parameters": {"power": 1}}])
@pytest.mark.parametrize("verb", ["apply", "preview"])
def test_a_policy_that_is_there_no_more_is_not_applied(
    root: APIClient, run: LabRun, verb: str, kept: dict[str, Any]
) -> None:
    run.result["policies"] = [{"policy": "gone:power=1", "failed": "", "figures": FIGURES, "teams": []} | kept]  # type: ignore[index]
    run.save()
    answer = root.post(f"/api/v1/lab/runs/{run.pk}/{verb}", {"policy": "gone:power=1"}, format="json")
    assert (answer.status_code, "gone" in answer.content.decode()) == (422 if kept else 409, True)
    assert PolicySetting.objects.current().policy == "fifo"


def test_it_is_previewed_over_rest_with_its_prediction(root: APIClient, run: LabRun) -> None:
    answer = root.post(f"/api/v1/lab/runs/{run.pk}/preview", {"policy": PREEMPTIVE}, format="json").json()
    assert (answer["jobs"], answer["predicted"]["present_policy"], answer["cautions"]) == (0, "fifo", [])
    assert PolicySetting.objects.current().policy == "fifo"


@pytest.mark.parametrize(
    ("policy", "status", "words"),
    [("srtf", 409, "no memory"), ("fifo", 422, f"it simulated: {PREEMPTIVE}, srtf"), ("", 422, "blank")],
)
def test_a_policy_of_which_nothing_is_predicted_is_not_applied(
    root: APIClient, run: LabRun, policy: str, status: int, words: str
) -> None:
    answer = root.post(f"/api/v1/lab/runs/{run.pk}/apply", {"policy": policy}, format="json")
    assert (answer.status_code, words in answer.content.decode()) == (status, True)
    assert PolicySetting.objects.current().policy == "fifo"


def test_a_run_of_which_nobody_knows_what_really_happened_is_not_applied(root: APIClient, run: LabRun) -> None:
    LabRun.objects.update(result=run.result | {"actual": None})  # type: ignore[operator]
    answer = root.post(f"/api/v1/lab/runs/{run.pk}/apply", {"policy": PREEMPTIVE}, format="json")
    assert (answer.status_code, "other jobs than this cluster's" in answer.json()["detail"]) == (409, True)


def test_members_may_not_apply_their_own_run(cluster: Lab, run: LabRun) -> None:
    LabRun.objects.update(owner=cluster.user())
    for verb in ("apply", "preview"):
        answer = caller(cluster.user()).post(f"/api/v1/lab/runs/{run.pk}/{verb}", {"policy": PREEMPTIVE}, format="json")
        assert answer.status_code == 403


def test_an_old_or_partial_run_or_a_changed_cluster_or_setting_is_told(
    root: APIClient, cluster: Lab, run: LabRun
) -> None:
    run.result["present"]["errors"]["avg_jct_h"] = 0.4  # type: ignore[index]
    run.owner, run.finished_at = cluster.user("bob"), cluster.now - timedelta(days=5)
    run.save()
    cluster.node("n2", "t4")
    cluster.policy("srtf")
    words = " ".join(applied(root, run)["cautions"])
    for part in (
        "5 days old",
        "the teams of bob",
        "+40% off",
        "it was a100=1x2, and is now a100=1x2,t4=1x2",
        "the service chose srtf",
    ):
        assert part in words


def test_a_run_with_other_nodes_says_so(root: APIClient, run: LabRun) -> None:
    LabRun.objects.update(nodes={"a100": 1})
    assert "other nodes (a100 +1)" in applied(root, run)["cautions"][0]


# -- undone ------------------------------------------------------------------------------------------------------


def test_the_choice_is_undone_with_a_note(root: APIClient, run: LabRun) -> None:
    chosen = applied(root, run)["setting"]["id"]
    answer = root.post(f"/api/v1/policies/history/{chosen}/undo", {"note": "too slow"}, format="json")
    assert (answer.status_code, answer.json()["policy"], answer.json()["round_length_s"]) == (201, "fifo", 30)
    assert answer.json()["note"].endswith("; too slow")
    assert AuditEntry.objects.get(action="policy.undo").actor_name == "root"
    assert root.get("/api/v1/policies/guard").json()["state"] == "none"


def test_a_choice_is_not_undone_once_somebody_else_has_chosen(root: APIClient, cluster: Lab, run: LabRun) -> None:
    chosen = applied(root, run)["setting"]["id"]
    other = caller(cluster.user("rosa", "admins", staff=True), Scope.ADMIN)
    other.put("/api/v1/policies/current", {"policy": "srtf"}, format="json")
    answer = root.post(f"/api/v1/policies/history/{chosen}/undo", {}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "changed_since")
    assert "rosa chose srtf" in answer.json()["detail"]
    assert PolicySetting.objects.current().policy == "srtf"


def test_the_first_choice_is_undone_to_the_defaults(root: APIClient) -> None:
    PolicySetting.objects.all().delete()
    root.put("/api/v1/policies/current", {"policy": "srtf"}, format="json")
    assert undo_choice(PolicySetting.objects.current(), actor=None).policy == PolicySetting().policy


def test_the_setting_with_which_the_service_began_cannot_be_undone(root: APIClient) -> None:
    """That of the demo has short rounds: the defaults would have longer ones, which nobody had before."""
    PolicySetting.objects.all().delete()
    declare_emulated_cluster()
    first = PolicySetting.objects.get()
    answer = root.post(f"/api/v1/policies/history/{first.pk}/undo", {}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_undo")
    root.put("/api/v1/policies/current", {"policy": "srtf"}, format="json")
    assert undo_choice(PolicySetting.objects.current(), actor=None).round_length_s == first.round_length_s


# -- watched -----------------------------------------------------------------------------------------------------


def light_history(lab: Lab) -> None:
    """In the last hours a job of five minutes came every six, and ran at once."""
    for number in range(30):
        job = lab.submit(gpus=2, rates={"a100": {"2": 1}}, total_steps=300)
        start = lab.now - timedelta(minutes=6 * (31 - number))
        end = start + timedelta(minutes=5)
        lab.attempt(job, state="ended", outcome="succeeded", gpu_count=2, rate=1.0, started_at=start, ended_at=end)
        times = {"created_at": start, "started_at": start, "finished_at": end, "ran_s": 300.0}
        Job.objects.filter(pk=job.pk).update(state="succeeded", **times)


def test_a_policy_that_lets_jobs_wait_longer_than_predicted_is_told_everywhere_and_undone_by_itself(
    cluster: Lab, root: APIClient
) -> None:
    """The lab knows short jobs alone, and finds that a queue does for them; then a long one blocks it."""
    light_history(cluster)
    run = ask_for_run(LabRequest(days=1, policies=["fifo"]), owner=cluster.user("root", staff=True), now=cluster.now)
    assert claim_run(cluster.now)
    call_command("labrun", run.pk)
    chosen = root.post(f"/api/v1/lab/runs/{run.pk}/apply", {"policy": "fifo"}, format="json").json()["setting"]
    cluster.running(cluster.submit(UNTIL_LET_GO, gpus=2, name="long"))
    for _ in range(30):
        cluster.submit(gpus=2)
    cluster.tick()
    assert root.get("/api/v1/policies/guard").json()["state"] == State.TOO_FEW
    cluster.ahead += timedelta(hours=3)
    cluster.tick()
    guard = root.get("/api/v1/policies/guard").json()
    assert (guard["setting"], guard["state"], guard["recommends_undo"]) == (chosen["id"], State.WORSE, True)
    assert re.search("mean wait so far: (2 h 5|3 h)", guard["message"])
    assert b'motley_policy_guard{state="worse"} 1.0' in exposition()
    assert PolicySetting.objects.current().pk == chosen["id"]
    PolicyGuard.objects.update(undo_by_itself=True)
    cluster.ahead += timedelta(minutes=2)
    cluster.tick()
    assert PolicySetting.objects.current().note.startswith("undo of fifo")
    assert "Outside the lab's prediction" in AuditEntry.objects.get(action="policy.undo").message


def test_it_is_judged_once_a_minute_and_a_last_time_when_its_time_is_over(
    root: APIClient, cluster: Lab, run: LabRun
) -> None:
    applied(root, run, guard_hours=1)
    guard = PolicyGuard.objects.get()

    def judged_at(after: timedelta) -> Any:
        judge_policy_when_due(guard.setting.created_at + after)
        return PolicyGuard.objects.get().judged_at - guard.setting.created_at

    assert judged_at(timedelta(seconds=10)) == timedelta(seconds=10)
    assert judged_at(timedelta(seconds=50)) == timedelta(seconds=10)
    assert judged_at(timedelta(seconds=80)) == timedelta(seconds=80)
    assert judged_at(timedelta(hours=5)) == timedelta(hours=1)
    assert judged_at(timedelta(hours=6)) == timedelta(hours=1)


def test_effects_are_read_of_jobs_since_the_change_by_four_queries(
    cluster: Lab, django_assert_num_queries: Any
) -> None:
    light_history(cluster)
    since = cluster.now - timedelta(minutes=6 * 11) + timedelta(seconds=1)
    with django_assert_num_queries(4):
        seen = read_effects(since, cluster.now)
    assert (len(seen.jct_h), seen.arrivals, seen.utilization) == (10, 9, None)
    assert seen.jct_h == pytest.approx([1 / 12] * 10)
    assert seen.queueing_h == pytest.approx([0.0] * 10, abs=1e-6)
    assert seen.came_after.tolist() == [False] + [True] * 9
    assert seen.restarts.tolist() == [0.0] * 10


def offered(run: LabRun, user: Any, policy: int = 0) -> str:
    """What the page of a run offers beside a policy."""
    context = {"run": run, "policy": run.result["policies"][policy], "user": user}  # type: ignore[index]
    current = PolicySetting.objects.select_related("created_by").current()
    return render_to_string("pages/lab/_apply.html", context | {"applied": applied_from(run), "current": current})


def test_the_page_of_a_run_offers_to_apply_then_to_undo_and_says_who_has_changed_it_since(
    root: APIClient, cluster: Lab, run: LabRun
) -> None:
    staff = cluster.user("root", staff=True)
    assert "Apply" in offered(run, staff)
    assert offered(run, cluster.user()).strip() == offered(run, staff, policy=1).strip() == ""
    applied(root, run)
    assert "Undo" in offered(run, staff)
    other = caller(cluster.user("rosa", "admins", staff=True), Scope.ADMIN)
    other.put("/api/v1/policies/current", {"policy": "srtf"}, format="json")
    assert ("changed since by rosa" in offered(run, staff), "Undo" in offered(run, staff)) == (True, False)


# -- pages -------------------------------------------------------------------------------------------------------


def test_it_is_previewed_and_applied_on_pages(cluster: Lab, run: LabRun, client: Any) -> None:
    client.force_login(cluster.user("root", staff=True))
    address = reverse("apply-lab-run", args=[run.pk])
    shown = client.get(address, {"policy": PREEMPTIVE}).content.decode()
    assert "fifo, simulated" in shown
    assert "Both rounds do the same with every job." in shown
    answer = client.post(address, {"policy": PREEMPTIVE, "guard_hours": "900"}).content.decode()
    assert "Ensure this value is less than or equal to 168" in answer
    answer = client.post(address, {"policy": PREEMPTIVE}, follow=True).content.decode()
    assert "its effects are watched" in answer
    PolicyGuard.objects.update(state=State.WORSE, message="Outside the lab's prediction.")
    shown = client.get(reverse("policies")).content.decode()
    assert "Outside the lab&#x27;s prediction." in shown
    assert "Undo: back to fifo" in shown
