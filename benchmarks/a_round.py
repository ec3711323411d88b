"""The cluster and the queue that rounds are measured on."""

from collections.abc import Mapping
from datetime import timedelta
from time import perf_counter
from typing import Any

import numpy as np
from django.contrib.auth.models import User
from django.db.models import Count
from django.utils import timezone

from allocation.configurations import gang_sizes
from benchmarks.engine import InstantEngine
from cluster_app.models import Engine, Gpu, GpuType, Node
from connections_app import engine_registry as fleet
from connections_app.register_machine import gpu_type_columns
from jobs_app.models import Attempt, Job, JobEvent, Team, TeamQuota
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import choose_policy
from scheduler_app.round.dispatch import dispatch
from scheduler_app.round.lease import Fence, Loop, acquire_lease
from scheduler_app.round.reconcile import observe
from scheduler_app.round.run_round import run_round
from scheduler_app.round.tick import garbage_collection_disabled

GPUS_PER_NODE = 8
SPEEDS = {"a100": 4.0, "t4": 1.0, "v100": 2.0}
"""Of jobs on each GPU type, up to 30 %."""
GANGS, GANG_ODDS = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)
MOST_GPUS = (4, 8, 16)
"""Of elastic jobs, from one on."""
TEAMS, WORKLOADS = 10, 200
HOLDER = "benchmark"
REPLACED = 0.1
ROUND = timedelta(seconds=60)
PROGRESS_EVERY = timedelta(seconds=30)


