"""Administration: the inventory, the policy and tokens, as an administrator edits them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from audit_app.models import AuditEntry
from cluster_app.models import Gpu, GpuType, Node
from jobs_app.models import ApiToken, Budget, Job, TeamQuota
from jobs_app.tokens import issue_token
from scheduler_app.models import PolicySetting
from tests import parametrised_policy
from tests.played_agent import JOINING, Played
from tests.rest_callers import with_token
from tests.service_lab import UNTIL_LET_GO, Lab

NODE = {
    "name": "n2",
    "cpus": 64,
    "memory_mib": "1024MiB",
    "engine": "local",
    "labels": "{}",
    "capacity_type": "stable",
    "notice_s": 0,
    "lent_zone": "UTC",
    "emulated": "on",
}
EVENTS = {f"events-{name}": 0 for name in ("TOTAL_FORMS", "INITIAL_FORMS")}


@pytest.fixture
def admin(lab: Lab, plain_static: None) -> Client:
    """A browser in which an administrator is logged in; there is a node `n1`."""
    lab.node("n1", gpus=2)
    client = Client()
    client.force_login(lab.user("root", staff=True))
    return client


def post(admin: Client, url: str, **data: Any) -> Any:
    """The page to which that leads."""
    return admin.post(url, data, follow=True)


def act(admin: Client, model: str, action: str, *rows: Any, **data: Any) -> Any:
    """Choose an action on rows of a list."""
    picked = {"action": action, "_selected_action": [row.pk for row in rows]}
    return post(admin, reverse(f"admin:{model}_changelist"), **picked, **data)


def says(answer: Any, text: str) -> bool:
    return text in answer.content.decode()


LISTS = [
    "cluster_app_gpu",
    "cluster_app_gputype",
    "cluster_app_node",
    "jobs_app_team",
    "jobs_app_apitoken",
    "jobs_app_job",
]
LISTS += ["jobs_app_throughput", "scheduler_app_policysetting", "scheduler_app_round", "connections_app_agent"]


def statuses_of_lists(client: Client) -> dict[str, int]:
    return {model: client.get(reverse(f"admin:{model}_changelist")).status_code for model in LISTS}


def test_every_list_opens(lab: Lab, admin: Client) -> None:
    lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    assert statuses_of_lists(admin) == dict.fromkeys(LISTS, 200)


def test_one_gpu_is_taken_out_of_service_with_a_reason_and_returned(admin: Client) -> None:
    gpu = Gpu.objects.get(index=1)
    assert says(act(admin, "cluster_app_gpu", "cordon_gpus", gpu), "n1/1")
    act(admin, "cluster_app_gpu", "cordon_gpus", gpu, reason="bent connector")
    assert list(Gpu.objects.filter(healthy=False).values_list("index", "fault")) == [(1, "bent connector")]
    act(admin, "cluster_app_gpu", "return_gpus", gpu)
    assert not Gpu.objects.filter(healthy=False).exists()
    assert {"gpu.cordon", "gpu.return"} <= set(AuditEntry.objects.values_list("action", flat=True))


def test_users_without_staff_rights_are_sent_to_sign_in(lab: Lab, admin: Client) -> None:
    admin.force_login(lab.user("ada"))
    assert statuses_of_lists(admin) == dict.fromkeys(LISTS, 302)


# -- the inventory -----------------------------------------------------------------------------------------------


def test_a_node_is_added_with_its_gpus(admin: Client) -> None:
    kind = GpuType.objects.get()
    post(admin, reverse("admin:cluster_app_node_add"), gpu_type=kind.pk, gpu_count=4, **NODE, **EVENTS)
    assert Gpu.objects.filter(node__name="n2", present=True).count() == 4


def test_a_gpu_type_of_unknown_speed_is_added_as_its_form_says(admin: Client) -> None:
    data = {"name": "l4", "memory_mib": "24GiB", "tflops": "", "bandwidth_gbs": "", "power_w": 72}
    watts = {"idle_w_per_gpu": 100, "asleep_w_per_gpu": 2}
    post(admin, reverse("admin:cluster_app_gputype_add"), **data, **watts, price_per_hour=0, boot_s=300)
    assert GpuType.objects.get(name="l4").tflops is None


def test_a_node_that_was_added_takes_jobs(lab: Lab, admin: Client) -> None:
    kind = GpuType.objects.get()
    post(admin, reverse("admin:cluster_app_node_add"), gpu_type=kind.pk, gpu_count=4, **NODE, **EVENTS)
    lab.until_state(lab.submit(gpus=4), Job.State.SUCCEEDED)


def test_the_number_of_gpus_of_a_node_is_changed(admin: Client) -> None:
    node = Node.objects.get()
    changed = {
        "gpu_count": 1,
        "cpus": 64,
        "memory_mib": "1024MiB",
        "engine": "local",
        "labels": "{}",
        "capacity_type": "stable",
        "notice_s": 0,
        "lent_zone": "UTC",
    }
    post(admin, reverse("admin:cluster_app_node_change", args=[node.pk]), **changed, **EVENTS)
    assert Gpu.objects.present().count() == 1


def test_the_bandwidth_of_a_nodes_storage_is_entered(admin: Client) -> None:
    node = Node.objects.get()
    changed = {
        "gpu_count": 2,
        "cpus": 64,
        "memory_mib": "1024MiB",
        "storage_mib_s": 500,
        "engine": "local",
        "labels": "{}",
        "capacity_type": "stable",
        "notice_s": 0,
        "lent_zone": "UTC",
    }
    post(admin, reverse("admin:cluster_app_node_change", args=[node.pk]), **changed, **EVENTS)
    node.refresh_from_db()
    assert node.storage_mib_s == 500


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "Two Words"), ("cpus", 0), ("gpu_count", 65), ("memory_mib", 0), ("storage_mib_s", 0)],
)
def test_a_node_without_sense_is_refused(admin: Client, field: str, value: Any) -> None:
    data = {"gpu_type": GpuType.objects.get().pk, "gpu_count": 4, **NODE, **EVENTS, field: value}
    answer = post(admin, reverse("admin:cluster_app_node_add"), **data)
    assert says(answer, "Please correct")
    assert Node.objects.count() == 1


def test_a_node_is_cordoned_with_a_reason(admin: Client) -> None:
    act(admin, "cluster_app_node", "cordon_nodes", Node.objects.get(), reason="new driver")
    node = Node.objects.get()
    assert (node.state, node.reason) == (Node.State.CORDONED, "new driver")


def test_the_list_of_nodes_says_what_keeps_jobs_away_in_one_column(admin: Client) -> None:
    Node.objects.update(state=Node.State.CORDONED, reason="new driver", health=Node.Health.SUSPECT, emulated=True)
    assert says(admin.get(reverse("admin:cluster_app_node_changelist")), "cordoned, suspect, emulated: new driver")


def test_the_reason_is_asked_for(admin: Client) -> None:
    answer = act(admin, "cluster_app_node", "cordon_nodes", Node.objects.get())
    assert says(answer, 'name="reason"')
    assert Node.objects.get().state == Node.State.READY


def test_a_node_is_not_cordoned_without_a_reason(admin: Client) -> None:
    answer = act(admin, "cluster_app_node", "cordon_nodes", Node.objects.get(), reason=" ")
    assert says(answer, "Give a reason")
    assert Node.objects.get().state == Node.State.READY


def test_a_drained_node_is_resumed(admin: Client) -> None:
    act(admin, "cluster_app_node", "drain_nodes", Node.objects.get(), reason="new driver")
    act(admin, "cluster_app_node", "resume_nodes", Node.objects.get())
    assert Node.objects.get().state == Node.State.READY


# -- the policy --------------------------------------------------------------------------------------------------

TIMES = {"round_length_s": 5, "min_run_s": 10, "solve_limit_part": 0.5, "cpu_memory": "proportional"}
FIFO = {"policy": "fifo", "parameters": "{}", **TIMES, "note": "for a week"}


def test_a_policy_is_chosen(admin: Client) -> None:
    post(admin, reverse("admin:scheduler_app_policysetting_add"), **FIFO)
    current = PolicySetting.objects.current()
    assert (current.policy, str(current.created_by)) == ("fifo", "root")


@pytest.mark.parametrize("parameters", [f'{{"queues": {"9" * 5000}}}', "[" * 5000])
def test_parameters_that_no_program_could_read_are_a_fault_of_the_field(admin: Client, parameters: str) -> None:
    answer = admin.post(reverse("admin:scheduler_app_policysetting_add"), FIFO | {"parameters": parameters})
    assert (answer.status_code, b"errorlist" in answer.content) == (200, True)
    assert PolicySetting.objects.current().policy != "fifo"


def test_a_choice_is_undone_by_choosing_the_old_one_again(admin: Client) -> None:
    before = PolicySetting.objects.current()
    post(admin, reverse("admin:scheduler_app_policysetting_add"), **FIFO)
    act(admin, "scheduler_app_policysetting", "choose_again", before)
    assert PolicySetting.objects.current().policy == "max_min_fairness"


def test_history_stays_when_a_choice_is_undone(admin: Client) -> None:
    before = PolicySetting.objects.current()
    post(admin, reverse("admin:scheduler_app_policysetting_add"), **FIFO)
    act(admin, "scheduler_app_policysetting", "choose_again", before)
    policies = PolicySetting.objects.order_by("id").values_list("policy", flat=True)
    assert list(policies) == ["max_min_fairness", "fifo", "max_min_fairness"]


@pytest.mark.parametrize(
    ("field", "value"), [("policy", "best"), ("round_length_s", 0), ("min_run_s", -1), ("solve_limit_part", 2)]
)
def test_a_policy_without_sense_is_refused(admin: Client, field: str, value: Any) -> None:
    post(admin, reverse("admin:scheduler_app_policysetting_add"), **(FIFO | {field: value}))
    assert PolicySetting.objects.count() == 1


# -- tokens, teams and jobs --------------------------------------------------------------------------------------


def make_token(admin: Client, lab: Lab) -> Any:
    data = {"user": lab.user().pk, "name": "laptop", "scope": "submit", "expires_at_0": "", "expires_at_1": ""}
    return post(admin, reverse("admin:jobs_app_apitoken_add"), **data)


def test_the_text_of_a_new_token_is_shown(lab: Lab, admin: Client) -> None:
    answer = make_token(admin, lab)
    assert says(answer, ApiToken.objects.get().prefix)
    assert says(answer, "cannot be shown again")


def test_the_text_of_a_token_is_shown_once(lab: Lab, admin: Client) -> None:
    make_token(admin, lab)
    answer = admin.get(reverse("admin:jobs_app_apitoken_changelist"))
    assert not says(answer, "cannot be shown again")


def test_who_made_a_token_for_whom_is_on_the_audit_list(lab: Lab, admin: Client) -> None:
    make_token(admin, lab)
    entry = AuditEntry.objects.get(action="token.create")
    assert (entry.actor_name, entry.message) == ("root", "scope submit, as ada")


def test_a_token_is_not_changed(lab: Lab, admin: Client) -> None:
    make_token(admin, lab)
    address = reverse("admin:jobs_app_apitoken_change", args=[ApiToken.objects.get().pk])
    admin.post(address, {"user": lab.user("bob").pk, "name": "other", "scope": "admin"})
    assert (ApiToken.objects.get().user.username, ApiToken.objects.get().scope) == ("ada", "submit")


def test_a_token_is_revoked(lab: Lab, admin: Client) -> None:
    make_token(admin, lab)
    act(admin, "jobs_app_apitoken", "revoke", ApiToken.objects.get())
    assert ApiToken.objects.get().revoked_at is not None


def test_a_team_is_added_with_its_members(lab: Lab, admin: Client) -> None:
    team = {"name": "speech", "weight": 2, "max_job_weight": 4, "volunteers": "none", "members": [lab.user().pk]}
    post(admin, reverse("admin:jobs_app_team_add"), **team, **quota_forms())
    assert lab.submit(team="speech").team.name == "speech"
    assert not Budget.objects.exists()


def quota_forms(**first: Any) -> dict[str, Any]:
    """Forms of a team's budget, which is none, and of its quotas on GPU types: none, or one with these values."""
    no_budget = {"TOTAL_FORMS": 1, "INITIAL_FORMS": 0, "0-gpu_hours": "", "0-period": "month", "0-kind": "soft"}
    counts = {"quotas-TOTAL_FORMS": len(first) and 1, "quotas-INITIAL_FORMS": 0}
    return (
        {f"budget-{name}": value for name, value in no_budget.items()}
        | counts
        | {f"quotas-0-{name}": value for name, value in first.items()}
    )


