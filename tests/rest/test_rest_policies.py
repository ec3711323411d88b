"""Policies over REST: which there are, which counts, choosing and undoing; and rounds with their decisions."""

from datetime import timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from allocation.policies import POLICIES
from allocation.rounds.mechanism import RESET_ROUNDS
from audit_app.models import AuditEntry
from jobs_app.models import Job
from scheduler_app.models import PolicySetting, Round
from scheduler_app.round.replay import replay_round
from tests import parametrised_policy
from tests.rest_callers import Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab

CURRENT = "/api/v1/policies/current"


def test_every_policy_is_listed_with_what_it_does(ada: APIClient) -> None:
    listed = ada.get("/api/v1/policies").json()["results"]
    assert [policy["name"] for policy in listed] == list(POLICIES)
    assert all(policy["summary"].endswith(".") for policy in listed)
    assert [policy["name"] for policy in listed if policy["current"]] == ["max_min_fairness"]


def test_the_setting_that_counts(ada: APIClient) -> None:
    setting = ada.get(CURRENT).json()
    assert (setting["policy"], setting["round_length_s"], setting["min_run_s"]) == ("max_min_fairness", 1.0, 0.0)


def test_before_the_first_choice_the_defaults_count(ada: APIClient) -> None:
    PolicySetting.objects.all().delete()
    setting = ada.get(CURRENT).json()
    assert (setting["policy"], setting["id"], setting["created_at"]) == ("motley", None, None)


def test_staff_choose(root: APIClient) -> None:
    answer = root.put(CURRENT, {"policy": "fifo", "round_length_s": 30, "note": "for a demo"}, format="json")
    assert (answer.status_code, answer.json()["policy"]) == (200, "fifo")
    setting = root.get(CURRENT).json()
    assert (setting["round_length_s"], setting["min_run_s"], setting["created_by"]) == (30.0, 0.0, "root")
    assert AuditEntry.objects.filter(action="policy.choose", actor_name="root", message="for a demo").exists()


def test_the_time_limit_stays_until_another_is_chosen(root: APIClient) -> None:
    root.put(CURRENT, {"policy": "fifo", "solve_limit_part": 0.2}, format="json")
    root.put(CURRENT, {"policy": "srtf"}, format="json")
    assert root.get(CURRENT).json()["solve_limit_part"] == 0.2


def test_how_cpus_and_memory_are_shared_stays_until_another_rule_is_chosen(root: APIClient) -> None:
    assert root.get(CURRENT).json()["cpu_memory"] == "proportional"
    root.put(CURRENT, {"policy": "fifo", "cpu_memory": "tune"}, format="json")
    root.put(CURRENT, {"policy": "srtf"}, format="json")
    assert root.get(CURRENT).json()["cpu_memory"] == "tune"


def test_others_may_not_choose_a_policy(cluster: Lab, ada: APIClient) -> None:
    staff = cluster.user("rosa", "admins", staff=True)
    for client in (ada, caller(cluster.user(), Scope.ADMIN), caller(staff, Scope.SUBMIT)):
        assert client.put(CURRENT, {"policy": "fifo"}, format="json").status_code == 403


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/policy"),
        ({"policy": "lottery"}, "/policy"),
        ({"policy": "fifo", "round_length_s": 0.5}, "/round_length_s"),
        ({"policy": "fifo", "round_length_s": "NaN"}, "/round_length_s"),
        ({"policy": "fifo", "min_run_s": -1}, "/min_run_s"),
        ({"policy": "fifo", "min_run_s": 1e300}, "/min_run_s"),
        ({"policy": "fifo", "solve_limit_part": 0}, "/solve_limit_part"),
        ({"policy": "fifo", "solve_limit_part": 1.5}, "/solve_limit_part"),
        ({"policy": "fifo", "cpu_memory": "opt"}, "/cpu_memory"),
        ({"policy": "fifo", "parameters": {"p": -0.5}}, "/parameters/p"),
        ({"policy": "fifo", "parameters": []}, "/parameters"),
        ({"policy": "fifo", "weight": 1}, "/weight"),
    ],
)
def test_what_is_wrong_is_pointed_at(root: APIClient, body: dict[str, object], pointer: str) -> None:
    answer = root.put(CURRENT, body, format="json")
    assert (answer.status_code, [fault["pointer"] for fault in answer.json()["errors"]]) == (422, [pointer])


