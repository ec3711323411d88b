"""The Python client and the real service."""

from collections.abc import Iterator

import pytest

from jobs_app.models import ApiToken, Job
from motley_client import Client
from motley_client.errors import AuthError, Conflict, InvalidRequest, NotFound
from tests.live_service import Live

SPEC = {"name": "resnet", "command": ["python", "train.py"], "gpus": 2}
State = Job.State


@pytest.fixture
def root(service: Live) -> Iterator[Client]:
    """An administrator's."""
    with Client(service.url, service.staff_token) as client:
        yield client


# -- jobs --------------------------------------------------------------------------------------------------------


def test_submit_answers_the_job(client: Client) -> None:
    job = client.submit(SPEC)
    assert (job["name"], job["state"], job["spec"]["command"]) == ("resnet", "queued", ["python", "train.py"])


def test_the_same_key_makes_one_job(service: Live, client: Client) -> None:
    first, second = (client.submit(SPEC, idempotency_key="again") for _ in range(2))
    assert (first["id"], len(service.jobs)) == (second["id"], 1)


def test_many_are_submitted_at_once_and_may_wait_for_each_other(service: Live, client: Client) -> None:
    ids = client.submit_many([SPEC, {**SPEC, "name": "test", "after": [{"job": "#0"}]}])
    assert ids == service.ids("resnet", "test")
    assert client.job(ids[1])["spec"]["after"] == [{"job": ids[0], "on": "success"}]


