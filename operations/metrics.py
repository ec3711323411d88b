"""Prometheus metrics, computed from the database, so that every process answers the same.

Unfinished jobs are counted through an index, finished ones come from running totals: a million finished jobs cost
nothing. No label is a user, nor a job, because their number is unbounded; only the readings of GPUs, of which there are
as many as GPUs, name the job that holds the GPU.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Min, Q
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from accounting_app.durations.accuracy import judge_forecasts
from accounting_app.durations.rate_accuracy import judge_rates
from accounting_app.fairness.budgets import read_budgets
from accounting_app.fairness.usage_ledger import team_shares
from accounting_app.gpu_watch.history import GpuNow, gpus_now
from allocation.decision import Status
from cluster_app.models import Engine, Gpu
from insight_app.gpu_occupancy import CONDITIONS, gpu_counts
from insight_app.models import PolicyGuard
from jobs_app.measurement.counters import BOUNDS, REST, SUM, Sums, totals
from jobs_app.models import Attempt, Job, Metric, Notification, Reason
from operations.health import scheduler_health
from scheduler_app.models import Round, SetAside

SHARES_OVER = timedelta(hours=1)
HISTOGRAMS = {
    Metric.JOB_WAIT: "Seconds from submission, or a later begin time, to the first start.",
    Metric.ROUND_TIME: "Seconds of a round, from its snapshot to its commit.",
    Metric.SOLVER_TIME: "Seconds that a round's policy took to decide.",
    Metric.FINISH_TIME_FAIRNESS: "Finish-time fairness (rho) of jobs that succeeded.",
}


class MetricsCollector(Collector):
    """Collects all metrics when they are scraped."""

    def describe(self) -> list[Family]:
        return []  # otherwise registering collects everything once

    def collect(self) -> Iterator[Family]:
        now, added_up = timezone.now(), totals()
        yield _jobs(added_up)
        yield _pending()
        yield _gpus()
        yield _slow_gpus()
        yield from _gpu_readings(now)
        yield _engines()
        yield from _rounds(added_up, now)
        yield _set_aside()
        yield from _preemptions(added_up)
        yield from (_histogram(metric, words, added_up) for metric, words in HISTOGRAMS.items())
        yield from _shares(now)
        yield from _budgets(now)
        yield from _forecasts()
        yield from _rate_estimates()
        yield from _policy_guard()
        yield from _notifications(now)
        yield _build()


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    return generate_latest(registry)


def _jobs(added_up: Sums) -> Family:
    family = GaugeMetricFamily("motley_jobs", "Jobs by state.", labels=["state"])
    unfinished = Job.objects.unfinished().values_list("state").annotate(Count("pk")).order_by()
    counts = dict(unfinished) | {state: added_up[Metric.JOBS_FINISHED, state] for state in Job.FINAL}
    for state in Job.State.values:
        family.add_metric([state], counts.get(state, 0))
    return family


def _pending() -> Family:
    family = GaugeMetricFamily("motley_pending_jobs", "Queued jobs by their first pending reason.", labels=["reason"])
    queued = Job.objects.queued().values_list("reason").annotate(Count("pk")).order_by()
    counts = {reason or Reason.NEXT_ROUND: count for reason, count in queued}
    for reason, count in sorted(counts.items()):
        family.add_metric([reason], count)
    return family


def _gpus() -> Family:
    family = GaugeMetricFamily("motley_gpus", "GPUs by type and condition.", labels=["gpu_type", "state"])
    for count in gpu_counts():
        for condition in CONDITIONS:
            family.add_metric([count.gpu_type, condition], getattr(count, condition))
    return family


def _slow_gpus() -> Family:
    words = "Part by which jobs run slower on a GPU than on others of its type, of GPUs that are slow."
    family = GaugeMetricFamily("motley_gpu_slower_by_ratio", words, labels=["gpu", "node"])
    slow = Gpu.objects.present().filter(slower_by__gt=0).order_by("node__name", "index")
    for node, index, part in slow.values_list("node__name", "index", "slower_by"):
        family.add_metric([str(index), node], part)
    return family


def _gpu_readings(now: datetime) -> Iterator[Family]:
    """Means of the last minute, under the names of NVIDIA's DCGM exporter."""
    found = gpus_now(now)
    for name, (words, value) in DCGM.items():
        family = GaugeMetricFamily(f"DCGM_FI_DEV_{name}", words, labels=DCGM_LABELS)
        for one in found:
            if (figure := value(one)) is not None:
                family.add_metric(_dcgm_labels(one), figure)
        yield family


def _dcgm_labels(one: GpuNow) -> list[str]:
    return [str(one.index), one.uuid, one.gpu_type, one.node, one.node, str(one.job or ""), str(one.emulated).lower()]


