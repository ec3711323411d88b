"""The cluster and the queue that rounds are measured on."""

from time import perf_counter

import numpy as np
from django.contrib.auth.models import User
from django.utils import timezone

from cluster_app.models import Gpu, GpuType, Node
from jobs_app.attempts import end_attempt, note_running
from jobs_app.models import Attempt, Job, JobEvent, Team
from scheduler_app.demo import SPECIFICATIONS
from scheduler_app.dispatching import grant_claims
from scheduler_app.lease import hold_lease
from scheduler_app.models import PolicySetting
from scheduler_app.observing import release_claims
from scheduler_app.services import choose_policy, run_round

GPUS_PER_NODE = 8
KINDS = ("a100", "v100", "t4")
HOLDER = "benchmark"
REPLACED = 0.1


class Bench:
    """A cluster of three GPU types in equal parts, and jobs of 1 to 8 GPUs in ten teams."""

    def __init__(self, *, jobs: int, gpus: int, seed: int) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        self.rng = np.random.default_rng(seed)
        self.jobs = jobs
        self._add_nodes(gpus // GPUS_PER_NODE)
        self.teams = Team.objects.bulk_create([Team(name=f"team-{n}", weight=1 + n % 3) for n in range(10)])
        self.owner = User.objects.create_user("bench")
        choose_policy(PolicySetting(round_length_s=60, min_run_s=0), actor=None)
        self._submit(jobs)

    def round(self) -> dict[str, float]:
        """One round; then its jobs run, and a tenth of them end and are replaced by new ones."""
        now = timezone.now()
        hold_lease(HOLDER, now)
        began = perf_counter()
        record = run_round(HOLDER, now)
        seconds = perf_counter() - began
        assert record.result == "committed", record
        self._replace()
        return {**record.seconds, "whole round": seconds}

    def _add_nodes(self, nodes: int) -> None:
        for position in range(nodes):
            name = KINDS[position % len(KINDS)]
            kind, _ = GpuType.objects.get_or_create(name=name, defaults=SPECIFICATIONS[name])
            node = Node.objects.create(name=f"node-{position}", gpu_type=kind, cpus=64, memory_mib=2**19)
            Gpu.objects.bulk_create([Gpu(node=node, index=index) for index in range(GPUS_PER_NODE)])

    def _submit(self, count: int) -> None:
        """All different: every job declares rates of its own."""
        gangs = self.rng.choice([1, 2, 4, 8], count, p=[0.7, 0.1, 0.15, 0.05])
        speeds = self.rng.uniform(0.7, 1.3, (count, 3)) * np.array([4.0, 2.0, 1.0])
        jobs = Job.objects.bulk_create(
            [
                Job(
                    name=f"job-{n}",
                    team=self.teams[n % len(self.teams)],
                    owner=self.owner,
                    command="true",
                    gpus_min=int(gang),
                    gpus_max=int(gang),
                    workload=f"workload-{n % 200}",
                    rates={k: {str(gang): float(s * gang**0.9)} for k, s in zip(KINDS, speed, strict=True)},
                )
                for n, (gang, speed) in enumerate(zip(gangs, speeds, strict=True))
            ],
            batch_size=500,
        )
        JobEvent.objects.bulk_create([JobEvent(job=job, kind=JobEvent.Kind.SUBMITTED) for job in jobs], batch_size=500)

    def _replace(self) -> None:
        now = timezone.now()
        for attempt in Attempt.objects.filter(state=Attempt.State.STOPPING).select_related("job"):
            end_attempt(attempt, exit_code=75, ended_at=now, gone=True)
        release_claims(now)
        grant_claims(now)
        Attempt.objects.filter(state=Attempt.State.CLAIMED).update(state=Attempt.State.LAUNCHING)
        for attempt in Attempt.objects.filter(state=Attempt.State.LAUNCHING).select_related("job", "gpu_type"):
            note_running(attempt, started_at=now)
        running = list(Attempt.objects.filter(state=Attempt.State.RUNNING).select_related("job"))
        ended = self.rng.choice(len(running), int(len(running) * REPLACED), replace=False)
        for position in ended.tolist():
            end_attempt(running[position], exit_code=0, ended_at=now, gone=True)
        release_claims(now)
        self._submit(len(ended))
