"""The policies `motley` and `motley_static`: what names them from before they were called so says what it said."""

from datetime import timedelta
from importlib import import_module

from django.apps import apps

from insight_app.models import LabRun, PolicyGuard
from scheduler_app.models import PolicySetting, Round
from scheduler_app.policy.settings import restore_policy
from scheduler_app.round.archive import archive_of, pack
from scheduler_app.round.replay import replay_round
from tests.service_lab import Lab


def migrate(function: str) -> None:
    for name in ("scheduler_app.migrations.0002_motley_plans", "insight_app.migrations.0005_motley_plans"):
        getattr(import_module(name), function)(apps, None)


def test_settings_and_rounds_are_renamed_and_an_archived_round_is_still_replayed(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    lab.policy("motley_static", short_first=0.5)
    lab.submit()
    lab.decide()
    [record] = Round.objects.all()
    decided = archive_of(record)
    assert decided is not None
    written = pack("motley", decided.parameters, decided.snapshot, decided.plan)  # as it was called then
    migrate("rename_back")
    Round.objects.update(archive=written, started_at=record.started_at - timedelta(seconds=1))  # read anew
    assert PolicySetting.objects.current().policy == Round.objects.get().policy == "motley"
    migrate("rename")
    record = Round.objects.get()
    current = PolicySetting.objects.current()
    assert (current.policy, current.parameters["short_first"], record.policy) == ("motley_static", 0.5, "motley_static")
    archived, _, same = replay_round(record.number)
    assert (archived.policy, same) == ("motley_static", True)


def test_a_setting_loses_the_parameter_that_its_policy_no_longer_has(lab: Lab) -> None:
    lab.policy("motley", lateness=3)
    current = PolicySetting.objects.current()
    current.parameters["power"] = 1.25
    current.save()
    lab.policy("sia", power=-0.25)
    import_module("scheduler_app.migrations.0004_motley_without_power").drop_power(apps, None)
    current.refresh_from_db()
    restore_policy(current, actor=None)
    assert PolicySetting.objects.current().parameters["lateness"] == 3
    assert PolicySetting.objects.get(policy="sia").parameters["power"] == -0.25


def test_runs_of_the_lab_and_what_they_predicted_are_renamed(lab: Lab) -> None:
    rows = [{"policy": "motley:short_first=0.5"}, {"policy": "motley_plan"}, {"policy": "sia"}]
    summary = "motley_plan has the least mean JCT, 17% less than with the current policy, motley."
    result = {"present": {"policy": "motley"}, "policies": rows, "summary": summary}
    names = [row["policy"] for row in rows]
    run = LabRun.objects.create(owner=lab.user("ann"), days=7, policies=names, result=result)
    lab.policy("motley")
    predicted = {"policy": "motley_plan", "present_policy": "motley", "chosen": {}}
    PolicyGuard.objects.create(
        setting=PolicySetting.objects.current(), predicted=predicted, until=lab.now + timedelta(hours=1)
    )
    migrate("rename")
    run.refresh_from_db()
    assert run.policies == ["motley_static:short_first=0.5", "motley", "sia"]
    assert [row["policy"] for row in run.result["policies"]] == run.policies
    assert run.result["present"]["policy"] == "motley_static"
    assert (
        run.result["summary"] == "motley has the least mean JCT, 17% less than with the current policy, motley_static."
    )
    assert PolicyGuard.objects.get().predicted == {"policy": "motley", "present_policy": "motley_static", "chosen": {}}