DCGM_LABELS = ("gpu", "UUID", "modelName", "Hostname", "node", "job", "emulated")
"""The first four are DCGM's."""
DCGM: dict[str, tuple[str, Callable[[GpuNow], float | None]]] = {
    "GPU_UTIL": ("GPU utilization (in %).", lambda one: one.utilization),
    "FB_USED": ("Framebuffer memory used (in MiB).", lambda one: one.memory_used_mib),
    "POWER_USAGE": ("Power draw (in W).", lambda one: one.power_w),
    "GPU_TEMP": ("GPU temperature (in C).", lambda one: one.temperature_c),
    "ECC_DBE_VOL_TOTAL": ("Uncorrectable memory errors since the last reset.", lambda one: one.ecc_errors),
    "CLOCK_THROTTLE_REASONS": ("Throttle reasons bitmask of the last minute.", lambda one: one.throttle),
}


def _engines() -> Family:
    words = "1: the engine answered when it was last asked, 0: it did not. Disabled engines are left out."
    family = GaugeMetricFamily("motley_engine_up", words, labels=["engine"])
    for engine in Engine.objects.filter(enabled=True):
        family.add_metric([engine.name], int(engine.answers))
    return family


def _rounds(added_up: Sums, now: datetime) -> Iterator[Family]:
    words = "Rounds by result; fallback: the solver failed and a fallback decided; limit: the best by the time limit."
    family = CounterMetricFamily("motley_rounds", words, labels=["result"])
    for result in (*Round.Result.values, Status.FALLBACK.value, Status.LIMIT.value):
        family.add_metric([result], added_up[Metric.ROUNDS, result])
    yield family
    beat = scheduler_health(now)
    words = (
        "Age of the last round that committed from which on the next is overdue: three round lengths, 15 s at least."
    )
    yield GaugeMetricFamily("motley_scheduler_patience_seconds", words, value=beat.patience.total_seconds())
    if beat.good:
        name, words = "motley_scheduler_last_success_timestamp_seconds", "Start of the last round that committed."
        yield GaugeMetricFamily(name, words, value=beat.good.started_at.timestamp())
    if beat.good and beat.good.gap is not None:
        words = "Optimality gap of the last committed round, relative to its bound."
        yield GaugeMetricFamily("motley_solver_gap_ratio", words, value=beat.good.gap)


def _set_aside() -> Family:
    words = "Jobs, attempts and nodes that made the scheduler raise, and are left alone for a while."
    family = GaugeMetricFamily("motley_set_aside", words, labels=["kind"])
    found = dict(SetAside.objects.order_by().values_list("kind").annotate(Count("pk")))
    for kind in SetAside.Kind.values:
        family.add_metric([kind], found.get(kind, 0))
    return family


def _preemptions(added_up: Sums) -> Iterator[Family]:
    words = "Attempts stopped to be resumed later, by reason."
    family = CounterMetricFamily("motley_preemptions", words, labels=["reason"])
    stops = Attempt.StopReason
    for reason in (stops.PREEMPT, stops.MOVE, stops.REQUEUE, stops.DRAIN):
        family.add_metric([reason.value], added_up[Metric.PREEMPTIONS, reason])
    yield family
    lost = added_up[Metric.PREEMPTED_WORK, ""]
    yield CounterMetricFamily("motley_preempted_work_seconds", "GPU-seconds of work lost by preemptions.", value=lost)


def _histogram(metric: str, words: str, added_up: Sums) -> Family:
    labels = [f"{bound:g}" for bound in BOUNDS[metric]] + [REST]
    count, buckets = 0.0, []
    for label in labels:
        count += added_up[metric, label]
        buckets.append((label, count))
    return HistogramMetricFamily(f"motley_{metric}", words, buckets=buckets, sum_value=added_up[metric, SUM])


def _shares(now: datetime) -> Iterator[Family]:
    words = "A team's share of the last hour: entitled, weighted max-min fair by what its jobs can use, and delivered."
    family = GaugeMetricFamily("motley_team_share_ratio", words, labels=["team", "kind"])
    words = "Work that a team was entitled to and did not receive, forgotten over some hours, in GPU-hours."
    backlog = GaugeMetricFamily("motley_team_backlog_gpu_hours", words, labels=["team"])
    for share in team_shares(now - SHARES_OVER):
        family.add_metric([share.team, "entitled"], share.entitled)
        family.add_metric([share.team, "delivered"], share.delivered)
        backlog.add_metric([share.team], share.backlog_gpu_hours)
    yield from (family, backlog)