def test_a_team_gets_a_quota_on_a_gpu_type(lab: Lab, admin: Client) -> None:
    team = {"name": "speech", "weight": 2, "max_job_weight": 4, "volunteers": "none"}
    quota = quota_forms(gpu_type=GpuType.objects.get().pk, gpus=2, borrowing_limit=0, lending_limit=1)
    post(admin, reverse("admin:jobs_app_team_add"), **team, **quota)
    assert [str(quota) for quota in TeamQuota.objects.all()] == ["2 a100 of speech"]


def test_quotas_on_more_gpus_than_there_are_are_told(lab: Lab, admin: Client) -> None:
    team = {"name": "speech", "weight": 2, "max_job_weight": 4, "volunteers": "none"}
    quota = quota_forms(gpu_type=GpuType.objects.get().pk, gpus=9)
    answer = post(admin, reverse("admin:jobs_app_team_add"), **team, **quota)
    assert says(answer, "The quotas on a100 add up to 9 GPUs, but there are 2")
    assert TeamQuota.objects.get().gpus == 9


def test_a_quota_that_lends_more_than_it_has_is_refused_with_a_remedy(lab: Lab, admin: Client) -> None:
    team = {"name": "speech", "weight": 2, "max_job_weight": 4, "volunteers": "none"}
    quota = quota_forms(gpu_type=GpuType.objects.get().pk, gpus=2, lending_limit=3)
    answer = admin.post(reverse("admin:jobs_app_team_add"), team | quota)
    assert "write a lending limit up to the quota" in answer.content.decode()
    assert not TeamQuota.objects.exists()


