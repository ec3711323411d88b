"""Turns of the watch of GPUs, as their number grows: `python -m benchmarks.gpu_watch --gpus 8 512 8192`.

All GPUs are emulated, in nodes of eight, each of which one job holds. Each turn reads and stores all, or of more than
1,024 GPUs a part.
The first turn of a minute inserts rows and looks for idle GPUs in the ten minutes before; the others update the rows.
"""

import argparse
import os
import statistics
import tempfile
from datetime import timedelta
from time import perf_counter, process_time

GPUS_PER_NODE = 8
TURNS_PER_MINUTE = 6


def main() -> None:
    arguments = _arguments()
    print(f"{'GPUs':>8}{'first of a minute':>20}{'others':>10}{'their CPU':>12}   (seconds, median)")
    for gpus in arguments.gpus:
        with tempfile.TemporaryDirectory(prefix="motley-bench-") as folder:
            if os.fork() == 0:  # each size has a database of its own, and the settings are read once in a process
                _measure(folder, gpus, arguments.minutes)
                os._exit(0)
            os.wait()


def _measure(folder: str, gpus: int, minutes: int) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": folder, "MOTLEY_LOG_LEVEL": "WARNING"}
    import django

    django.setup()
    measured = _times(gpus, minutes)
    others = [turn for n, turn in enumerate(measured) if n % TURNS_PER_MINUTE]
    first_s = statistics.median(elapsed_s for elapsed_s, _ in measured[::TURNS_PER_MINUTE])
    others_s, cpu_s = (statistics.median(figures) for figures in zip(*others, strict=True))
    print(f"{gpus:8}{first_s:20.3f}{others_s:10.3f}{cpu_s:12.3f}", flush=True)


def _times(gpus: int, minutes: int) -> list[tuple[float, float]]:
    """Elapsed and CPU seconds of this process for each turn, after ten minutes that fill the window."""
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.utils import timezone

    from accounting_app.gpu_watch.minutes import minute_of
    from cluster_app.models import Gpu, GpuType, Node
    from cluster_app.services import add_node
    from jobs_app.models import Attempt, GpuClaim, Team
    from jobs_app.submission.submit import submit_job
    from scheduler_app.round.lease import Fence, Loop, acquire_lease
    from scheduler_app.round.watch_gpus import watch_gpus

    call_command("migrate", verbosity=0)
    kind = GpuType.objects.create(name="a100", memory_mib=81_920, tflops=312, bandwidth_gbs=2039)
    team, owner = Team.objects.create(name="vision"), User.objects.create(username="ada")
    owner.teams.add(team)
    start, taken = minute_of(timezone.now()), []
    for number in range(gpus // GPUS_PER_NODE):
        add_node(f"n{number}", kind, gpus=GPUS_PER_NODE, cpus=64, memory_mib=524_288, emulated=True)
        job = submit_job({"name": "j", "command": "true", "gpus": GPUS_PER_NODE, "team": "vision"}, owner=owner)
        state = {"state": Attempt.State.RUNNING, "started_at": start, "nodes": [f"n{number}"], "engine": "local"}
        sizes = {"number": 1, "gpu_count": GPUS_PER_NODE, "round_number": 1, "master_port": 29_600}
        attempt = Attempt.objects.create(job=job, gpu_type=kind, **state, **sizes)
        held = Gpu.objects.filter(node__name=f"n{number}")
        GpuClaim.objects.bulk_create([GpuClaim(gpu=gpu, attempt=attempt, held_from=start) for gpu in held])
    Node.objects.update(health=Node.Health.HEALTHY)
    for turn in range((10 + minutes) * TURNS_PER_MINUTE):
        now = start + turn * timedelta(seconds=60 / TURNS_PER_MINUTE)
        assert acquire_lease("benchmark", now, Loop.ENGINES)
        fence, began, cpu_began = Fence.of("benchmark"), perf_counter(), process_time()
        watch_gpus(fence, now)
        taken.append((perf_counter() - began, process_time() - cpu_began))
    return taken[10 * TURNS_PER_MINUTE :]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 512, 8192])
    parser.add_argument("--minutes", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
