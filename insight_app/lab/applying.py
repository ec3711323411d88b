"""Applying a policy from a run of the lab: its setting with the run's parameters, watched against the prediction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from insight_app.errors import CannotApply
from insight_app.lab.results import FAR_OFF
from insight_app.lab.scenario import cluster_words, read_node_gpus
from insight_app.models import LabRun, PolicyGuard
from insight_app.policy_effects.effects import spreads_before
from scheduler_app.errors import InvalidChoice
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import KEPT_FIELDS, MOST_NOTE, choose_policy, lock_settings
from simulation.scenario.setting import InvalidSetting, read_policy
from web.rest.errors import Fault, encodable

GUARD_H = 6.0
MOST_GUARD_H = 168.0
OLD = timedelta(days=2)


@dataclass(frozen=True, kw_only=True)
class Application:
    """Request to apply a policy of the run: its name there, the reason, and the time to watch its effects."""

    policy: str
    note: str = ""
    guard_hours: float = GUARD_H
    undo_by_itself: bool = False


@transaction.atomic
def apply_run(run: LabRun, asked: Application, *, actor: User, now: datetime) -> PolicyGuard:
    """Put the policy in force and watch its effects; raises CannotApply, or InvalidChoice with every fault."""
    spreads = spreads_before(now, longest_h=asked.guard_hours)
    predicted = prediction_of(run, asked.policy) | {"spreads": spreads}
    lock_settings()  # whose other fields stay
    setting = setting_of(run, asked.policy)
    setting.note = "; ".join(filter(None, (f"from run {run.pk} of the lab", asked.note)))[:MOST_NOTE]
    chosen = choose_policy(setting, actor=actor)
    return PolicyGuard.objects.create(
        setting=chosen,
        lab_run=run,
        predicted=predicted,
        until=chosen.created_at + timedelta(hours=asked.guard_hours),
        undo_by_itself=asked.undo_by_itself,
    )


def setting_of(run: LabRun, policy: str) -> PolicySetting:
    """The setting that the run simulated: the policy's parameters and the run's round length; the rest as it is."""
    row = result_of_policy(run, policy)
    current = PolicySetting.objects.current()
    kept = {name: getattr(current, name) for name in KEPT_FIELDS}
    return PolicySetting(
        policy=policy.partition(":")[0],
        parameters=_parameters_of(row),
        **kept | {"round_length_s": run.round_length_s or current.round_length_s},
    )


def _parameters_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were simulated; of a run of earlier versions, which did not keep them, those that its words name."""
    if "parameters" in row:
        return dict(row["parameters"])
    try:
        return read_policy(row["policy"])[1]
    except InvalidSetting as error:
        raise CannotApply(f"The policy that was simulated is there no more: {error}") from error


def result_of_policy(run: LabRun, policy: str) -> Mapping[str, Any]:
    """The policy's row of the result; raises CannotApply if there is none to rely on."""
    if run.state != LabRun.State.DONE or not run.result:
        raise CannotApply(f"Run {run.pk} is {run.get_state_display()}: only a finished run can be applied.")
    if not run.result["actual"]:
        raise CannotApply(f"Run {run.pk} simulated other jobs than this cluster's: choose the policy on its own.")
    rows: Sequence[Mapping[str, Any]] = run.result["policies"]
    row = next((row for row in rows if row["policy"] == policy), None)
    if row is None:
        known = ", ".join(row["policy"] for row in rows)
        detail = encodable(f"Run {run.pk} did not simulate {policy!r:.200}; it simulated: {known}.")
        raise InvalidChoice([Fault(pointer="/policy", code="invalid_choice", detail=detail)])
    if not row["figures"]:
        raise CannotApply(f"The simulation of {policy} failed, so that nothing is predicted: {row['failed']}")
    return row


def prediction_of(run: LabRun, policy: str) -> dict[str, Any]:
    """Prediction of the lab: figures of the policy, of the present one as simulated, and the actual ones."""
    row = result_of_policy(run, policy)
    result: Mapping[str, Any] = run.result or {}
    makespan_h = result["actual"]["makespan_h"]
    return {
        "policy": policy,
        "chosen": row["figures"],
        "present_policy": result["present"]["policy"],
        "present": result["present"]["figures"],
        "actual": result["actual"],
        "arrivals_per_h": result["jobs"] / makespan_h if makespan_h else None,
        "days": run.days,
        "jobs": result["jobs"],
    }


def applied_from(run: LabRun) -> PolicyGuard | None:
    """The newest setting that was chosen from the run, with its guard."""
    return run.guards.select_related("setting__created_by").order_by("-pk").first()


# -- why the result may not hold any more ------------------------------------------------------------------------


def cautions_on(run: LabRun, now: datetime) -> list[str]:
    """Why the prediction may not hold: the run is old or partial, or the cluster or the policy is another now."""
    return [*_of_run(run, now), *_of_cluster(run), *_of_setting(run)]


def _of_run(run: LabRun, now: datetime) -> Iterator[str]:
    result: Mapping[str, Any] = run.result or {}
    if run.finished_at and now - run.finished_at > OLD:
        yield f"The run is {(now - run.finished_at).days} days old: jobs submitted since then are not in it."
    if not run.owner.is_staff:
        yield f"It simulated only the jobs of the teams of {run.owner}: with all jobs waits are longer."
    if any("parameters" not in row for row in result["policies"]):
        yield "It does not tell all parameters with which it simulated: those not named get the defaults of today."
    error = result["present"]["errors"].get("avg_jct_h")
    if error is None or abs(error) > FAR_OFF:
        words = "how far it was off is not known" if error is None else f"it was {error:+.0%} off"
        yield f"Of the mean job completion time under the current policy {words}: do not rely on small differences."


def _of_cluster(run: LabRun) -> Iterator[str]:
    """The nodes of the simulation are those of the cluster, unless the run changed them."""
    if run.nodes:
        changes = ", ".join(f"{name} {change:+d}" for name, change in run.nodes.items())
        yield f"It simulated the cluster with other nodes ({changes}): on those that there are its figures do not hold."
        return
    now, then = cluster_words(read_node_gpus()), (run.result or {})["cluster"]
    if now != then:
        yield f"The cluster has changed: it was {then}, and is now {now}."


def _of_setting(run: LabRun) -> Iterator[str]:
    current = PolicySetting.objects.select_related("created_by").current()
    if current.pk and current.created_at > run.created_at:
        whom = current.created_by or "the service"
        yield (
            f"The setting has been changed since the run was asked for: {whom} chose {current.policy} "
            f"at {current.created_at:%F %H:%M} UTC."
        )