def test_a_second_quota_on_a_gpu_type_is_refused(lab: Lab, admin: Client) -> None:
    team = {"name": "speech", "weight": 2, "max_job_weight": 4, "volunteers": "none"}
    kind = GpuType.objects.get().pk
    two = quota_forms(gpu_type=kind, gpus=2) | {"quotas-1-gpu_type": kind, "quotas-1-gpus": 3, "quotas-TOTAL_FORMS": 2}
    answer = admin.post(reverse("admin:jobs_app_team_add"), team | two)
    assert "duplicate" in answer.content.decode()
    assert not TeamQuota.objects.exists()


def test_an_administrator_cancels_jobs(lab: Lab, admin: Client) -> None:
    job = lab.submit(UNTIL_LET_GO)
    act(admin, "jobs_app_job", "cancel", job)
    job.refresh_from_db()
    assert job.state == Job.State.CANCELLED


def test_a_permission_to_view_jobs_cancels_none(lab: Lab, admin: Client) -> None:
    job, viewer = lab.submit(UNTIL_LET_GO), lab.user("viewer")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
    admin.force_login(viewer)
    assert says(admin.get(reverse("admin:jobs_app_job_changelist")), str(job))
    act(admin, "jobs_app_job", "cancel", job)
    job.refresh_from_db()
    assert job.state == Job.State.QUEUED