def test_of_many_with_a_fault_none_is_submitted(service: Live, client: Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.submit_many([SPEC, {**SPEC, "gpus": 0}])
    assert ([fault.pointer for fault in caught.value.errors], service.jobs) == (["/jobs/1/gpus"], [])


def test_an_invalid_job_says_what_is_wrong_with_each_field(client: Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.submit({**SPEC, "gpus": 0, "colour": "red"})
    assert {error.pointer for error in caught.value.errors} == {"/gpus", "/colour"}
    assert caught.value.request_id


def test_a_plan_says_where_a_job_could_run_and_submits_nothing(service: Live, client: Client) -> None:
    plan = client.plan({**SPEC, "rates": {"a100": 10}, "total_steps": 36_000})
    (option,) = plan["options"]
    assert (option["gpu_type"], option["rate"], option["source"], option["run_seconds"]) == (
        "a100",
        10,
        "declared",
        3600,
    )
    assert (option["can_start_now"], option["preferred"], service.jobs) == (True, True, [])


def test_jobs_goes_through_all_pages(service: Live, client: Client) -> None:
    for number in range(5):
        service.add(f"job-{number}")
    assert [job["name"] for job in client.jobs(page_size=2)] == ["job-4", "job-3", "job-2", "job-1", "job-0"]


def test_jobs_are_found_by_what_is_known_of_them(service: Live, client: Client) -> None:
    service.add("old", state=State.FAILED)
    service.add("resnet", tags={"sweep": "1"})
    service.add("bert", tags={"sweep": "2"})

    def names(**filters: object) -> list[str]:
        return [job["name"] for job in client.jobs(**filters)]  # type: ignore[arg-type]

    assert names(state=["failed"]) == ["old"]
    assert names(tag=["sweep"]) == ["bert", "resnet"]
    assert names(tag=["sweep=1"]) == ["resnet"]
    assert names(q="res") == ["resnet"]
    assert names(owner="ada", team="vision", q="bert") == ["bert"]
    assert names(created_after=service.jobs[0].created_at) == []


def test_only_the_fields_that_are_asked_for_are_sent(service: Live, client: Client) -> None:
    service.add("a")
    assert [list(job) for job in client.jobs(fields=["id", "state"])] == [["id", "state"]]


def test_an_id_cannot_lead_to_another_address(client: Client) -> None:
    with pytest.raises(NotFound):
        client.job("../nodes?x=")


def test_a_job_is_held_released_and_cancelled(service: Live, client: Client) -> None:
    job = str(service.add().pk)
    assert client.hold(job)["held"] is True
    assert client.release(job)["held"] is False
    assert client.cancel(job)["state"] == "cancelled"
    with pytest.raises(Conflict):
        client.cancel(job)


def test_a_clone_differs_where_it_should(service: Live, client: Client) -> None:
    job = client.clone(str(service.add("a", gpus=1).pk), {"gpus": 4})
    assert (job["name"], job["spec"]["gpus"]) == ("a", 4)


def test_a_change_of_an_outdated_job_is_a_conflict(service: Live, client: Client) -> None:
    seen = client.job(str(service.add().pk))
    assert client.change(seen["id"], {"name": "b"}, if_match=seen["etag"])["name"] == "b"
    with pytest.raises(Conflict) as caught:
        client.change(seen["id"], {"name": "c"}, if_match=seen["etag"])
    assert caught.value.code == "stale"


def test_a_job_says_what_happened_to_it(service: Live, client: Client) -> None:
    job = service.add()
    service.attempt(job)
    client.change(str(job.pk), {"name": "b"})
    assert "changed" in [event["kind"] for event in client.events(str(job.pk))]
    assert [attempt["number"] for attempt in client.attempts(str(job.pk))] == [1]


def test_a_job_explains_why_it_waits(service: Live, client: Client) -> None:
    job = service.add(gpus=4, gpu_types=["a100"])
    service.lab.node("n2", gpus=8)
    service.lab.submit(gpus=8)
    service.lab.round()
    explanation = client.explain(str(job.pk))
    assert explanation["state"] in {"queued", "starting"}
    assert {used["gpu_type"] for used in explanation["rates_used"]} == {"a100"}


def test_logs_are_read_in_parts_to_the_end(service: Live, client: Client) -> None:
    job = service.add(command="seq 1 20000")
    service.lab.until_state(job, State.SUCCEEDED)
    whole = "".join(f"{number}\n" for number in range(1, 20001)).encode()
    assert b"".join(client.read_logs(str(job.pk))) == whole
    assert b"".join(client.follow_logs(str(job.pk))) == whole
    assert b"".join(client.read_logs(str(job.pk), tail=2)) == b"19999\n20000\n"
    assert client.logs(str(job.pk), offset=4).data.startswith(b"3\n4\n")


def test_wait_answers_the_finished_job(service: Live, client: Client) -> None:
    job = service.add()
    assert client.wait(str(job.pk), on_poll=lambda job: client.cancel(job["id"]))["state"] == "cancelled"


# -- the cluster and its shares ----------------------------------------------------------------------------------


def test_nodes_are_taken_out_of_service_and_back(service: Live, root: Client) -> None:
    assert [node["name"] for node in root.nodes(gpu_type="a100")] == ["n1"]
    assert root.cordon("n1", reason="new fan")["state"] == "cordoned"
    drained = root.drain("n1", reason="new fan")
    assert (drained["state"], drained["reason"], drained["empty"]) == ("draining", "new fan", True)
    assert root.resume("n1")["state"] == root.node("n1")["state"] == "ready"


def test_only_an_administrator_drains_a_node(client: Client) -> None:
    with pytest.raises(AuthError):
        client.drain("n1", reason="why not")


def test_gpu_types_and_teams_say_what_there_is(service: Live, client: Client) -> None:
    (kind,) = client.gpu_types()
    assert (kind["name"], kind["gpus"], client.gpu_type("a100")["free_gpus"]) == ("a100", 4, 4)
    (team,) = client.teams()
    assert (team["name"], team["members"], client.team("vision")["gpus_in_use"]) == ("vision", ["ada"], 0)
    assert team["share"].keys() == {"window_seconds", "entitled", "delivered", "backlog_gpu_hours"}


def test_rounds_list_the_gpus_of_each_job(service: Live, client: Client) -> None:
    job = service.add()
    service.lab.round()
    latest = next(client.rounds())
    (given,) = client.round(latest["number"])["decisions"]
    assert (given["job"], given["gpu_type"], given["gpus"]) == (str(job.pk), "a100", 1)
    assert [decision["job"] for decision in client.decisions(latest["number"])] == [str(job.pk)]


def test_a_policy_is_chosen_and_the_choice_undone(service: Live, root: Client) -> None:
    before = root.current_policy()
    chosen = root.choose_policy("fifo", round_length_s=30, note="to compare")
    assert (chosen["policy"], chosen["round_length_s"], chosen["created_by"]) == ("fifo", 30, "root")
    assert {policy["name"]: policy["current"] for policy in root.policies()}["fifo"] is True
    assert next(root.policy_history())["id"] == chosen["id"]
    assert before["id"] is not None
    assert root.choose_policy_again(before["id"])["policy"] == before["policy"]


def test_measured_rates_are_told(service: Live, client: Client) -> None:
    assert list(client.throughputs(gpu_type="a100")) == []


def test_engines_timeline_accuracy_and_tables_of_usage_are_told(service: Live, client: Client) -> None:
    (engine,) = client.engines()
    assert client.engine(engine["name"]) == engine
    assert [gpu["index"] for gpu in client.node_gpus("n1")["gpus"]] == [0, 1, 2, 3]
    assert (client.timeline(window="1h")["runs"], list(client.announcements())) == ([], [])
    assert client.estimates()["duration_model"] is None
    assert (client.forecast_accuracy(), client.forecast_accuracy_of_teams()) == ([], [])
    assert client.deadline_accuracy()["outcomes"] == 0
    assert [(kind["gpu_type"], kind["used"]) for kind in client.energy()["types"]] == [("a100", 0)]
    assert client.usage_csv(by="day").count(b"\n") == client.usage_csv(by="month").count(b"\n") == 1
    assert client.report_csv().startswith(b"month,team,")


# -- the caller --------------------------------------------------------------------------------------------------


def test_me_names_the_user_and_the_scope_of_the_token(service: Live, client: Client) -> None:
    me = client.me()
    assert (me["username"], me["teams"], me["scope"]) == ("ada", ["vision"], "submit")
    assert me["token"]
    assert service.token.startswith(me["token"])


def test_a_token_is_made_used_and_revoked(service: Live, client: Client) -> None:
    made = client.create_token("CI", scope="read", expires_in="30d")
    with Client(service.url, made["token"]) as reader:
        assert reader.me()["scope"] == "read"
        with pytest.raises(AuthError):
            reader.submit(SPEC)
        client.revoke_token(made["id"])
        with pytest.raises(AuthError):
            reader.me()
    assert client.token(made["id"])["revoked_at"]
    assert made["id"] in [token["id"] for token in client.tokens()]


def test_a_token_makes_none_that_may_more_than_itself(client: Client) -> None:
    with pytest.raises(AuthError):
        client.create_token("wide", scope=ApiToken.Scope.ADMIN)