def _budgets(now: datetime) -> Iterator[Family]:
    words = "Budget of a team in this period, in reference GPU-hours."
    budget = GaugeMetricFamily("motley_team_budget_gpu_hours", words, labels=["team", "kind"])
    words = "Used of it since the period began."
    used = GaugeMetricFamily("motley_team_budget_used_gpu_hours", words, labels=["team"])
    words = "When the next period begins."
    reset = GaugeMetricFamily("motley_team_budget_reset_timestamp_seconds", words, labels=["team"])
    words = "Part of its weight that a soft budget leaves the team."
    weight = GaugeMetricFamily("motley_team_budget_weight_ratio", words, labels=["team"])
    for one in read_budgets(now).values():
        budget.add_metric([one.team, one.kind], one.gpu_hours)
        used.add_metric([one.team], one.used_gpu_hours)
        reset.add_metric([one.team], one.resets_at.timestamp())
        weight.add_metric([one.team], one.weight_part)
    yield from (budget, used, reset, weight)


def _forecasts() -> Iterator[Family]:
    """Forecast errors by moment and basis; those with too few outcomes have only a count."""
    labels = ["moment", "basis"]
    words = "Jobs that succeeded last, by when and from what their duration was forecast."
    jobs = GaugeMetricFamily("motley_forecast_jobs", words, labels=labels)
    words = "Mean absolute error of the forecasts of their durations, relative to the duration."
    error = GaugeMetricFamily("motley_forecast_error_ratio", words, labels=labels)
    words = "Spearman's rank correlation of forecasts and durations."
    order = GaugeMetricFamily("motley_forecast_rank_correlation_ratio", words, labels=labels)
    for one in judge_forecasts():
        jobs.add_metric([one.moment, one.basis], one.accuracy.n)
        if not one.accuracy.is_chance:
            error.add_metric([one.moment, one.basis], one.accuracy.mape)
            order.add_metric([one.moment, one.basis], one.accuracy.rank_correlation or 0)
    yield from (jobs, error, order)


def _rate_estimates() -> Iterator[Family]:
    """Errors of rate estimates by source; those with too few outcomes have only a count."""
    words = "Attempts that ended last on real GPUs and measured a rate, by the source of the rate that was expected."
    attempts = GaugeMetricFamily("motley_rate_estimate_attempts", words, labels=["source"])
    words = "Mean absolute error of the rates that rounds counted on, relative to the measured rate."
    error = GaugeMetricFamily("motley_rate_estimate_error_ratio", words, labels=["source"])
    words = "Spearman's rank correlation of expected and measured rates."
    order = GaugeMetricFamily("motley_rate_estimate_rank_correlation_ratio", words, labels=["source"])
    for one in judge_rates():
        attempts.add_metric([one.source], one.accuracy.n)
        if not one.accuracy.is_chance:
            error.add_metric([one.source], one.accuracy.mape)
            order.add_metric([one.source], one.accuracy.rank_correlation or 0)
    yield from (attempts, error, order)


def _policy_guard() -> Iterator[Family]:
    """Verdict on the current setting, if it was chosen from a run of the lab."""
    guard = PolicyGuard.objects.current()
    words = "1: what the policy lab's prediction and the effects of the current policy come to; all 0: no prediction."
    family = GaugeMetricFamily("motley_policy_guard", words, labels=["state"])
    for state in PolicyGuard.State.values:
        family.add_metric([state], int(guard is not None and guard.state == state))
    words = "An effect of the current policy over what the policy lab predicted."
    effects = GaugeMetricFamily("motley_policy_effect_ratio", words, labels=["measure"])
    for effect in guard.effects if guard else ():
        if effect["value"] is not None and effect["predicted"]:
            effects.add_metric([effect["measure"]], effect["value"] / effect["predicted"])
    yield from (family, effects)


def _notifications(now: datetime) -> Iterator[Family]:
    """Notifications of the outbox that are not sent."""
    states = Notification.State
    pending = Notification.objects.filter(state=states.PENDING)
    found = pending.aggregate(rows=Count("pk"), failed=Count("pk", filter=Q(tries__gt=0)), oldest=Min("created_at"))
    given_up = Notification.objects.filter(state=states.DEAD).count()
    words = "Notifications that are not sent: to be sent first, failed and to be tried again, given up."
    family = GaugeMetricFamily("motley_notifications", words, labels=["state"])
    counts = {"pending": found["rows"] - found["failed"], "failed": found["failed"], "given_up": given_up}
    for state, count in counts.items():
        family.add_metric([state], count)
    yield family
    words = "Age of the oldest notification that is to be sent, first or again; 0: there is none."
    age_s = max((now - found["oldest"]).total_seconds(), 0) if found["oldest"] else 0
    yield GaugeMetricFamily("motley_notification_oldest_age_seconds", words, value=age_s)


def _build() -> Family:
    family = GaugeMetricFamily("motley_build_info", "Always 1; the labels say which build this is.", labels=["version"])
    family.add_metric([settings.MOTLEY_VERSION], 1)
    return family