def test_cancelling_a_finished_job_is_a_message(lab: Lab, admin: Client) -> None:
    job = lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    assert says(act(admin, "jobs_app_job", "cancel", job), "already succeeded")


def test_a_job_is_shown_with_its_attempts_and_history(lab: Lab, admin: Client) -> None:
    job = lab.until_state(lab.submit(), Job.State.SUCCEEDED)
    assert says(admin.get(reverse("admin:jobs_app_job_change", args=[job.pk])), "placed")


# -- machines that joined ----------------------------------------------------------------------------------------


def test_machines_are_listed_with_their_state_and_node_and_revoked(lab: Lab, admin: Client) -> None:
    desk = Played(lab)
    desk.sync()
    shown = admin.get(reverse("admin:connections_app_agent_changelist"))
    assert all(says(shown, words) for words in ("desk: ready", "connected"))
    act(admin, "connections_app_agent", "revoke", desk.agent)
    assert says(admin.get(reverse("admin:connections_app_agent_changelist")), "revoked")
    assert desk.post("sync", {}, desk.token) == 401
    assert AuditEntry.objects.get(action="token.revoke").actor_name == "root"


def test_whose_machine_it_is_is_changed_and_nothing_else(lab: Lab, admin: Client) -> None:
    agent, team = Played(lab).agent, lab.team("speech")
    post(admin, reverse("admin:connections_app_agent_change", args=[agent.pk]), team=team.pk, name="x", trusted="on")
    agent.refresh_from_db()
    assert (agent.team, agent.name, agent.revoked_at) == (team, "desk", None)


def test_a_permission_to_view_machines_revokes_none(lab: Lab, admin: Client) -> None:
    desk, viewer = Played(lab), lab.user("viewer")
    viewer.is_staff = True
    viewer.save()
    viewer.user_permissions.add(Permission.objects.get(codename="view_agent"))
    admin.force_login(viewer)
    act(admin, "connections_app_agent", "revoke", desk.agent)
    desk.agent.refresh_from_db()
    assert desk.agent.revoked_at is None