class Bench:
    """A cluster of three GPU types in equal parts, and jobs of 1 to 8 GPUs in ten teams.

    The engine is in memory: it is the service that is measured, not the processes of jobs. Where jobs are
    `all_different`, each declares rates of its own; else those of its workload, of which there are 200. Where they are
    `elastic`, they take 1 to 16 GPUs in place of a gang, and are all different.
    """

    def __init__(
        self,
        *,
        jobs: int,
        gpus: int,
        seed: int,
        all_different: bool,
        elastic: bool = False,
        policy: str = "max_min_fairness",
        speeds: Mapping[str, float] = SPEEDS,
        progressing: int = 0,
    ) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        self.rng, self.speeds, self.replaced = np.random.default_rng(seed), speeds, REPLACED
        self.all_different, self.elastic, self.progressing = all_different, elastic, progressing
        self.now, self.submitted = timezone.now(), 0
        self.teams = Team.objects.bulk_create([Team(name=f"queue-{n}", weight=1 + n % 3) for n in range(TEAMS)])
        self.owner = User.objects.create_user("bench")
        self.workloads = [self._speeds(gang) for gang in self._gangs(WORKLOADS)]
        self.engine = self._engine_of(gpus // GPUS_PER_NODE)
        choose_policy(PolicySetting(policy=policy, round_length_s=ROUND.total_seconds()), actor=None)
        self._submit(jobs)

    def add_quotas(self) -> None:
        """Each team has its part of each GPU type, may borrow half as much again, and lends all of it."""
        of_types = Gpu.objects.order_by().values_list("node__gpu_type").annotate(Count("pk"))
        parts = [(kind, gpus // len(self.teams)) for kind, gpus in of_types]
        TeamQuota.objects.bulk_create(
            TeamQuota(team=team, gpu_type_id=kind, gpus=part, borrowing_limit=part // 2)
            for team in self.teams
            for kind, part in parts
        )

    def round(self) -> dict[str, float]:
        """One round from observing to the commands; then its jobs run, and a tenth of them end and are replaced."""
        self.now += ROUND / 2
        self._make_progress()
        self._take_leases()
        times = [perf_counter()]
        with garbage_collection_disabled():  # as `tick` does it
            for step in (self._observe, self._observe, self._decide, self._dispatch):
                step()
                times.append(perf_counter())
        observed, observed_again, decided, dispatched = np.diff(times).tolist()
        whole = observed + decided + dispatched
        seconds = {"observe": observed, **self.seconds, "round": decided, "dispatch": dispatched, "end to end": whole}
        return seconds | {"without progress": whole - observed + observed_again, "changes heard": self._replace()}

    def _take_leases(self) -> None:
        for loop in Loop:
            acquire_lease(HOLDER, self.now, loop)
        self.fence = Fence.of(HOLDER)

    def _observe(self) -> None:
        observe(self.fence, self.now)

    def _decide(self) -> None:
        record = run_round(HOLDER, self.now)
        assert record.result == "committed", record.message
        self.seconds, self.record = record.seconds, record

    def _dispatch(self) -> None:
        dispatch(self.fence, self.now)

    def _engine_of(self, nodes: int) -> InstantEngine:
        kinds = [GpuType.objects.get_or_create(name=name, defaults=gpu_type_columns(name))[0] for name in self.speeds]
        rows = Node.objects.bulk_create(
            [
                Node(
                    name=f"node-{n}",
                    gpu_type=kinds[n % len(kinds)],
                    cpus=64,
                    memory_mib=2**19,
                    heard_at=self.now,
                    health=Node.Health.HEALTHY,
                )
                for n in range(nodes)
            ]
        )
        Gpu.objects.bulk_create([Gpu(node=node, index=index) for node in rows for index in range(GPUS_PER_NODE)])
        engine = InstantEngine([node.name for node in rows], self.now)
        fleet.FACTORIES[Engine.Kind.LOCAL.value] = lambda _: engine
        fleet.engine_over.cache_clear()
        return engine

    def _submit(self, count: int) -> None:
        jobs = Job.objects.bulk_create(map(self._job, self._gangs(count)), batch_size=2000)
        events = [JobEvent(job=job, kind=JobEvent.Kind.SUBMITTED) for job in jobs]
        JobEvent.objects.bulk_create(events, batch_size=2000)

    def _job(self, gang: int) -> Job:
        self.submitted += 1
        kind = self.submitted % WORKLOADS
        return Job(
            name=f"job-{self.submitted}",
            team=self.teams[kind % TEAMS],
            owner=self.owner,
            command="true",
            workload=f"workload-{kind}",
            created_at=self.now,
            **(self._elastic() if self.elastic else self._rigid(gang, kind)),
        )

    def _rigid(self, gang: int, kind: int) -> dict[str, Any]:
        gang, speeds = self._speeds(gang) if self.all_different else self.workloads[kind]
        rates = {name: {str(gang): speed} for name, speed in speeds.items()}
        return {"gpus_min": gang, "gpus_max": gang, "rates": rates}

    def _elastic(self) -> dict[str, Any]:
        """From one GPU on, with falling returns that differ from job to job; it says how much work it is."""
        most, exponent = int(self.rng.choice(MOST_GPUS)), self.rng.uniform(0.6, 0.95)
        _, speeds = self._speeds(1)
        rates = {
            name: {str(gpus): float(speed * gpus**exponent) for gpus in gang_sizes(1, most)}
            for name, speed in speeds.items()
        }
        steps = int(10 ** self.rng.uniform(3, 6))
        return {"gpus_min": 1, "gpus_max": most, "rates": rates, "total_steps": steps}

    def _gangs(self, count: int) -> list[int]:
        return [int(gang) for gang in self.rng.choice(GANGS, count, p=GANG_ODDS)]

    def _speeds(self, gang: int) -> tuple[int, dict[str, float]]:
        """A gang and its steps/s on each type; the types' speeds differ by up to 30 % from job to job."""
        luck = self.rng.uniform(0.7, 1.3, len(self.speeds))
        return gang, {name: float(v * x * gang**0.9) for (name, v), x in zip(self.speeds.items(), luck, strict=True)}

    def _make_progress(self) -> None:
        running = Attempt.objects.filter(state=Attempt.State.RUNNING).values_list("pk", flat=True)
        self.engine.report_progress(running[: self.progressing], now=self.now, steps=100)

    def _replace(self) -> float:
        """What was started runs, a tenth of it ends, and new jobs come; gives the seconds of hearing of it."""
        self.now = self.engine.now = self.now + ROUND / 2
        running = list(Attempt.objects.filter(state=Attempt.State.RUNNING).values_list("pk", flat=True))
        ended = self.rng.choice(len(running), int(len(running) * self.replaced), replace=False).tolist()
        self.engine.ended |= {running[position]: 0 for position in ended}
        self._take_leases()
        began = perf_counter()
        observe(self.fence, self.now)
        dispatch(self.fence, self.now)
        seconds = perf_counter() - began
        observe(self.fence, self.now)
        self._submit(len(ended))
        return seconds