# -- parameters --------------------------------------------------------------------------------------------------


@pytest.fixture
def tuned_policy(cluster: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    parametrised_policy.install(monkeypatch)


def choose(root: APIClient, policy: str = parametrised_policy.NAME, **body: Any) -> Any:
    answer = root.put(CURRENT, {"policy": policy, **body}, format="json")
    assert answer.status_code == 200, answer.json()
    return answer.json()


def taken(kind: str, default: Any, meaning: str, **limits: Any) -> dict[str, Any]:
    nothing = {"least": None, "most": None, "names": None}
    return {"kind": kind, "default": default, "meaning": meaning} | nothing | limits


@pytest.mark.usefixtures("tuned_policy")
def test_the_list_says_of_each_parameter_what_it_takes(ada: APIClient) -> None:
    listed = {policy["name"]: policy for policy in ada.get("/api/v1/policies").json()["results"]}[
        parametrised_policy.NAME
    ]
    assert listed["choose_when"] == "Choose it when nothing else will do."
    assert listed["parameters"] == {
        "power": taken("number", -0.5, "how steep it is", least=-4.0, most=4.0),
        "queues": taken("whole number", 3, "how many there are", least=1.0, most=9.0),
        "strict": taken("on or off", False, "no mercy"),
        "first": taken("one of", "old", "who goes first", names=["old", "new"]),
    }


@pytest.mark.usefixtures("tuned_policy")
def test_parameters_that_are_not_named_have_their_defaults(root: APIClient) -> None:
    assert choose(root, parameters={"power": 2})["parameters"] == parametrised_policy.DEFAULTS | {"power": 2.0}
    assert choose(root, parameters={"strict": True})["parameters"] == parametrised_policy.DEFAULTS | {"strict": True}


@pytest.mark.usefixtures("tuned_policy")
def test_parameters_stay_with_their_policy(root: APIClient) -> None:
    choose(root, parameters={"power": 2})
    assert choose(root, round_length_s=30)["parameters"]["power"] == 2
    assert choose(root, "max_min_fairness")["parameters"] == {}
    assert choose(root)["parameters"] == parametrised_policy.DEFAULTS


@pytest.mark.usefixtures("tuned_policy")
def test_every_faulty_parameter_is_pointed_at(root: APIClient) -> None:
    parameters = {"power": 5, "queues": 2.5, "strict": "yes", "first": "oldest", "powr": 1, "a/b": 10**400}
    body = {"policy": parametrised_policy.NAME, "parameters": parameters, "min_run_s": -1}
    faults = {f["pointer"]: f["detail"] for f in root.put(CURRENT, body, format="json").json()["errors"]}
    of_strangers = "is unknown: this policy has power, queues, strict, first."
    assert faults == {
        "/parameters/power": "power must be from -4 to 4.",
        "/parameters/queues": "queues must be a whole number.",
        "/parameters/strict": "strict must be true or false.",
        "/parameters/first": "first must be one of old, new.",
        "/parameters/powr": f"powr {of_strangers}",
        "/parameters/a~1b": f"a/b {of_strangers}",
        "/min_run_s": "Ensure this value is greater than or equal to 0.",
    }


@pytest.mark.parametrize("policy", ["max_min_fairness", "finish_time_fairness", "makespan"])
@pytest.mark.parametrize("value", [True, False, "yes"])
def test_what_only_a_simulation_can_do_is_not_offered_and_refused_with_a_way_out(
    root: APIClient, policy: str, value: Any
) -> None:
    answer = root.put(CURRENT, {"policy": policy, "parameters": {"packed": value}}, format="json")
    assert answer.status_code == 422
    assert {fault["pointer"]: fault["detail"] for fault in answer.json()["errors"]} == {
        "/parameters/packed": "packed is for simulations only, because a GPU of the service belongs to "
        "one job at a time. "
        f"Leave it out, or try it with `motley simulate run … --policy {policy}:packed=true`."
    }
    listed = {each["name"]: each["parameters"] for each in root.get("/api/v1/policies").json()["results"]}
    assert listed[policy] == {}
    assert choose(root, policy)["parameters"] == {}


@pytest.mark.usefixtures("tuned_policy")
@pytest.mark.parametrize("value", [10**400, -(10**400), None, [], {}, "NaN"])
def test_what_is_no_number_of_this_world_is_refused(root: APIClient, value: Any) -> None:
    answer = root.put(CURRENT, {"policy": parametrised_policy.NAME, "parameters": {"queues": value}}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/parameters/queues")


@pytest.mark.usefixtures("tuned_policy")
def test_a_setting_comes_back_with_its_parameters(root: APIClient) -> None:
    chosen = choose(root, parameters={"power": 2})
    choose(root, "max_min_fairness")
    again = root.post(f"/api/v1/policies/history/{chosen['id']}/choose").json()
    assert (again["policy"], again["parameters"]["power"]) == (parametrised_policy.NAME, 2.0)


def test_a_setting_whose_parameters_are_gone_is_not_chosen_again(
    root: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as installed:
        parametrised_policy.install(installed)
        chosen = choose(root, parameters={"power": 2})
        choose(root, "max_min_fairness")
    answer = root.post(f"/api/v1/policies/history/{chosen['id']}/choose")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_choice")
    faults = {error["pointer"]: error["detail"] for error in answer.json()["errors"]}  # in the database's order
    assert faults["/parameters/power"] == "power is unknown: this policy has no parameters."
    assert root.get(CURRENT).json()["policy"] == "max_min_fairness"


def test_a_setting_whose_policy_is_gone_is_not_chosen_again(root: APIClient) -> None:
    gone = PolicySetting.objects.create(policy="lottery")
    answer = root.post(f"/api/v1/policies/history/{gone.pk}/choose")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/policy")


@pytest.mark.usefixtures("tuned_policy")
def test_the_audit_list_says_which_parameters_were_chosen(root: APIClient) -> None:
    choose(root, parameters={"power": 2}, note="to compare")
    said = AuditEntry.objects.get(action="policy.choose", actor_name="root").message
    assert said == "power=2.0, queues=3, strict=false, first=old; to compare"


def test_an_opened_round_of_a_queue_names_the_job_that_stood_before(cluster: Lab, ada: APIClient) -> None:
    """What a policy alone knows is kept with the round."""
    cluster.policy("fifo")
    cluster.submit(UNTIL_LET_GO, gpus=3, name="first")
    cluster.submit(gpus=2, name="second")
    cluster.submit(gpus=2, name="third")
    cluster.tick()
    decisions = ada.get(f"/api/v1/rounds/{Round.objects.get().number}/decisions").json()["results"]
    assert "It is queued behind second." in [reason["detail"] for reason in decisions[2]["reasons"]]


@pytest.mark.usefixtures("tuned_policy")
def test_a_round_keeps_the_parameters_that_it_was_decided_with(cluster: Lab, root: APIClient) -> None:
    cluster.policy(parametrised_policy.NAME, power=2)
    cluster.submit()
    cluster.tick()
    number = Round.objects.get().number
    assert root.get(f"/api/v1/rounds/{number}").json()["parameters"] == parametrised_policy.DEFAULTS | {"power": 2.0}
    cluster.policy(parametrised_policy.NAME, power=3)
    archived, _, equal = replay_round(number)
    assert (archived.parameters["power"], equal) == (2.0, True)


@pytest.mark.usefixtures("tuned_policy")
def test_other_parameters_are_reason_enough_to_count_time_received_anew(cluster: Lab) -> None:
    cluster.policy(parametrised_policy.NAME, power=2)
    cluster.tick()
    since = Round.objects.get().shares_since
    cluster.policy(parametrised_policy.NAME, power=3)
    cluster.ahead += RESET_ROUNDS * timedelta(seconds=1)
    cluster.round()
    assert Round.objects.latest("number").shares_since > since


# -- going back --------------------------------------------------------------------------------------------------


def test_a_choice_based_on_an_outdated_setting_is_refused(root: APIClient) -> None:
    seen = root.get(CURRENT)["ETag"]
    root.put(CURRENT, {"policy": "fifo"}, format="json")
    answer = root.put(CURRENT, {"policy": "fifo"}, format="json", headers={"if-match": seen})
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")


def test_an_old_setting_is_chosen_again(root: APIClient) -> None:
    root.put(CURRENT, {"policy": "fifo"}, format="json")
    first = root.get("/api/v1/policies/history").json()["results"][-1]
    answer = root.post(f"/api/v1/policies/history/{first['id']}/choose")
    assert (answer.status_code, answer.json()["policy"]) == (201, "max_min_fairness")
    assert answer.json()["note"].startswith("back to the setting of")
    assert root.get(CURRENT).json()["policy"] == "max_min_fairness"


def test_one_that_never_was_is_not_found(root: APIClient) -> None:
    assert root.post("/api/v1/policies/history/999/choose").status_code == 404


# -- rounds ------------------------------------------------------------------------------------------------------


@pytest.fixture
def decided(cluster: Lab) -> list[Job]:
    """Six jobs for four GPUs, and one of another team among them."""
    jobs = [cluster.submit() for _ in range(3)]
    cluster.submit(owner=cluster.user("eve", "language"))
    jobs += [cluster.submit() for _ in range(2)]
    cluster.decide()
    return jobs


def walked(client: APIClient, route: str, limit: int) -> list[str]:
    found: list[str] = []
    cursor = ""
    while cursor is not None:
        page = client.get(f"{route}?limit={limit}" + (f"&cursor={cursor}" if cursor else "")).json()
        assert len(page["results"]) <= limit
        found += [decision["job"] for decision in page["results"]]
        cursor = page["next"]
    return found


@pytest.mark.parametrize("limit", [1, 2, 5, 200])
def test_decisions_are_read_page_by_page_without_those_of_other_teams(
    decided: list[Job], ada: APIClient, limit: int
) -> None:
    number = Round.objects.get().number
    assert walked(ada, f"/api/v1/rounds/{number}/decisions", limit) == [str(job.pk) for job in decided]


def test_staff_read_all(decided: list[Job], root: APIClient) -> None:
    assert len(walked(root, f"/api/v1/rounds/{Round.objects.get().number}/decisions", 4)) == 6


def test_a_round_is_opened_with_its_decisions(decided: list[Job], ada: APIClient) -> None:
    decisions = ada.get(f"/api/v1/rounds/{Round.objects.get().number}").json()["decisions"]
    assert [decision["job"] for decision in decisions] == [str(job.pk) for job in decided]
    assert set(decisions[0]) == {"job", "gpu_type", "gpus", "share", "reasons"}


def test_past_rounds_say_too_why_a_job_was_left_waiting(cluster: Lab, decided: list[Job], ada: APIClient) -> None:
    number, said = Round.objects.get().number, {str(job.pk): job.reasons for job in Job.objects.queued()}
    cluster.policy("fifo")
    cluster.round()
    decisions = ada.get(f"/api/v1/rounds/{number}/decisions").json()["results"]
    waiting = [decision for decision in decisions if not decision["gpus"]]
    assert waiting
    assert [decision["reasons"] for decision in waiting] == [said[decision["job"]] for decision in waiting]


@pytest.mark.parametrize(
    ("asked", "pointer"), [("cursor=x", "/cursor"), ("limit=0", "/limit"), ("fields=x", "/fields")]
)
def test_what_no_page_can_be_is_refused(decided: list[Job], ada: APIClient, asked: str, pointer: str) -> None:
    answer = ada.get(f"/api/v1/rounds/{Round.objects.get().number}/decisions?{asked}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, pointer)


def test_the_decisions_of_no_round_are_not_found(ada: APIClient) -> None:
    assert ada.get("/api/v1/rounds/999/decisions").status_code == 404