def test_the_list_of_machines_costs_as_many_queries_however_many_there_are(
    lab: Lab, admin: Client, django_assert_max_num_queries: Any
) -> None:
    address = reverse("admin:connections_app_agent_changelist")
    Played(lab)
    with django_assert_max_num_queries(30) as asked:
        admin.get(address)
    few = len(asked)
    for number in range(3):
        Played(lab, f"desk-{number}", joining=replace(JOINING, token=f"agent_{number}"))
    with django_assert_max_num_queries(few):
        assert says(admin.get(address), "desk-2")


# -- taking nodes out of service ---------------------------------------------------------------------------------


def test_before_a_drain_the_jobs_there_and_the_time_it_takes_are_said(lab: Lab, admin: Client) -> None:
    lab.running(lab.submit(UNTIL_LET_GO, checkpoint={"grace_seconds": 600, "restore_seconds": 0}))
    asked = act(admin, "cluster_app_node", "drain_nodes", Node.objects.get())
    assert says(asked, "1 job there; empty in about 10 min")


def test_a_cordon_waits_for_jobs_of_unknown_length(lab: Lab, admin: Client) -> None:
    lab.running(lab.submit(UNTIL_LET_GO))
    asked = act(admin, "cluster_app_node", "cordon_nodes", Node.objects.get())
    assert says(asked, "1 job there; end time unknown")


def test_the_cluster_page_says_that_a_drained_node_is_empty(lab: Lab, admin: Client) -> None:
    act(admin, "cluster_app_node", "drain_nodes", Node.objects.get(), reason="fan")
    assert says(admin.get(reverse("cluster")), "(no jobs there)")


def test_gpus_that_a_job_has_are_not_taken_out_of_their_node(lab: Lab, admin: Client) -> None:
    lab.running(lab.submit(UNTIL_LET_GO, gpus=2))
    changed = {
        "gpu_count": 1,
        "cpus": 64,
        "memory_mib": "1024MiB",
        "engine": "local",
        "labels": "{}",
        "capacity_type": "stable",
        "notice_s": 0,
        "lent_zone": "UTC",
    }
    answer = post(admin, reverse("admin:cluster_app_node_change", args=[Node.objects.get().pk]), **changed, **EVENTS)
    assert says(answer, "drain n1 first")


# -- parameters of policies --------------------------------------------------------------------------------------


