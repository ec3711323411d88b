"""Metrics for Prometheus, from the database: the same whichever process is asked.

What is unfinished is counted by index, what is over comes from the totals: a million finished jobs cost nothing. No
label is a job or a person: there would be ever more of them.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Exists, OuterRef
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from allocation.solve import Status
from cluster_app.models import Gpu, Node
from jobs_app.models import Attempt, Job, Metric, Reason
from jobs_app.tallying import BOUNDS, REST, SUM, Sums, totals
from scheduler_app.heartbeat import heartbeat
from scheduler_app.ledger import team_shares
from scheduler_app.looking import condition_of
from scheduler_app.models import GpuClaim, Round

SHARES_OVER = timedelta(hours=1)
HISTOGRAMS = {
    Metric.JOB_WAIT: "Seconds from submission to the first start.",
    Metric.ROUND_TIME: "Seconds of a round, from its snapshot to its commit.",
    Metric.SOLVER_TIME: "Seconds that a round took to decide.",
    Metric.FINISH_TIME_FAIRNESS: "How much longer jobs that succeeded took than alone on their part of the cluster.",
}


class Collected(Collector):
    """Everything, at the moment of asking."""

    def describe(self) -> list[Family]:
        return []  # else it is collected when it is registered, too

    def collect(self) -> Iterator[Family]:
        now, added_up = timezone.now(), totals()
        yield _jobs(added_up)
        yield _pending()
        yield _gpus()
        yield from _rounds(added_up, now)
        yield from _preemptions(added_up)
        yield from (_histogram(metric, words, added_up) for metric, words in HISTOGRAMS.items())
        yield _shares(now)
        yield _build()


def exposition() -> bytes:
    """In Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry)


def _jobs(added_up: Sums) -> Family:
    family = GaugeMetricFamily("motley_jobs", "Jobs by state.", labels=["state"])
    unfinished = Job.objects.unfinished().values_list("state").annotate(Count("pk")).order_by()
    counts = dict(unfinished) | {state: added_up[Metric.JOBS_FINISHED, state] for state in Job.FINAL}
    for state in Job.State.values:
        family.add_metric([state], counts.get(state, 0))
    return family


def _pending() -> Family:
    family = GaugeMetricFamily("motley_pending_jobs", "Queued jobs by the first reason to wait.", labels=["reason"])
    queued = Job.objects.queued().values_list("reason").annotate(Count("pk")).order_by()
    counts = {reason or Reason.NEXT_ROUND: count for reason, count in queued}
    for reason, count in sorted(counts.items()):
        family.add_metric([reason], count)
    return family


def _gpus() -> Family:
    """Grouped by the database, and judged as the pages do."""
    family = GaugeMetricFamily("motley_gpus", "GPUs by type and condition.", labels=["gpu_type", "state"])
    held = Exists(GpuClaim.objects.holding().filter(gpu=OuterRef("pk")))
    what = ("node__gpu_type__name", "healthy", "node__state", "node__health", "busy")
    groups = Gpu.objects.present().annotate(busy=held).values(*what).annotate(count=Count("pk")).order_by()
    counts: Counter[tuple[str, str]] = Counter()
    for group in groups:
        node = Node(state=group["node__state"], health=group["node__health"])
        condition = condition_of(Gpu(node=node, healthy=group["healthy"]), busy=group["busy"])
        counts[group["node__gpu_type__name"], condition] += group["count"]
    for kind in sorted({kind for kind, _ in counts}):
        for condition in ("busy", "idle", "draining", "unhealthy"):
            family.add_metric([kind, condition], counts[kind, condition])
    return family


def _rounds(added_up: Sums, now: datetime) -> Iterator[Family]:
    words = "Rounds by result; fallback: the solver failed, and a stand-in decided; limit: the best by the time limit."
    family = CounterMetricFamily("motley_rounds", words, labels=["result"])
    for result in (*Round.Result.values, Status.FALLBACK.value, Status.LIMIT.value):
        family.add_metric([result], added_up[Metric.ROUNDS, result])
    yield family
    beat = heartbeat(now)
    if beat.good:
        name, words = "motley_scheduler_last_success_timestamp_seconds", "When the last good round began."
        yield GaugeMetricFamily(name, words, value=beat.good.started_at.timestamp())
    if beat.good and beat.good.gap is not None:
        words = "How far from the bound the last good round may be, as a part of it."
        yield GaugeMetricFamily("motley_solver_gap_ratio", words, value=beat.good.gap)


def _preemptions(added_up: Sums) -> Iterator[Family]:
    words = "Attempts that were stopped to go on later, by reason."
    family = CounterMetricFamily("motley_preemptions", words, labels=["reason"])
    for reason in (Attempt.StopReason.PREEMPT, Attempt.StopReason.REQUEUE, Attempt.StopReason.DRAIN):
        family.add_metric([reason.value], added_up[Metric.PREEMPTIONS, reason])
    yield family
    lost = added_up[Metric.PREEMPTED_WORK, ""]
    yield CounterMetricFamily("motley_preempted_work_seconds", "GPU-seconds of work lost by that.", value=lost)


def _histogram(metric: str, words: str, added_up: Sums) -> Family:
    labels = [f"{bound:g}" for bound in BOUNDS[metric]] + [REST]
    count, buckets = 0.0, []
    for label in labels:
        count += added_up[metric, label]
        buckets.append((label, count))
    return HistogramMetricFamily(f"motley_{metric}", words, buckets=buckets, sum_value=added_up[metric, SUM])


def _shares(now: datetime) -> Family:
    words = "A team's part of the last hour: of what the active teams were entitled to, and of what was delivered."
    family = GaugeMetricFamily("motley_team_share_ratio", words, labels=["team", "kind"])
    for share in team_shares(now - SHARES_OVER):
        family.add_metric([share.team, "entitled"], share.entitled)
        family.add_metric([share.team, "delivered"], share.delivered)
    return family


def _build() -> Family:
    family = GaugeMetricFamily("motley_build_info", "Always 1; the labels say which build this is.", labels=["version"])
    family.add_metric([settings.MOTLEY_VERSION], 1)
    return family