@pytest.fixture
def tuned_policy(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    parametrised_policy.install(monkeypatch)


def choose(admin: Client, parameters: str = "{}", policy: str = parametrised_policy.NAME) -> Any:
    fields = {"policy": policy, "parameters": parameters, **TIMES}
    return post(admin, reverse("admin:scheduler_app_policysetting_add"), **fields)


@pytest.mark.usefixtures("tuned_policy")
def test_the_form_says_which_parameters_there_are(admin: Client) -> None:
    answer = admin.get(reverse("admin:scheduler_app_policysetting_add"))
    assert says(answer, "power, from -4 to 4; default -0.5 (how steep it is)")
    assert says(answer, "first, one of old, new; default old (who goes first)")


@pytest.mark.usefixtures("tuned_policy")
def test_parameters_are_chosen_in_the_administration(admin: Client) -> None:
    choose(admin, '{"power": 2}')
    assert PolicySetting.objects.current().parameters == parametrised_policy.DEFAULTS | {"power": 2.0}


@pytest.mark.usefixtures("tuned_policy")
def test_parameters_of_the_old_policy_are_dropped_with_it(admin: Client) -> None:
    choose(admin, '{"power": 2}')
    choose(admin, json.dumps(PolicySetting.objects.current().parameters), policy="max_min_fairness")
    current = PolicySetting.objects.current()
    assert (current.policy, current.parameters) == ("max_min_fairness", {})


@pytest.mark.usefixtures("tuned_policy")
@pytest.mark.parametrize(
    ("parameters", "fault"),
    [
        ('{"power": 9, "x": 1}', "power must be from -4 to 4."),
        ('{"x": 1}', "x is unknown: this policy has power, queues, strict, first."),
        ("[1]", "Write one name=value per line"),
    ],
)
def test_faulty_parameters_are_refused_with_their_names(admin: Client, parameters: str, fault: str) -> None:
    assert says(choose(admin, parameters), fault)
    assert PolicySetting.objects.count() == 1


def test_what_only_a_simulation_can_do_is_refused_in_the_administration(admin: Client) -> None:
    assert says(choose(admin, '{"packed": true}', policy="makespan"), "packed is for simulations only")
    assert PolicySetting.objects.count() == 1


def test_a_setting_of_a_policy_that_is_gone_cannot_be_chosen_again(admin: Client) -> None:
    gone, now = PolicySetting.objects.create(policy="lottery"), PolicySetting.objects.create()
    assert says(act(admin, "scheduler_app_policysetting", "choose_again", gone), "There is no policy")
    assert PolicySetting.objects.current() == now


# -- as people write it --------------------------------------------------------------------------------------------


def test_labels_and_memory_are_written_and_shown_as_people_write_them(admin: Client) -> None:
    kind = GpuType.objects.get()
    blank = admin.get(reverse("admin:cluster_app_node_add")).context["adminform"].form
    assert blank["labels"].value() == ""
    written = {**NODE, "memory_mib": "512 GiB", "labels": 'rack=b2\nrow=7\nzone="7"'}
    post(admin, reverse("admin:cluster_app_node_add"), gpu_type=kind.pk, gpu_count=4, **{**written, **EVENTS})
    node = Node.objects.get(name="n2")
    assert (node.memory_mib, node.labels) == (512 * 1024, {"rack": "b2", "row": 7, "zone": "7"})
    assert says(admin.get(reverse("admin:cluster_app_node_changelist")), "rack=b2, row=7, zone=&quot;7&quot;")
    form = admin.get(reverse("admin:cluster_app_node_change", args=[node.pk])).context["adminform"].form
    assert form["memory_mib"].value() == "512GiB"
    assert form["labels"].value() == written["labels"]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("memory_mib", "512", "Add the unit: 512GiB or 512MiB."),
        ("memory_mib", "much", "such as 512GiB"),
        ("memory_mib", "0", "Memory must be more than zero"),
        ("labels", "rack", "Write one key=value per line"),
        ("labels", "[1]", "Write one key=value per line"),
    ],
)
def test_what_cannot_be_read_is_said_at_the_field(admin: Client, field: str, value: str, fault: str) -> None:
    data = {"gpu_type": GpuType.objects.get().pk, "gpu_count": 4, **NODE, **EVENTS, field: value}
    assert says(post(admin, reverse("admin:cluster_app_node_add"), **data), fault)


def test_an_administrator_is_not_sent_to_an_administrator(admin: Client) -> None:
    refused = admin.get(reverse("admin:cluster_app_engine_delete", args=[Node.objects.get().engine.pk]))
    assert refused.status_code == 403
    assert says(refused, "Some lists in the administration are read-only for everybody")
    assert not says(refused, "Ask an administrator")


@pytest.mark.usefixtures("tuned_policy")
def test_parameters_are_written_as_lines(admin: Client) -> None:
    choose(admin, "power=3")
    assert PolicySetting.objects.current().parameters["power"] == 3.0
    assert says(admin.get(reverse("admin:scheduler_app_policysetting_changelist")), "power=3")


def test_an_account_with_a_history_is_deactivated_instead_of_deleted(lab: Lab, admin: Client) -> None:
    ada, new = lab.user(), lab.user("new")
    token = issue_token(ada, name="laptop", scope=ApiToken.Scope.SUBMIT)
    asked = admin.get(reverse("admin:auth_user_delete", args=[ada.pk]))
    assert says(asked, "1 API token refers to it")
    assert says(asked, "An account with a history is deactivated instead of deleted")
    assert with_token(token).get("/api/v1/me").status_code == 200
    assert says(act(admin, "auth_user", "deactivate", ada), "Deactivated: ada.")
    assert with_token(token).get("/api/v1/me").status_code == 401
    assert AuditEntry.objects.filter(action="admin.change", target="user ada", message="Active").exists()
    root = lab.user("root")
    assert says(act(admin, "auth_user", "deactivate", root), "Another administrator must deactivate your own account.")
    post(admin, reverse("admin:auth_user_delete", args=[new.pk]), post="yes")
    assert not User.objects.filter(pk=new.pk).exists()


def test_failed_sign_ins_are_one_list_and_members_are_searched(lab: Lab, admin: Client) -> None:
    index = admin.get(reverse("admin:index"))
    assert [says(index, f"/admin/axes/{name}/") for name in ("accessattempt", "accessfailurelog", "accesslog")] == [
        *(True, False, False)
    ]
    assert says(admin.get(reverse("admin:jobs_app_team_change", args=[lab.team().pk])), 'data-field-name="members"')
